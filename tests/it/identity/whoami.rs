//! Who a caller is: its own answer to every refusal of the gate.

use runledger_proto::v1::identity_service_client::IdentityServiceClient;
use runledger_proto::v1::{PrincipalKind, Role, StartRunRequest, WhoAmIRequest, WhoAmIResponse};
use tonic::Status;
use tonic::transport::Endpoint;
use tonic_types::StatusExt as _;

use super::callers::{Caller, Place, call, entry, grant, methods, reason};
use crate::process::server::Server;

async fn asked(place: &Place, caller: Caller) -> Result<WhoAmIResponse, Status> {
    let mut client = IdentityServiceClient::with_interceptor(place.channel(), caller);
    client.who_am_i(WhoAmIRequest {}).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_caller_is_told_what_was_granted_to_it_whatever_it_names() {
    let two =
        format!("{}, {}", grant("team-*", "reporter", "\"ci-*\", \"cron\""), grant("default", "operator", "\"*\""));
    let place = Place::start(&[entry("two", &two), entry("reader", &grant("*", "reader", "\"r\""))].concat()).await;
    for caller in [Caller::of("two"), Caller::of("two").acting("nobodys"), Caller::of("two").within("nowhere")] {
        let answer = asked(&place, caller).await.unwrap();
        let principal = answer.principal.unwrap();
        assert_eq!(principal.kind(), PrincipalKind::Authenticated);
        assert_eq!((principal.subject.as_str(), principal.issuer.as_str()), ("two", "runledger"));
        assert_eq!(principal.agent_id, "");
        assert!(!answer.believed);
        let shown: Vec<_> = answer.grants.iter().map(|grant| (grant.roles().collect::<Vec<_>>(), grant)).collect();
        assert_eq!((shown[0].0.as_slice(), shown[1].0.as_slice()), (&[Role::Reporter][..], &[Role::Operator][..]));
        assert_eq!(
            (shown[0].1.namespaces.as_slice(), shown[0].1.agents.as_slice()),
            (&["team-*".to_owned()][..], &["ci-*".to_owned(), "cron".to_owned()][..])
        );
        assert_eq!(
            (shown[1].1.namespaces.as_slice(), shown[1].1.agents.as_slice()),
            (&["default".to_owned()][..], &["*".to_owned()][..])
        );
    }
    let reader = asked(&place, Caller::of("reader")).await.unwrap();
    assert_eq!(reader.grants[0].roles().collect::<Vec<_>>(), [Role::Reader]);
    for (caller, why) in [(Caller::default(), "CREDENTIAL_MISSING"), (Caller::of("bad"), "CREDENTIAL_INVALID")] {
        assert_eq!(reason(&asked(&place, caller).await.unwrap_err()), why);
    }
}

#[tokio::test]
async fn a_caller_that_is_believed_is_told_so() {
    let server = Server::start("memory").await;
    server.is_ready().await;
    let channel = Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect_lazy();
    let mut client = IdentityServiceClient::with_interceptor(channel, Caller::default().acting("agent-7"));
    let answer = client.who_am_i(WhoAmIRequest {}).await.unwrap().into_inner();
    let principal = answer.principal.unwrap();
    assert_eq!((principal.kind(), principal.agent_id.as_str()), (PrincipalKind::Claimed, "agent-7"));
    assert!(answer.believed && answer.grants.is_empty());
}

#[tokio::test]
async fn who_is_denied_an_agent_is_told_its_own() {
    let many = (0..99).map(|number| format!("\"agent-with-a-name-{number}\"")).collect::<Vec<_>>().join(", ");
    let access = [
        entry("some", &grant("default", "reporter", "\"ci-*\", \"cron\"")),
        entry("many", &grant("default", "reporter", &many)),
    ];
    let place = Place::start(&access.concat()).await;
    let start = |agent: &str| StartRunRequest {
        run_id: "run".into(),
        task_thread_id: "thread".into(),
        agent_id: agent.into(),
        ..StartRunRequest::default()
    };
    for (caller, owner) in [
        (Caller::of("some"), ""),
        (Caller::of("some").acting("other"), ""),
        (Caller::of("some").acting("cron"), "other"),
    ] {
        let status = place.client(caller).start_run(start(owner)).await.unwrap_err();
        assert_eq!(reason(&status), "AGENT_DENIED");
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.metadata["agents"], "ci-*, cron");
        assert!(status.message().contains("ci-*, cron"), "{}", status.message());
    }
    let status = place.client(Caller::of("many")).start_run(start("")).await.unwrap_err();
    let agents = status.get_details_error_info().unwrap().metadata["agents"].clone();
    assert!(agents.len() < 300 && agents.ends_with(", …"), "{agents}");
}

/// Whoever starts a server tries what it prints first.
#[tokio::test]
async fn the_call_that_the_banner_tries_is_refused_to_no_good_credential() {
    let roles = ["reader", "reporter", "operator", "admin"];
    let entries: String = roles.iter().map(|role| entry(role, &grant("team", role, "\"ci-*\""))).collect();
    let place = Place::start(&entries).await;
    let said = place.server.process.said();
    let line = said.lines().find(|line| line.trim_start().starts_with("try ")).unwrap();
    let method = line.rsplit(' ').next().unwrap();
    let method = methods()
        .into_iter()
        .find(|known| format!("{}/{}", known.parent_service().full_name(), known.name()) == method);
    let method = method.unwrap_or_else(|| panic!("{line}"));
    assert!(line.contains("Bearer"), "{line}");
    for role in roles {
        call(&place.channel(), &method, Caller::of(role)).await.unwrap();
    }
}

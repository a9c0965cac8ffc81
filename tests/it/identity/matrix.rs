//! Every role, on every method, in a namespace that was granted and in one that was not, as an agent of the caller's and
//! as another one: what is let in is what the table says, and nothing else.

use runledger::auth::{Access, Role};
use tonic::Code;

use super::callers::{Caller, Place, call, entry, grant, methods, reason};

const ROLES: [Role; 4] = [Role::Reader, Role::Reporter, Role::Operator, Role::Admin];

/// The answer that a caller of a role is to have, or none where it is let in.
fn expected(access: Access, role: Role, is_granted: bool, agent: Option<&str>) -> Option<&'static str> {
    match access {
        Access::Open | Access::Know | Access::Govern => None,
        Access::Inspect => (!is_inspector(role)).then_some("ROLE_DENIED"),
        Access::Read | Access::Report if !is_granted => Some("NAMESPACE_DENIED"),
        Access::Report if role == Role::Reader => Some("ROLE_DENIED"),
        Access::Read | Access::Report => match agent {
            Some("other") => Some("AGENT_DENIED"),
            Some(_) | None => None,
        },
    }
}

fn is_inspector(role: Role) -> bool {
    match role {
        Role::Operator | Role::Admin => true,
        Role::Reader | Role::Reporter => false,
    }
}

#[tokio::test]
async fn every_role_is_let_in_to_what_the_table_says_and_to_nothing_else() {
    let entries: String = ROLES.iter().map(|role| entry(role.name(), &grant("*", role.name(), "\"own\""))).collect();
    let everywhere = Place::start(&entries).await;
    let entries: String =
        ROLES.iter().map(|role| entry(role.name(), &grant("elsewhere", role.name(), "\"own\""))).collect();
    let elsewhere = Place::start(&entries).await;
    let mut calls = 0;
    for (place, is_granted) in [(&everywhere, true), (&elsewhere, false)] {
        let channel = place.channel();
        for role in ROLES {
            for method in methods() {
                let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
                let access = Access::of(&path).expect("every method has a row");
                for agent in [None, Some("own"), Some("other")] {
                    let caller = Caller { agent: agent.map(str::to_owned), ..Caller::of(role.name()) };
                    let answer = call(&channel, &method, caller).await;
                    let denied = answer
                        .as_ref()
                        .err()
                        .filter(|status| matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated));
                    // A grant in one namespace lets nobody look at the process, which serves all.
                    let wanted = match (access, is_granted) {
                        (Access::Inspect, false) => Some("ROLE_DENIED"),
                        (access, is_granted) => expected(access, role, is_granted, agent),
                    };
                    let told = denied.map(reason);
                    assert_eq!(
                        told.as_deref(),
                        wanted,
                        "{role:?} {path} as {agent:?}, granted: {is_granted}: {answer:?}"
                    );
                    calls += 1;
                }
            }
        }
    }
    assert!(calls >= 2 * 4 * 3 * 18, "{calls}");
}

#[tokio::test]
async fn whoever_has_no_credential_or_a_bad_one_is_let_in_to_no_method_of_ours() {
    let place = Place::start(&entry("good", &grant("*", "admin", "\"*\""))).await;
    let channel = place.channel();
    for method in methods() {
        for (caller, told) in [
            (Caller::default(), "CREDENTIAL_MISSING"),
            (Caller::of("bad"), "CREDENTIAL_INVALID"),
            (Caller::of("a.b.c"), "CREDENTIAL_INVALID"),
            (Caller::of("Good"), "CREDENTIAL_INVALID"),
        ] {
            let status = call(&channel, &method, caller.clone()).await.unwrap_err();
            assert_eq!(
                (status.code(), reason(&status).as_str()),
                (Code::Unauthenticated, told),
                "{} {caller:?}",
                method.name()
            );
        }
    }
    place.server.is_ready().await;
}

#[tokio::test]
async fn a_namespace_that_was_not_granted_answers_alike_whether_it_exists_or_not() {
    let place = Place::start(&entry("token", &grant("mine", "admin", "\"*\""))).await;
    let channel = place.channel();
    for method in methods().iter().filter(|method| method.parent_service().name() == "RunService") {
        let ask = async |namespace: &str| {
            let caller = Caller::of("token").within(namespace);
            call(&channel, method, caller).await.unwrap_err()
        };
        let (there, nowhere) = (ask("default").await, ask("nowhere").await);
        assert_eq!(
            (there.code(), there.message(), there.details()),
            (nowhere.code(), nowhere.message(), nowhere.details())
        );
        assert_eq!(reason(&there), "NAMESPACE_DENIED");
    }
}

//! Every role, on every method, in a namespace that was granted and in one that was not, as an agent of the caller's and
//! as another one: what is let in is what the table says, and nothing else.

use runledger::auth::{Access, Role};
use runledger_proto::v1::namespace_service_client::NamespaceServiceClient;
use runledger_proto::v1::{
    CreateNamespaceRequest, DeleteNamespaceRequest, GetNamespaceRequest, ListNamespacesRequest, ListNamespacesResponse,
    NoteExportedRequest, UpdateNamespaceRequest,
};
use tonic::{Code, Status};

use super::callers::{Caller, Place, call, entry, grant, methods, reason};

const ROLES: [Role; 4] = [Role::Reader, Role::Reporter, Role::Operator, Role::Admin];

/// The answer that a caller of a role is to have, or none where it is let in.
fn expected(access: Access, role: Role, is_granted: bool, agent: Option<&str>) -> Option<&'static str> {
    match access {
        // The request names the namespace: see `a_namespace_is_known_and_changed_by_whom_it_was_granted_to`.
        Access::Open | Access::Identify | Access::Know | Access::Settle | Access::Export => None,
        // A grant in one namespace lets nobody look at the process, which serves all, nor make another namespace.
        Access::Inspect => (!is_granted || !is_inspector(role)).then_some("ROLE_DENIED"),
        Access::Govern => (!is_granted || role != Role::Admin).then_some("ROLE_DENIED"),
        Access::Read | Access::Report | Access::Resume | Access::Redact | Access::Declare if !is_granted => {
            Some("NAMESPACE_DENIED")
        }
        Access::Report if role == Role::Reader => Some("ROLE_DENIED"),
        Access::Resume if !is_inspector(role) => Some("ROLE_DENIED"),
        Access::Redact | Access::Declare if role != Role::Admin => Some("ROLE_DENIED"),
        Access::Read | Access::Report | Access::Resume | Access::Redact | Access::Declare => match agent {
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
                let access = runledger_proto::methods::of(&path).expect("every method has a row").access;
                for agent in [None, Some("own"), Some("other")] {
                    let caller = Caller { agent: agent.map(str::to_owned), ..Caller::of(role.name()) };
                    let answer = call(&channel, &method, caller).await;
                    let denied = answer
                        .as_ref()
                        .err()
                        .filter(|status| matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated));
                    let wanted = expected(access, role, is_granted, agent);
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

/// What a call of `NamespaceService` tells.
fn told<T>(answer: Result<T, Status>) -> String {
    answer.map_or_else(|status| reason(&status), |_answer| "OK".to_owned())
}

#[tokio::test]
async fn a_namespace_is_known_and_changed_by_whom_it_was_granted_to() {
    let mut entries = entry("root", &grant("*", "admin", "\"*\""));
    for role in ROLES {
        entries += &entry(role.name(), &grant("own", role.name(), "\"*\""));
    }
    let place = Place::start(&entries).await;
    let client = |token: &str| NamespaceServiceClient::with_interceptor(place.channel(), Caller::of(token));
    let mut root = client("root");
    for name in ["own", "others"] {
        let made = CreateNamespaceRequest { name: name.to_owned(), ..CreateNamespaceRequest::default() };
        assert_eq!(told(root.create_namespace(made).await), "OK");
    }
    for role in ROLES {
        let mut client = client(role.name());
        let is_admin = role == Role::Admin;
        let denied = |is_allowed: bool| if is_allowed { "OK" } else { "ROLE_DENIED" };
        for (name, get, settle) in [
            ("own", "OK", denied(is_admin)),
            ("others", "NAMESPACE_DENIED", "NAMESPACE_DENIED"),
            ("nowhere", "NAMESPACE_DENIED", "NAMESPACE_DENIED"),
            ("default", "NAMESPACE_DENIED", "NAMESPACE_DENIED"),
        ] {
            let named = || name.to_owned();
            assert_eq!(told(client.get_namespace(GetNamespaceRequest { name: named() }).await), get, "{role:?} {name}");
            let described = UpdateNamespaceRequest {
                name: named(),
                description: Some(format!("of {role:?}")),
                ..UpdateNamespaceRequest::default()
            };
            assert_eq!(told(client.update_namespace(described).await), settle, "{role:?} {name}");
            let exported = NoteExportedRequest { name: named(), cursor: "none".to_owned() };
            let noted = match (settle, role) {
                ("NAMESPACE_DENIED", _) => "NAMESPACE_DENIED",
                (_, Role::Operator | Role::Admin) => "CURSOR_INVALID",
                (_, Role::Reader | Role::Reporter) => "ROLE_DENIED",
            };
            assert_eq!(told(client.note_exported(exported).await), noted, "{role:?} {name}");
            // Whoever is bounded by a quota does not set it; nor make or delete what it would hold for.
            for (active, bytes) in [(Some(0), None), (None, Some(0)), (Some(9), Some(9))] {
                let quotas = UpdateNamespaceRequest {
                    name: named(),
                    max_active_runs: active,
                    max_stored_bytes: bytes,
                    ..UpdateNamespaceRequest::default()
                };
                // `default` has no quotas, whoever asks.
                let wanted = match (name, active, settle) {
                    ("default", Some(9), _) => "INVALID_FIELD",
                    (_, _, "OK") => "ROLE_DENIED",
                    (_, _, denied) => denied,
                };
                assert_eq!(told(client.update_namespace(quotas).await), wanted, "{role:?} {name}");
            }
            let made = CreateNamespaceRequest { name: named(), ..CreateNamespaceRequest::default() };
            assert_eq!(told(client.create_namespace(made).await), "ROLE_DENIED", "{role:?} {name}");
            let deleted = DeleteNamespaceRequest { name: named(), ..DeleteNamespaceRequest::default() };
            assert_eq!(told(client.delete_namespace(deleted).await), "ROLE_DENIED", "{role:?} {name}");
        }
        let listed = client.list_namespaces(ListNamespacesRequest::default()).await.unwrap().into_inner();
        assert_eq!(names(&listed), ["own"], "{role:?}");
    }
    let quotas = UpdateNamespaceRequest {
        name: "own".to_owned(),
        max_active_runs: Some(1),
        ..UpdateNamespaceRequest::default()
    };
    assert_eq!(told(root.update_namespace(quotas).await), "OK");
}

fn names(listed: &ListNamespacesResponse) -> Vec<&str> {
    listed.namespaces.iter().map(|namespace| namespace.name.as_str()).collect()
}

#[tokio::test]
async fn the_namespaces_that_were_granted_are_listed_page_by_page_and_no_others() {
    let granted = "{ namespaces = [\"team-*\", \"a\", \"team-b\", \"zoo\", \"gone\"], roles = [\"reader\"] }";
    let place = Place::start(&[entry("root", &grant("*", "admin", "\"*\"")), entry("some", granted)].concat()).await;
    let client = |token: &str| NamespaceServiceClient::with_interceptor(place.channel(), Caller::of(token));
    let mut root = client("root");
    for name in ["a", "b", "team", "team-a", "team-b", "team-c", "teams", "zoo"] {
        let made = CreateNamespaceRequest { name: name.to_owned(), ..CreateNamespaceRequest::default() };
        root.create_namespace(made).await.unwrap();
    }
    for (token, all) in [
        ("some", &["a", "team-a", "team-b", "team-c", "zoo"][..]),
        ("root", &["a", "b", "default", "team", "team-a", "team-b", "team-c", "teams", "zoo"]),
    ] {
        for page_size in 1..=10 {
            let (mut listed, mut page_token) = (Vec::new(), String::new());
            loop {
                let ask = ListNamespacesRequest { page_size, page_token };
                let page = client(token).list_namespaces(ask).await.unwrap().into_inner();
                assert!(page.namespaces.len() <= usize::try_from(page_size).unwrap());
                listed.extend(names(&page).into_iter().map(str::to_owned));
                page_token = page.next_page_token;
                if page_token.is_empty() {
                    break;
                }
            }
            assert_eq!(listed, all, "{token}, {page_size} a page");
        }
    }
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

//! A ledger in a schema of the database where the role does not look: it is found and named, and no other one is made beside
//! it unless that is asked for.

use super::server::{Process, SOON, Server, run};
use crate::support::postgres::{Database, direct};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_in_another_schema_is_named_and_none_is_made_beside_it_unless_asked_for() {
    let database = Database::fresh().await;
    let owner = direct(&database.dsn()).await;
    let role = format!("other_{}", database.name());
    owner
        .batch_execute(&format!(
            "create schema own; create role {role} login password 'x'; grant create, usage on schema public to {role}"
        ))
        .await
        .unwrap();
    let dsn = |options: &str| {
        format!("{}{}options={options}", database.dsn(), if database.dsn().contains('?') { "&" } else { "?" })
    };
    // A new ledger is told of, by the schema that it is in.
    let server = Server::start(&dsn("-csearch_path%3Down")).await;
    server.is_ready().await;
    server.process.says("a new ledger was created").await;
    let said = server.process.said();
    let line = said.lines().find(|line| line.contains("a new ledger was created")).unwrap();
    assert!(line.contains("INFO") && line.contains("own"), "{said}");
    drop(server);

    let place = database.dsn().rsplit_once('@').unwrap().1.to_owned();
    let store = format!("postgres://{role}:x@{place}");
    let words =
        ["has a ledger in the schema own, and none where the role", "options=-csearch_path%3Down", "--new-ledger"];
    let serve = ["serve", "--listen", "127.0.0.1:0", "--allow-unsafe-store"];
    for (command, wanted) in [(&serve[..], 1), (&["migrate"], 1), (&["migrate", "--dry-run"], 1), (&["verify"], 3)] {
        let (code, said) = run(&[command, &["--store", &store]].concat()).await;
        assert_eq!(code, wanted, "{command:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{command:?}: {said}");
    }
    // The doctor reads the catalogue alone, and has the words of its other findings.
    let (code, said) = run(&["doctor", "--store", &store]).await;
    assert!(code == 1 && said.contains("the database has one in the schema own"), "{code}: {said}");
    let made = owner.query_one("select to_regclass('public.ledger') is not null", &[]).await.unwrap();
    assert!(!made.get::<_, bool>(0), "nothing was made");
    let (code, said) = run(&["verify", "--store", &dsn("-csearch_path%3Down")]).await;
    assert_eq!(code, 0, "the sentence leads to it: {said}");

    let beside = [&serve[..], &["--store", &store, "--new-ledger"]].concat();
    let server = Server::of(Process::spawn(&beside)).await;
    server.is_ready().await;
    server.process.says("a new ledger was created").await;
    drop(server);
    // Once it is there, it is not asked for again.
    let again = [&serve[..], &["--store", &store]].concat();
    let mut server = Server::of(Process::spawn(&again)).await;
    server.is_ready().await;
    server.process.signal("TERM");
    let (_, said) = server.process.exited(SOON).await;
    assert!(!said.contains("a new ledger"), "{said}");
}

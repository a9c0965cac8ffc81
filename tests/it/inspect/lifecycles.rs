//! Ledgers whose runs have lifecycles: sound and exported whole, also where a lifecycle was deleted by hand.

use std::time::Duration;

use runledger_proto::v1::lifecycle_service_client::LifecycleServiceClient;
use runledger_proto::v1::namespace_service_client::NamespaceServiceClient;
use runledger_proto::v1::{CreateNamespaceRequest, GetLifecycleRequest, PutLifecycleRequest};
use tokio::time::sleep;
use tonic::{Request, Status};

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::server::{Server, run};
use crate::support::commands::{abort, complete, start, update};
use crate::support::lifecycles::Standing as _;

on_both_stores! {
    a_ledger_whose_lifecycle_was_deleted_by_hand_is_sound_served_and_exported
    a_purge_leaves_the_version_that_a_kept_run_has_pinned
    a_put_whose_server_is_killed_is_there_whole_or_not_at_all
}

const LETTER: &str = "
name: letter
phases: {draft: {initial: true, next: sent}, sent: {may_complete: true}}
words: [{status: COMPLETED, word: delivered}, {word_from: phase}]
";

async fn fill(ledger: &Ledger) {
    ledger.put(LETTER).await;
    let begun = |run_id| start(run_id).with("letter");
    let sent = |run_id| update(run_id).phase("sent");
    ledger.commit(vec![begun("open"), begun("done"), sent("open"), sent("done"), complete("done")]).await;
}

async fn lines_of(ledger: &Ledger) -> String {
    let (code, said) = ledger.run(&["export"]).await;
    assert_eq!(code, 0, "{said}");
    said.lines().filter(|line| line.starts_with('{')).collect::<Vec<_>>().join("\n")
}

async fn a_ledger_whose_lifecycle_was_deleted_by_hand_is_sound_served_and_exported(ledger: Ledger) {
    fill(&ledger).await;
    let exported = lines_of(&ledger).await;
    assert!(exported.contains("letter@1") && exported.contains("\"delivered\""), "{exported}");
    ledger.data.sql("delete from lifecycles").await;
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(lines_of(&ledger).await, exported);

    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let address = server.address.to_string();
    let asked = async |args: &[&str]| run(&[args, &["--server", &address]].concat()).await;
    let (code, said) = asked(&["run", "get", "open"]).await;
    assert!(code == 0 && said.contains("letter@1") && said.contains("sent"), "{said}");
    let (code, said) = asked(&["run", "update", "open", "--phase", "draft"]).await;
    assert!(code != 0 && said.contains("LIFECYCLE_NOT_FOUND"), "{said}");
    let (code, said) = asked(&["run", "abort", "open"]).await;
    assert_eq!(code, 0, "{said}");
    let (code, said) = asked(&["lifecycle", "draw", "--run", "open"]).await;
    assert!(code != 0 && said.contains("LIFECYCLE_NOT_FOUND"), "{said}");
    drop(server);
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
}

async fn a_purge_leaves_the_version_that_a_kept_run_has_pinned(ledger: Ledger) {
    fill(&ledger).await;
    // A shard's newest event is never purged: others are newer.
    ledger.commit((0..30).map(|nth| start(&format!("later-{nth}"))).collect()).await;
    ledger.data.sql("update namespaces set keep_completed_ms = 1").await;
    let (code, said) = ledger.run(&["retention", "run"]).await;
    assert_eq!(code, 0, "{said}");
    let purged = ledger.data.sql("select run_id from runs where purged_at is not null").await;
    assert_eq!(purged, [[Some("done".to_owned())]]);
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
    ledger.commit(vec![complete("open"), start("next").with("letter@1"), abort("next")]).await;
}

async fn a_put_whose_server_is_killed_is_there_whole_or_not_at_all(ledger: Ledger) {
    let mut cut = 0;
    let mut server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    for delay in [1, 3, 6, 10, 15, 25, 40] {
        // A namespace takes no more than 32 versions a minute.
        let namespace = format!("killed-{delay}");
        let source = |max: u32| format!("name: letter\nphases: {{only: {{initial: true}}}}\nmax_iterations: {max}\n");
        let mut namespaces = NamespaceServiceClient::new(server.wire());
        let make = CreateNamespaceRequest { name: namespace.clone(), ..CreateNamespaceRequest::default() };
        namespaces.create_namespace(make).await.unwrap();
        let mut lifecycles = LifecycleServiceClient::new(server.wire());
        let mut answered = 0;
        let puts = async {
            for max in 1..=30 {
                let mut request = Request::new(PutLifecycleRequest { declaration: source(max) });
                request.metadata_mut().insert("runledger-namespace", namespace.parse().unwrap());
                let put = lifecycles.put_lifecycle(request).await.unwrap().into_inner();
                answered = put.lifecycle.unwrap().version;
                assert_eq!(answered, max);
            }
        };
        tokio::select! {
            () = puts => {}
            () = sleep(Duration::from_millis(delay)) => cut += 1,
        }
        server.process.kill();
        server = Server::start(&ledger.store()).await;
        server.is_ready().await;
        let mut again = LifecycleServiceClient::new(server.wire());
        let mut within = async |name: String| {
            let mut request = Request::new(GetLifecycleRequest { lifecycle: name });
            request.metadata_mut().insert("runledger-namespace", namespace.parse().unwrap());
            Ok::<_, Status>(again.get_lifecycle(request).await?.into_inner().lifecycle.unwrap())
        };
        let newest = within("letter".to_owned()).await;
        assert!(newest.is_ok() || answered == 0, "version {answered} was acknowledged: {newest:?}");
        for version in 1..=answered {
            let stored = within(format!("letter@{version}")).await.unwrap();
            assert_eq!((stored.version, stored.declaration), (version, source(version)));
        }
        // The put that was cut off, sent again, is the next version or was one already.
        let mut request = Request::new(PutLifecycleRequest { declaration: source(answered + 1) });
        request.metadata_mut().insert("runledger-namespace", namespace.parse().unwrap());
        let put = again.put_lifecycle(request).await.unwrap().into_inner();
        assert_eq!(put.lifecycle.unwrap().version, answered + 1);
    }
    assert!(cut > 0, "none was cut off");
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 0, "{said}");
}

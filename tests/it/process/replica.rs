//! A replica's report about itself.

use std::time::Duration;

use runledger_proto::v1::replica_service_client::ReplicaServiceClient;
use runledger_proto::v1::{Disposition, GetReplicaRequest, GetReplicaResponse, ShardQueue};

use super::calls::{Step, ask};
use super::server::{SOON, Server, eventually};
use crate::support::postgres::{Database, direct};

pub(crate) async fn replica(server: &Server) -> GetReplicaResponse {
    let mut client = ReplicaServiceClient::new(server.wire());
    client.get_replica(GetReplicaRequest {}).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_says_what_waits_for_a_head_that_somebody_else_holds() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let idle = replica(&server).await;
    assert_eq!(idle.release, env!("CARGO_PKG_VERSION"));
    assert!(idle.store.starts_with("postgres://") && !idle.store.contains("postgres:postgres"), "{}", idle.store);
    let nothing = |shard| ShardQueue { shard, commands: 0, oldest: None };
    assert_eq!(idle.queues, (0..2).map(nothing).collect::<Vec<_>>());

    let holder = direct(&database.dsn()).await;
    holder.batch_execute("begin; select shard from shards for update").await.unwrap();
    let mut client = server.client();
    let call = ask(&mut client, "run-1", Step::Start, "request");
    let released = async {
        let waits = eventually(SOON, async || {
            let queues = replica(&server).await.queues;
            queues.into_iter().find(|queue| {
                let oldest = queue.oldest.and_then(|oldest| Duration::try_from(oldest).ok());
                queue.commands == 1 && oldest.is_some_and(|oldest| oldest > Duration::from_millis(300))
            })
        });
        assert!(waits.await.is_some(), "the command that waits is shown");
        holder.batch_execute("rollback").await.unwrap();
    };
    let (answer, ()) = tokio::join!(call, released);
    assert_eq!(answer.unwrap(), (Disposition::Applied, 1, 1));
    let over = eventually(SOON, async || (replica(&server).await.queues == idle.queues).then_some(()));
    assert!(over.await.is_some(), "nothing waits any more");
}

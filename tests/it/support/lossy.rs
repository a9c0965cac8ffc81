//! A way to a server on which an answer is lost.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use runledger_proto::v1::run_service_client::RunServiceClient;
use runledger_proto::v1::{GetRunRequest, Run, RunStatus};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::server::{Server, channel};

/// Forwards connections to a server. The first one's answer is swallowed, and the connection cut once `came` says that its
/// call has come.
pub(crate) async fn lossy(server: &str, came: impl Future<Output = ()> + Send + 'static) -> (String, JoinSet<()>) {
    lossy_from(server, std::future::ready(()), came).await
}

/// Lets the first connection's answers through until `begins` ends; from then on like [`lossy`].
pub(crate) async fn lossy_from(
    server: &str,
    begins: impl Future<Output = ()> + Send + 'static,
    came: impl Future<Output = ()> + Send + 'static,
) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let target = server.to_owned();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let (mut caller, caller_writes) = listener.accept().await.unwrap().0.into_split();
        let (mut answers, mut calls) = TcpStream::connect(&target).await.unwrap().into_split();
        let forward = async {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = caller.read(&mut bytes).await {
                calls.write_all(&bytes[..read]).await.unwrap();
            }
        };
        let (mut hear, mut bytes) = (caller_writes, [0; 4096]);
        let swallow = async {
            // The server's first word is let through: no call comes before it.
            let first = answers.read(&mut bytes).await.unwrap();
            hear.write_all(&bytes[..first]).await.unwrap();
            let mut begins = pin!(begins);
            loop {
                tokio::select! {
                    biased;
                    () = begins.as_mut() => break,
                    read = answers.read(&mut bytes) => match read {
                        Ok(read @ 1..) => hear.write_all(&bytes[..read]).await.unwrap(),
                        _ended => return,
                    },
                }
            }
            while answers.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        };
        tokio::select! { () = forward => {}, () = swallow => {}, () = came => {} }
        drop((caller, hear, answers, calls));
        while let Ok((mut caller, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&target).await.unwrap();
            let _gone = copy_bidirectional(&mut caller, &mut server).await;
        }
    });
    (address, task)
}

/// Forwards connections to a server, and counts them.
pub(crate) async fn counted(server: &str) -> (String, Arc<AtomicUsize>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, target) = (listener.local_addr().unwrap().to_string(), server.to_owned());
    let (count, mut task) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    let accepted = count.clone();
    task.spawn(async move {
        let mut forwards = JoinSet::new();
        while let Ok((mut caller, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::Relaxed);
            let mut server = TcpStream::connect(&target).await.unwrap();
            forwards.spawn(async move { copy_bidirectional(&mut caller, &mut server).await });
        }
    });
    (address, count, task)
}

/// Ends once a run is so, as the server shows it.
pub(crate) fn is(server: &Server, run_id: &'static str, so: fn(Run) -> bool) -> impl Future<Output = ()> + use<> {
    let address = server.address().to_owned();
    async move {
        let mut client = RunServiceClient::new(channel(&address).await);
        let asked = GetRunRequest { run_id: run_id.to_owned(), ..GetRunRequest::default() };
        while !client.get_run(asked.clone()).await.is_ok_and(|answer| answer.into_inner().run.is_some_and(so)) {
            tokio::task::yield_now().await;
        }
    }
}

/// Ends once a run is running.
pub(crate) fn is_running(server: &Server, run_id: &'static str) -> impl Future<Output = ()> + use<> {
    is(server, run_id, |run| run.status() == RunStatus::Running)
}

//! Which calls wait for a turn, while lists of others have all of them: those that a few bytes make the store work for.

use std::sync::atomic::Ordering;

use futures_util::future::{FutureExt as _, LocalBoxFuture, join_all};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use runledger::auth::{Caller, Rights};
use runledger::authority::{Call, Until};
use runledger::domain::{Agents, Principal};
use runledger::fairness::CallerKey;
use runledger_proto::v1;
use tokio::task::yield_now;

use super::checkpoints::Process;
use super::probes::backend;

fn call<M>(connection: u64, message: M) -> Call<M> {
    let caller = Caller {
        namespace: "default".into(),
        principal: Principal::anonymous(),
        agents: Agents::All,
        rights: Rights::all(),
    };
    Call { caller, key: CallerKey::new(connection, None), until: Until::never(), trace: None, message }
}

fn keys(count: u32) -> Struct {
    let value = |nth| (format!("k{nth}"), Value { kind: Some(Kind::NumberValue(f64::from(nth))) });
    Struct { fields: (0..count).map(value).collect() }
}

fn many_keys(run_id: &str, count: u32) -> v1::UpdateRunRequest {
    v1::UpdateRunRequest { run_id: run_id.to_owned(), metadata: Some(keys(count)), ..Default::default() }
}

#[tokio::test]
async fn whatever_a_few_bytes_make_large_waits_for_a_turn_and_all_else_does_not() {
    let process = Process::start().await;
    let authority = &backend(&process);
    let run_id = || "run-1".to_owned();
    let task_thread_id = "thread".to_owned();
    let start = v1::StartRunRequest { run_id: run_id(), task_thread_id, input: Some(keys(3)), ..Default::default() };
    authority.start_run(call(1, start)).await.unwrap();
    for (name, masks) in [("masks", "redact_keys: ['*key*']"), ("plain", "")] {
        let declaration = format!("name: {name}\nphases: {{any: {{initial: true}}}}\n{masks}\n");
        authority.put_lifecycle(call(1, v1::PutLifecycleRequest { declaration })).await.unwrap();
        let (run_id, task_thread_id) = (name.to_owned(), "thread".to_owned());
        let start = v1::StartRunRequest { run_id, task_thread_id, lifecycle: name.to_owned(), ..Default::default() };
        authority.start_run(call(1, start)).await.unwrap();
    }
    let link = v1::Link { rel: "url".to_owned(), target: "there".to_owned(), ..v1::Link::default() };
    let update = v1::UpdateRunRequest { run_id: run_id(), links: vec![link], ..Default::default() };
    authority.update_run(call(1, update)).await.unwrap();
    process.store.slow_ms.store(60_000, Ordering::Relaxed);
    let others = (2..=3).map(|connection| authority.list_runs(call(connection, v1::ListRunsRequest::default())));
    let mut others = std::pin::pin!(join_all(others));
    while process.store.lists.load(Ordering::Relaxed) < 2 {
        assert!((&mut others).now_or_never().is_none());
        yield_now().await;
    }
    let mut asked: Vec<LocalBoxFuture<'_, (&str, bool, String)>> = Vec::new();
    macro_rules! ask {
        ($($waits:literal $call:ident($request:expr);)*) => {$(
            let answer = authority.$call(call(1, $request));
            let word = async { answer.await.map_or_else(|problem| format!("{problem:?}"), |_| "OK".to_owned()) };
            asked.push(word.map(|word| (stringify!($call($request)), $waits, word)).boxed_local());
        )*};
    }
    let whole = v1::GetRunRequest { run_id: run_id(), view: Some(v1::RunView::Whole.into()), ..Default::default() };
    let redact = v1::RedactRunRequest { run_id: run_id(), paths: vec!["/reason".to_owned()], ..Default::default() };
    let check = v1::CheckTransitionRequest {
        run_id: run_id(),
        to: v1::RunStatus::Completed.into(),
        ..v1::CheckTransitionRequest::default()
    };
    ask! {
        true get_run(whole);
        true list_links(v1::ListLinksRequest { run_id: run_id(), ..Default::default() });
        true list_run_events(v1::ListRunEventsRequest { run_id: run_id(), ..Default::default() });
        true count_runs(v1::CountRunsRequest::default());
        true list_namespaces(v1::ListNamespacesRequest::default());
        true list_lifecycles(v1::ListLifecyclesRequest::default());
        true get_lifecycle(v1::GetLifecycleRequest { lifecycle: "no-such".to_owned() });
        true redact_run(redact);
        true update_run(many_keys("masks", 300));
        false update_run(many_keys("masks", 200));
        false update_run(many_keys("plain", 300));
        false update_run(many_keys("run-1", 300));
        false get_run(v1::GetRunRequest { run_id: run_id(), ..Default::default() });
        false check_transition(check);
        false get_namespace(v1::GetNamespaceRequest { name: "default".to_owned() });
    }
    let answers = tokio::select! {
        answers = join_all(asked) => answers,
        _ = &mut others => panic!("the others have ended"),
    };
    for (request, waits, answer) in answers {
        assert!(if waits { answer.contains("OVERLOADED") } else { answer == "OK" }, "{request}: {answer}");
    }
}

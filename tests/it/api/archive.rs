//! `ArchiveRun` and `RestoreRun`: a run that has ended leaves the lists and comes back, and is never gone.

use runledger_proto::v1::{
    self, ArchiveRunRequest, ArchivedFilter, CountRunsRequest, Disposition, ListRunsRequest, RestoreRunRequest, Run,
    RunEventType, RunFilter, RunStatus, WatchRunsRequest,
};
use tonic::{Code, Status};

use super::caller::{Caller, fresh, start};
use super::place::Place;
use super::refused::Refused;

fn archive(run_id: &str) -> ArchiveRunRequest {
    ArchiveRunRequest { run_id: run_id.to_owned(), ..ArchiveRunRequest::default() }
}

async fn archived(caller: &Caller, asked: ArchiveRunRequest) -> Result<(Disposition, Run), Status> {
    let answer = caller.grpc.clone().archive_run(caller.request(asked)).await?.into_inner();
    Ok((answer.disposition(), answer.run.unwrap()))
}

async fn restored(caller: &Caller, run_id: &str) -> Result<(Disposition, Run), Status> {
    let asked = RestoreRunRequest { run_id: run_id.to_owned(), ..RestoreRunRequest::default() };
    let answer = caller.grpc.clone().restore_run(caller.request(asked)).await?.into_inner();
    Ok((answer.disposition(), answer.run.unwrap()))
}

/// The runs of a task thread, as a list and a count have them.
async fn listed(caller: &Caller, thread: &str, archived: ArchivedFilter) -> Vec<String> {
    let filter = RunFilter { task_thread_id: thread.to_owned(), archived: archived.into(), ..RunFilter::default() };
    let asked = ListRunsRequest { filter: Some(filter.clone()), ..ListRunsRequest::default() };
    let page = caller.grpc.clone().list_runs(caller.request(asked)).await.unwrap().into_inner();
    let count = caller
        .grpc
        .clone()
        .count_runs(CountRunsRequest { filter: Some(filter), by_phase: false, by_suspension: false })
        .await
        .unwrap()
        .into_inner();
    let ids: Vec<_> = page.runs.into_iter().map(|run| run.run_id).collect();
    assert_eq!(count.counts.iter().map(|count| count.count).sum::<u64>(), ids.len() as u64);
    ids
}

pub(crate) async fn an_archived_run_leaves_the_lists_and_comes_back(place: Place) {
    let caller = place.caller().await;
    let thread = fresh("thread");
    let mut ids = Vec::new();
    for _ in 0..3 {
        let run_id = fresh("archive");
        caller.apply(v1::StartRunRequest { task_thread_id: thread.clone(), ..start(&run_id) }).await;
        ids.insert(0, run_id);
    }
    for run_id in &ids[..2] {
        caller.apply(super::caller::complete(run_id)).await;
    }
    let (disposition, run) = archived(&caller, archive(&ids[0])).await.unwrap();
    assert_eq!((disposition, run.status(), run.revision), (Disposition::Applied, RunStatus::Completed, 3));
    assert_eq!(run.archived_at, run.updated_at);
    assert_eq!(caller.get(&ids[0]).await, run, "it is not gone");
    assert_eq!(listed(&caller, &thread, ArchivedFilter::Unspecified).await, ids[1..]);
    assert_eq!(listed(&caller, &thread, ArchivedFilter::Excluded).await, ids[1..]);
    assert_eq!(listed(&caller, &thread, ArchivedFilter::Included).await, ids);
    assert_eq!(listed(&caller, &thread, ArchivedFilter::Only).await, ids[..1]);
    assert_eq!(archived(&caller, archive(&ids[0])).await.unwrap(), (Disposition::Unchanged, run));
    let (disposition, run) = restored(&place.other().await, &ids[0]).await.unwrap();
    assert_eq!((disposition, run.revision, run.archived_at), (Disposition::Applied, 4, None));
    assert_eq!(listed(&caller, &thread, ArchivedFilter::Unspecified).await, ids);
    assert_eq!(restored(&caller, &ids[0]).await.unwrap(), (Disposition::Unchanged, run));
    assert_eq!(restored(&caller, &ids[2]).await.unwrap().0, Disposition::Unchanged, "it is running");
}

pub(crate) async fn only_a_run_that_has_ended_is_archived_by_its_owner(place: Place) {
    let caller = place.caller().await;
    for status in [RunStatus::Pending, RunStatus::Running] {
        let run = caller.run_in(status).await;
        let refused = Refused::from(archived(&caller, archive(&run.run_id)).await.unwrap_err());
        assert_eq!((refused.code, refused.reason.as_str()), (Code::FailedPrecondition, "RUN_NOT_TERMINAL"));
    }
    let unknown = Refused::from(archived(&caller, archive("nobody")).await.unwrap_err());
    assert_eq!(unknown.reason, "RUN_NOT_FOUND");
    let wrong = ArchiveRunRequest { run_id: "no/id".to_owned(), request_id: "x".repeat(129), ..archive("") };
    let mut fields = Refused::from(archived(&caller, wrong).await.unwrap_err()).fields();
    fields.sort();
    assert_eq!(fields, ["request_id", "run_id"]);
    let run = caller.agent("owner").run_in(RunStatus::Failed).await;
    let stranger = Refused::from(archived(&caller.agent("other"), archive(&run.run_id)).await.unwrap_err());
    assert_eq!(stranger.reason, "NOT_OWNER");
    let stale = ArchiveRunRequest { expected_revision: Some(1), ..archive(&run.run_id) };
    assert_eq!(Refused::from(archived(&caller, stale).await.unwrap_err()).reason, "REVISION_MISMATCH");
    let asked = ArchiveRunRequest { request_id: "once".to_owned(), ..archive(&run.run_id) };
    let first = archived(&caller, asked.clone()).await.unwrap();
    assert_eq!(first.0, Disposition::Applied);
    assert_eq!(archived(&caller, asked).await.unwrap(), (Disposition::Replayed, first.1));
}

pub(crate) async fn watches_show_what_becomes_of_an_archived_run(place: Place) {
    let caller = place.caller().await;
    let mut all = caller.grpc.clone().watch_runs(WatchRunsRequest::default()).await.unwrap().into_inner();
    let run = caller.run_in(RunStatus::Completed).await;
    let (_, hidden) = archived(&caller, archive(&run.run_id)).await.unwrap();
    let (_, shown) = restored(&caller, &run.run_id).await.unwrap();
    let (_, last) = archived(&caller, archive(&run.run_id)).await.unwrap();
    let types = [
        RunEventType::Created,
        RunEventType::Completed,
        RunEventType::Archived,
        RunEventType::Restored,
        RunEventType::Archived,
    ];
    let history = caller.events(&run.run_id).await;
    assert_eq!(history.iter().map(v1::RunEvent::r#type).collect::<Vec<_>>(), types);
    assert!(history[2..].iter().all(|event| event.from() == RunStatus::Completed && event.to() == event.from()));
    for after in 0..=5 {
        let mut watch = place.other().await.watch(&run.run_id, Some(after)).await;
        for revision in after + 1..=5 {
            assert_eq!(watch.change().await.run.unwrap().revision, revision);
        }
        assert_eq!(watch.end().await, last, "the end stays last");
    }
    let mut seen = Vec::new();
    while seen.len() < types.len() {
        use v1::watch_runs_response::Frame;
        if let Frame::Change(change) = all.message().await.unwrap().unwrap().frame.unwrap()
            && change.event.as_ref().unwrap().run_id == run.run_id
        {
            seen.push(change.run.unwrap());
        }
    }
    assert_eq!(seen[2..], [hidden, shown, last]);
}

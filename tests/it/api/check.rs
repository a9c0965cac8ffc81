//! `CheckTransition`: the matrix, and what the RPC would answer.

use runledger_proto::v1::{CheckTransitionRequest, CheckTransitionResponse, Disposition, RunStatus, StartRunRequest};

use super::caller::{Ask, STATUSES, complete, fresh, start};
use super::place::Place;
use super::refused::Refused;

fn allowed(from: RunStatus, to: RunStatus) -> bool {
    use RunStatus::{Aborted, Completed, Failed, Pending, Running, Unspecified};
    match from {
        Unspecified => [Pending, Running].contains(&to),
        Pending => [Running, Aborted, Failed].contains(&to),
        Running => [Completed, Aborted, Failed].contains(&to),
        Completed | Aborted | Failed => false,
    }
}

fn to_run(run_id: &str, to: RunStatus) -> CheckTransitionRequest {
    CheckTransitionRequest { run_id: run_id.into(), to: to.into(), ..CheckTransitionRequest::default() }
}

/// The ask of [`Ask::each`] that leads to a status.
fn leading_to(run_id: &str, to: RunStatus) -> Ask {
    let [running, pending, _, completed, aborted, failed] = Ask::each(run_id);
    match to {
        RunStatus::Pending => pending,
        RunStatus::Running => running,
        RunStatus::Completed => completed,
        RunStatus::Aborted => aborted,
        RunStatus::Failed => failed,
        RunStatus::Unspecified => panic!("nothing leads there"),
    }
}

/// The call then does what the check says, in both forms.
pub(crate) async fn a_check_says_what_the_call_does(place: Place) {
    let caller = place.caller().await;
    for from in [RunStatus::Unspecified].into_iter().chain(STATUSES) {
        for to in STATUSES {
            let run_id = match from {
                RunStatus::Unspecified => fresh("check"),
                RunStatus::Pending
                | RunStatus::Running
                | RunStatus::Completed
                | RunStatus::Aborted
                | RunStatus::Failed => caller.run_in(from).await.run_id,
            };
            let asked = CheckTransitionRequest {
                from: Some(from.into()),
                to: to.into(),
                run_id: String::new(),
                to_phase: String::new(),
            };
            let by_matrix = caller.check(asked).await.unwrap();
            let by_run = caller.check(to_run(&run_id, to)).await.unwrap();
            assert_eq!(by_matrix, by_run, "{from:?} to {to:?}");
            let (disposition, reason) = match caller.call(leading_to(&run_id, to)).await {
                Ok(done) => (done.disposition, String::new()),
                Err(status) => (Disposition::Unspecified, Refused::from(status).reason),
            };
            let wanted = CheckTransitionResponse {
                allowed: allowed(from, to),
                disposition: disposition.into(),
                reason,
                from: from.into(),
                allowed_phases: Vec::new(),
            };
            assert_eq!(by_run, wanted, "{from:?} to {to:?}");
        }
    }
}

pub(crate) async fn a_check_changes_nothing_and_knows_the_owner(place: Place) {
    let caller = place.caller().await;
    let asked = StartRunRequest { agent_id: "owner".into(), ..start(&fresh("owned")) };
    let run = caller.apply(asked).await;
    for (agent, to, reason) in [
        ("other", RunStatus::Completed, "NOT_OWNER"),
        ("other", RunStatus::Failed, "NOT_OWNER"),
        ("other", RunStatus::Aborted, ""),
        ("owner", RunStatus::Completed, ""),
        ("owner", RunStatus::Failed, ""),
    ] {
        let said = caller.agent(agent).check(to_run(&run.run_id, to)).await.unwrap();
        assert_eq!(
            (said.reason.as_str(), said.allowed, said.from()),
            (reason, true, RunStatus::Running),
            "{agent} {to:?}"
        );
    }
    assert_eq!(
        caller.check(to_run(&run.run_id, RunStatus::Completed)).await.unwrap().disposition(),
        Disposition::Applied
    );
    assert_eq!(caller.get(&run.run_id).await, run);
    caller.apply(complete(&run.run_id)).await;
    let said = caller.agent("other").check(to_run(&run.run_id, RunStatus::Completed)).await.unwrap();
    assert_eq!((said.reason.as_str(), said.allowed), ("NOT_OWNER", false));
}

pub(crate) async fn a_check_is_validated_whole(place: Place) {
    let caller = place.caller().await;
    let fields = async |asked| Refused::from(caller.check(asked).await.unwrap_err()).fields();
    assert_eq!(fields(CheckTransitionRequest::default()).await, ["to", "from", "run_id"]);
    assert_eq!(
        fields(CheckTransitionRequest { from: Some(99), to: -1, run_id: String::new(), to_phase: String::new() }).await,
        ["from", "to"]
    );
    assert_eq!(fields(to_run("a b", RunStatus::Failed)).await, ["run_id"]);
}

/// A `from` that was forgotten must not pass for a run that does not exist.
pub(crate) async fn a_check_is_of_a_status_or_of_a_run(place: Place) {
    let caller = place.caller().await;
    let (to, run_id) = (RunStatus::Running.into(), caller.run_in(RunStatus::Pending).await.run_id);
    for asked in [
        CheckTransitionRequest { from: None, to, run_id: String::new(), to_phase: String::new() },
        CheckTransitionRequest {
            from: Some(RunStatus::Unspecified.into()),
            to,
            run_id: run_id.clone(),
            to_phase: String::new(),
        },
        CheckTransitionRequest {
            from: Some(RunStatus::Pending.into()),
            to,
            run_id: run_id.clone(),
            to_phase: String::new(),
        },
    ] {
        assert_eq!(Refused::from(caller.check(asked).await.unwrap_err()).fields(), ["from", "run_id"]);
    }
    let none = CheckTransitionRequest {
        from: Some(RunStatus::Unspecified.into()),
        to,
        run_id: String::new(),
        to_phase: String::new(),
    };
    assert!(caller.check(none).await.unwrap().allowed);
}

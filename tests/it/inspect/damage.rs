//! All damage is found and named: the table, the key, the expected value and the value found.

use super::ledger::Ledger;
use super::on_both_stores;

/// Damages a sound ledger with runs of every kind, and holds what `verify` says against what it must.
async fn finds(ledger: &Ledger, damage: &[String], wanted: &[&str]) {
    for statement in damage {
        ledger.data.sql(statement).await;
    }
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("NOT SOUND"), "{said}");
    for wanted in wanted {
        assert!(said.contains(wanted), "{wanted:?} is not in:\n{said}");
    }
}

/// Each kind of damage, with what must be said of it.
macro_rules! damages {
    ($($name:ident: |$ledger:ident| $damage:expr => [$($wanted:literal),*];)*) => {
        $(async fn $name($ledger: Ledger) {
            let damage: Vec<String> = $damage.into_iter().map(String::from).collect();
            finds(&$ledger, &damage, &[$($wanted),*]).await;
        })*
        on_both_stores! { filled: $($name)* }
    };
}

damages! {
    a_wrong_status: |l| ["update runs set status = 2 where run_id = 'long'"]
        => ["runs default/long: status: expected 3, found 2", ": 1 difference: "];
    a_row_behind_its_events: |l| ["update runs set revision = 70 where run_id = 'long'"]
        => ["revision: expected 70 at most, as default/long has, found 71"];
    a_row_ahead_of_its_events: |l| ["update runs set revision = 9 where run_id = 'running'"]
        => ["run_events default/running: revision: expected events up to revision 9, found none after 1"];
    a_run_that_is_kept_as_ready_and_is_not: |l|
        ["insert into suspended (shard, namespace, run_id, started_at, ready)
         select shard, namespace, run_id, started_at, true from runs where run_id = 'running'"]
        => ["suspended default/running: row: expected none: the run is not at rest, found one", ": 1 difference: "];
    a_ready_row_of_no_run: |l|
        ["insert into suspended (shard, namespace, run_id, started_at, ready)
         select shard, namespace, 'nobody', started_at, true from runs where run_id = 'running'"]
        => ["suspended default/nobody: row: expected a run of this id, found none"];
    a_changed_input: |l| ["update run_input set content = '{\"order\":8}' where run_id = 'given'"]
        => ["run_input default/given revision 1: sha256: expected ", ": 1 difference: "];
    a_longer_result: |l| ["update run_results set content = '{\"all\":false}' where run_id = 'given' and revision = 3"]
        => ["run_results default/given revision 3: bytes: expected 12, found 13"];
    a_missing_result: |l| ["delete from run_results where run_id = 'given' and revision = 2"]
        => ["run_results default/given revision 2: row: expected one, as the event says, found none", ": 1 difference: "];
    a_result_too_many: |l| [
        "insert into run_results (shard, namespace, run_id, revision, content)
         select shard, namespace, run_id, 1, '{}' from run_input where run_id = 'given'"]
        => ["run_results default/given revision 1: row: expected none: no event says so, found one"];
    a_changed_link: |l| ["update run_links set content = '{\"rel\":\"receipt\",\"target\":\"x\"}' where number = 2"]
        => ["run_links default/given link 2: sha256: expected "];
    a_link_that_could_be_added_again: |l| ["update run_links set link_key = null where number = 2"]
        => ["run_links default/given link 2: link_key: expected the hash of its rel and target, found none",
            ": 1 difference: "];
    a_link_under_a_key_that_is_none: |l| [format!("update run_links set link_key = {} where number = 2", l.bytes("00"))]
        => ["run_links default/given link 2: link_key: expected the hash of its rel and target, found another",
            ": 1 difference: "];
    a_result_ahead_of_its_run: |l| [
        "insert into run_results (shard, namespace, run_id, revision, content)
         select shard, namespace, run_id, 99, '{}' from run_input where run_id = 'given'"]
        => ["run_results default/given revision 99: row: expected none: no event says so, found one"];
    a_revision_that_is_none: |l| ["update run_links set revision = -1 where number = 3"]
        => ["run_links default/given link 3: row: expected none: no event says so, found one",
            "run_links default/given link 3: row: expected one, as the event says, found none"];
    a_missing_link: |l| ["delete from run_links where run_id = 'given' and number = 3"]
        => ["run_links default/given link 3: row: expected one, as the event says, found none"];
    an_input_of_no_run: |l| ["update run_input set run_id = 'ghost' where run_id = 'given'"]
        => ["run_input default/ghost: row: expected a run of this id, found none",
            "run_input default/given revision 1: row: expected one, as the event says, found none"];
    a_wrong_parent: |l| ["update runs set parent_run_id = 'x' where run_id = 'given'"]
        => ["runs default/given: parent_run_id: expected \"long\", found \"x\"", ": 1 difference: "];
    a_wrong_start: |l| [format!("update runs set {} where run_id = 'failed'", l.an_hour_earlier("started_at"))]
        => ["runs default/failed: started_at: expected 20"];
    a_wrong_task_thread: |l| ["update runs set task_thread_id = 'x' where run_id = 'failed'"]
        => ["runs default/failed: task_thread_id: expected \"thread-2\", found \"x\""];
    a_wrong_owner: |l| ["update runs set agent_id = null where run_id = 'running'"]
        => ["runs default/running: agent_id: expected \"agent-1\", found nothing"];
    a_wrong_workflow: |l| ["update runs set workflow_id = 'x' where run_id = 'running'"]
        => ["runs default/running: workflow_id: expected \"workflow-1\", found \"x\""];
    a_wrong_audit_session: |l| ["update runs set audit_session_id = 'x' where run_id = 'linked'"]
        => ["runs default/linked: audit_session_id: expected \"audit-1\", found \"x\""];
    a_wrong_route: |l| ["update runs set route = 'cli' where run_id = 'running'"]
        => ["runs default/running: route: expected \"mcp\", found \"cli\""];
    wrong_labels: |l| ["update runs set labels = '{\"color\": \"blue\"}' where run_id = 'running'"]
        => ["runs default/running: labels: expected {\"color\": \"red\"}, found {\"color\": \"blue\"}"];
    labels_that_cannot_be_read: |l| ["update runs set labels = '[1]' where run_id = 'running'"]
        => ["runs default/running: labels: expected something readable"];
    a_wrong_record: |l| [format!("update runs set {} where run_id = 'failed'", l.with("record", &["failureReason"], "\"x\""))]
        => ["runs default/failed: record.failureReason: expected \"it broke\", found \"x\"", ": 1 difference: "];
    wrong_metadata: |l| ["update runs set metadata = '{\"step\": 7}' where run_id = 'long'"]
        => ["runs default/long: metadata: expected {\"step\":69}, found {\"step\":7}"];
    a_record_that_cannot_be_read: |l| ["update runs set record = '[]' where run_id = 'long'"]
        => ["runs default/long: record: expected something readable, found "];
    a_missing_event: |l| ["delete from run_events where run_id = 'long' and revision = 5"]
        => ["run_events default/long: revision: expected 5, found 6", ": position: expected "];
    a_missing_first_event: |l| ["delete from run_events where run_id = 'linked' and revision = 1"]
        => ["run_events default/linked: revision: expected 1, found 2"];
    a_missing_last_event: |l| ["delete from run_events where run_id = 'long' and revision = 71"]
        => ["run_events default/long: revision: expected events up to revision 71, found none after 70"];
    a_wrong_event: |l| [format!("update run_events set {} where run_id = 'failed' and revision = 2",
                                l.with("event", &["from"], "\"pending\""))]
        => ["run_events default/failed revision 2: event.from: expected Running, found Pending"];
    an_impossible_transition: |l| [format!("update run_events set {} where run_id = 'failed' and revision = 2",
                                           l.with("event", &["to"], "\"pending\""))]
        => ["run_events default/failed revision 2: event.to: expected what may follow running, found pending"];
    an_event_that_cannot_be_read: |l| ["update run_events set event = '[]' where run_id = 'long' and revision = 40"]
        => ["run_events default/long: event: expected something readable"];
    a_time_that_falls: |l| [format!("update run_events set {} where run_id = 'long' and revision = 40",
                                    l.an_hour_earlier("at"))]
        => [": at: expected 20", "Z or later, found 20"];
    a_wrong_request_key: |l| ["update run_events set request_key = 7 where run_id = 'long' and revision = 3"]
        => ["run_events default/long revision 3: request_key: expected "];
    a_missing_request_digest: |l| ["update run_events set request_digest = null where run_id = 'long' and revision = 3"]
        => ["run_events default/long revision 3: request_digest: expected \"32 bytes\", found nothing"];
    a_missing_keyframe: |l| ["update run_events set keyframe = null where run_id = 'long' and revision = 64"]
        => ["run_events default/long revision 64: keyframe: expected the whole run, found nothing"];
    a_keyframe_out_of_place: |l| [
        "update run_events set keyframe = (select keyframe from run_events where run_id = 'long' and revision = 32)
         where run_id = 'long' and revision = 33"]
        => ["run_events default/long revision 33: keyframe: expected nothing, found a run"];
    a_wrong_keyframe: |l| [format!("update run_events set {} where run_id = 'long' and revision = 32",
                                   l.with("keyframe", &["run", "taskThreadId"], "\"x\""))]
        => ["run_events default/long revision 32: keyframe.taskThreadId: expected \"thread-1\", found \"x\""];
    a_missing_active_run: |l| ["delete from active where run_id = 'running'"]
        => ["active default/running: row: expected one: the run is running, found none"];
    an_active_run_that_has_ended: |l| [
        "insert into active (shard, namespace, run_id, started_at, status)
         select shard, namespace, run_id, started_at, 2 from runs where run_id = 'failed'"]
        => ["active default/failed: row: expected none: the run is failed, found one"];
    an_active_run_of_another_status: |l| ["update active set status = 2 where run_id = 'pending'"]
        => ["active default/pending: status: expected 1, found 2"];
    an_active_run_of_another_start: |l| [format!("update active set {} where run_id = 'pending'", l.an_hour_earlier("started_at"))]
        => ["active default/pending: started_at: expected 20"];
    an_active_run_that_is_none: |l| ["update active set run_id = 'ghost' where run_id = 'pending'"]
        => ["active default/ghost: row: expected a run of this id, found none"];
    a_lease_of_a_run_that_has_none: |l| [
        "insert into leases (shard, namespace, run_id, epoch, ttl_ms, expires_at, released)
         select shard, namespace, run_id, 7, 1000, started_at, false from runs where run_id = 'running'"]
        => ["leases default/running: row: expected none: nobody holds the run, found one of epoch 7"];
    a_lease_of_no_run: |l| [
        "insert into leases (shard, namespace, run_id, epoch, ttl_ms, expires_at, released)
         select shard, namespace, 'ghost', 1, 1000, started_at, false from runs where run_id = 'running'"]
        => ["leases default/ghost: row: expected a run of this id, found none"];
    a_due_time_that_nobody_set: |l| ["update active set due_at = started_at where run_id = 'running'"]
        => ["active default/running: due_at: expected nothing, found \"20"];
    events_without_a_run: |l| ["delete from runs where run_id = 'failed'"]
        => [": run_id: expected an event of a run, found no run default/failed"];
    a_run_without_events: |l| ["delete from run_events where run_id = 'pending'"]
        => ["run_events default/pending: revision: expected events up to revision 1, found none after 0"];
    a_run_in_another_shard: |l| ["update runs set shard = (shard + 1) % 3 where run_id = 'failed'"]
        => ["runs default/failed: shard: expected "];
    an_event_in_another_shard: |l| [
        "update run_events set shard = (shard + 1) % 3, position = 999 where run_id = 'failed' and revision = 2"]
        => ["position 999: shard: expected ", "position 999: position: expected "];
    a_row_in_no_shard: |l| ["update active set shard = 9 where run_id = 'pending'"]
        => ["active shard 9: shard: expected 0 to 2, found 9"];
    a_missing_shard: |l| ["delete from shards where shard = 0"]
        => ["shards all: shard: expected [0, 1, 2], found [1, 2]"];
    more_differences_than_are_printed: |l| ["update run_events set request_digest = null",
                                            "update run_events set request_key = 7"]
        => ["and 57 more", ": 157 differences"];
}

//! SQL that both databases take.
//!
//! A statement that is the same for both is written once, beside the reader of its rows, with `$1`, `$2` and so on.
//! SQLite takes these for names, and numbers names in the order in which they first occur: so the parameters of such
//! a statement occur in their order. A statement that one database would walk another way, or that Postgres alone is
//! sent for many runs at once, is written for each.

/// The select list of a run, of the table `runs` as `r`. Postgres keeps documents in a form of its own. `basic`:
/// without metadata, which may be large.
macro_rules! run_columns {
    (postgres) => {
        $crate::store::dialect::run_columns!(all "::text as labels", "::text as record", "r.metadata::text as metadata")
    };
    (postgres basic) => {
        $crate::store::dialect::run_columns!(all "::text as labels", "::text as record", "null::text as metadata")
    };
    (sqlite) => {
        $crate::store::dialect::run_columns!(all "", "", "r.metadata")
    };
    (sqlite basic) => {
        $crate::store::dialect::run_columns!(all "", "", "null as metadata")
    };
    (all $labels:literal, $record:literal, $metadata:literal) => {
        concat!(
            "r.namespace, r.run_id, r.revision, r.status, r.started_at, r.task_thread_id, r.agent_id, r.workflow_id,
       r.audit_session_id, r.route, r.labels",
            $labels,
            ", r.record",
            $record,
            ", ",
            $metadata,
            ", r.archived_at, r.purged_at"
        )
    };
}
pub(super) use run_columns;

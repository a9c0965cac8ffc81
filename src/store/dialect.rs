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

/// The bytes of what stands beside a run by an event, of the table `run_events` as `e`.
macro_rules! content_bytes {
    () => {
        "(select cast(coalesce(sum(octet_length(c.content)), 0) as bigint)
            from (select content from run_input
                   where shard = e.shard and namespace = e.namespace and run_id = e.run_id and revision = e.revision
                  union all
                  select content from run_results
                   where shard = e.shard and namespace = e.namespace and run_id = e.run_id and revision = e.revision
                  union all
                  select content from run_links
                   where shard = e.shard and namespace = e.namespace and run_id = e.run_id and revision = e.revision) as c)"
    };
}
pub(super) use content_bytes;

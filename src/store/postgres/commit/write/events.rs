//! The events of a commit, in the log.

use tokio_postgres::types::Json;

use crate::domain::NewEvent;
use crate::domain::ids::request_key;
use crate::store::json::Keyframe;
use crate::store::postgres::parts::Parts;
use crate::store::postgres::parts::columns::Columns;
use crate::store::postgres::rows::{At, bigint};

impl<'a> Parts<'a> {
    pub(super) fn insert_events(&mut self, shard: &str, commit_id: &str, events: &'a [NewEvent]) {
        let mut columns = Columns::of_keys(events.iter().map(|new| &new.event.key));
        columns.add("revision", "bigint", events.iter().map(|new| bigint(new.event.revision)));
        columns.add("at", "timestamptz", events.iter().map(|new| At(new.event.at)));
        columns.add("event", "jsonb", events.iter().map(|new| Json(&new.event)));
        let mut more = String::new();
        if events.iter().any(|new| new.request.is_some()) {
            let requests = || events.iter().map(|new| new.request.as_ref());
            columns.add("request_id", "text", requests().map(|request| request.map(|request| request.id.as_str())));
            columns.add(
                "request_digest",
                "bytea",
                requests().map(|request| request.map(|request| request.digest.as_slice())),
            );
            columns.add("request_key", "bigint", events.iter().map(key_of));
            more += ", request_id, request_digest, request_key";
        }
        if events.iter().any(|new| new.keyframe.is_some()) {
            let keyframe = |new: &'a NewEvent| new.keyframe.as_deref().map(|run| Json(Keyframe::new(run)));
            columns.add("keyframe", "jsonb", events.iter().map(keyframe));
            more += ", keyframe";
        }
        self.table("happened", columns);
        let more_of_v = more.replace(", ", ", v.");
        self.writes.push(format!(
            "logged as (
    insert into run_events (shard, commit_id, position, namespace, run_id, revision, at, event{more})
    select {shard}, {commit_id}, place.last + v.n, v.namespace, v.run_id, v.revision, v.at, v.event{more_of_v}
    from place, happened v)"
        ));
    }
}

pub(super) fn key_of(new: &NewEvent) -> Option<i64> {
    new.request.as_ref().map(|request| request_key(&new.event.key, &request.id))
}

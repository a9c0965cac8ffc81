//! The contract's limits, in bytes unless the name says otherwise.

/// `task_thread_id`, `agent_id`, `tab_group_id`, `audit_session_id`, `workflow_id`.
pub const LINK_BYTES_MAX: usize = 256;
/// The `subject` and the `issuer` of an authenticated principal.
pub const SUBJECT_BYTES_MAX: usize = 512;
/// See [`SUBJECT_BYTES_MAX`].
pub const ISSUER_BYTES_MAX: usize = 512;
pub const RUN_ID_BYTES_MAX: usize = 128;
pub const REQUEST_ID_BYTES_MAX: usize = 128;
pub const FAILURE_REASON_BYTES_MAX: usize = 4096;
/// Paths of one redaction.
pub const REDACTED_PATHS_MAX: usize = 32;
/// Bytes of a path of a redaction.
pub const REDACTED_PATH_BYTES_MAX: usize = 512;
/// `failure_reason` as a [`Summary`](super::Summary) shows it.
pub const SUMMARY_REASON_BYTES_MAX: usize = 512;
pub const REASON_CODE_BYTES_MAX: usize = 64;
/// Labels of one run; also keys that one call may remove.
pub const LABELS_MAX: usize = 32;
/// A label's key; at least one byte.
pub const LABEL_KEY_BYTES_MAX: usize = 63;
pub const LABEL_VALUE_BYTES_MAX: usize = 256;
/// Statuses that a filter names, repeated ones included.
pub const STATUSES_MAX: usize = 32;
/// A run's metadata as compact JSON, after a merge.
pub const METADATA_BYTES_MAX: usize = 65_536;
/// A merge patch as compact JSON: it may name every old key to delete it, and bring as much anew.
pub const METADATA_PATCH_BYTES_MAX: usize = 2 * METADATA_BYTES_MAX;
/// Nested objects and lists in metadata; the metadata object is the first.
pub const METADATA_DEPTH_MAX: usize = 32;
/// Keys at all levels of the metadata of a call, of an input or of a result.
pub const METADATA_KEYS_MAX: usize = 16_384;
/// Metadata, an input or a result as they were sent, as compact JSON: a lifecycle may mask a part of it.
pub const UNMASKED_BYTES_MAX: usize = 262_144;
/// An input or a result, as compact JSON.
pub const CONTENT_BYTES_MAX: usize = 65_536;
/// The metadata patch, input and result of one call together, as compact JSON.
pub const CALL_CONTENTS_BYTES_MAX: usize = 131_072;
/// The metadata patch, input and result of one call together, as they come on the wire, for each byte that they may have
/// as JSON: a number takes 5.5 times as much in a Struct as in JSON.
pub const CALL_CONTENTS_WIRE_FACTOR: usize = 6;
/// Links of one run, with those of a late report.
pub const LINKS_MAX: usize = 64;
/// A link's `rel`; at least one byte.
pub const LINK_REL_BYTES_MAX: usize = 64;
/// A link's `target`; at least one byte.
pub const LINK_TARGET_BYTES_MAX: usize = 1024;
pub const LINK_MEDIA_TYPE_BYTES_MAX: usize = 128;
pub const LINK_SUMMARY_BYTES_MAX: usize = 512;
/// The texts of the links of one call together.
pub const CALL_LINKS_BYTES_MAX: usize = 48 * 1024;
/// The name of a lifecycle, a phase, a budget or a kind of suspension.
pub const LIFECYCLE_NAME_BYTES_MAX: usize = 64;
/// A declaration of a lifecycle, as it is written.
pub const LIFECYCLE_BYTES_MAX: usize = 16 * 1024;
/// Phases of a lifecycle.
pub const PHASES_MAX: usize = 32;
/// Names of lifecycles in a namespace.
pub const LIFECYCLES_MAX: u64 = 200;
pub const LIFECYCLE_VERSIONS_MAX: u32 = 1_000;
/// Versions that are put in a namespace within a minute.
pub const LIFECYCLE_PUTS_MAX: u64 = 32;
/// Phases that a refusal names.
pub const ALLOWED_PHASES_MAX: usize = 16;
/// `reason` of a suspension or a resumption.
pub const SUSPENSION_REASON_BYTES_MAX: usize = 1024;
/// `resume_hint` of a suspension.
pub const RESUME_HINT_BYTES_MAX: usize = 1024;
/// A text in the details of a refusal, if it has no limit of its own.
pub const DETAIL_TEXT_BYTES_MAX: usize = 256;
/// A lease's `lease_ttl` at least, in milliseconds: an ordinary pause would end a shorter lease.
pub const LEASE_TTL_MS_MIN: u64 = 1_000;
/// A lease's `lease_ttl` at most, in milliseconds.
pub const LEASE_TTL_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// `start_timeout`, `run_timeout` and `grace` at most, in milliseconds: a year.
pub const TIMEOUT_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1_000;
/// `max_attempts` at most.
pub const ATTEMPTS_MAX: u32 = 100;
/// `max_running.limit` at most: each claim looks at the runs that count.
pub const MAX_RUNNING_LIMIT_MAX: u32 = 100;
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 256;
/// Events from one keyframe to the next: the state after any event is fewer than this many events away.
pub const KEYFRAME_EVENTS: u64 = 32;
/// A namespace's name.
pub const NAMESPACE_BYTES_MAX: usize = 63;
pub const NAMESPACE_DESCRIPTION_BYTES_MAX: usize = 1024;
/// Namespaces of one ledger, about: creations at the same moment may go above it.
pub const NAMESPACES_MAX: u64 = 10_000;
/// `max_active_runs` at most: a commit that creates a run counts the active ones up to it.
pub const MAX_ACTIVE_RUNS_MAX: u64 = 100_000;
/// `max_stored_bytes` at most: more than any store holds.
pub const MAX_STORED_BYTES_MAX: u64 = 1 << 50;

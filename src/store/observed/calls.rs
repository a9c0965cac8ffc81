//! The methods of a store that ask the database something, and the number of calls of each.

use std::sync::atomic::{AtomicU64, Ordering};

/// Names each method once: as a variant, and as metrics and logs will call it.
macro_rules! calls {
    ($($call:ident: $name:literal,)*) => {
        /// A method of a store that asks the database something.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call {
            $(#[doc = concat!("`", $name, "`.")] $call,)*
        }

        impl Call {
            /// All of the methods.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$call),*];

            /// The method's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$call => $name,)*
                }
            }
        }
    };
}

calls! {
    Commit: "commit",
    Settle: "settle",
    ProbeWrite: "probe_write",
    Ends: "ends",
    Changes: "changes",
    ChangesOf: "changes_of",
    RunEvents: "run_events",
    RevisionsAsOf: "revisions_as_of",
    Forgotten: "forgotten",
    Run: "run",
    Runs: "runs",
    RunsAt: "runs_at",
    Beside: "beside",
    List: "list",
    Count: "count",
    Ready: "ready",
    NextPriority: "next_priority",
    Running: "running",
    WalkedAll: "walked_all",
    Renew: "renew",
    Leases: "leases",
    Overdue: "overdue",
    Claimed: "claimed",
    Namespaces: "namespaces",
    ListNamespaces: "list_namespaces",
    ChangeNamespace: "change_namespace",
    PutLifecycle: "put_lifecycle",
    Lifecycle: "lifecycle",
    Declared: "declared",
    ListLifecycles: "list_lifecycles",
    LifecycleVersions: "lifecycle_versions",
    NoteExported: "note_exported",
    ReplayClaim: "replay_claim",
    StayAlive: "stay_alive",
    Measure: "measure",
    Retentions: "retentions",
    Exported: "exported",
    Walked: "walked",
    Due: "due",
    Purge: "purge",
    Tidy: "tidy",
    Statistics: "statistics",
    LookAtPast: "look_at_past",
    Ping: "ping",
}

/// The number of calls of each method, whatever their results.
#[derive(Debug)]
pub struct Calls([AtomicU64; Call::ALL.len()]);

impl Default for Calls {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Call::ALL.len()])
    }
}

impl Calls {
    pub(super) fn count(&self, call: Call) {
        self.0[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Each method's name, and the number of its calls.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Call::ALL.into_iter().map(|call| (call.name(), self.of(call)))
    }

    /// The number of calls of this method.
    #[must_use]
    pub fn of(&self, call: Call) -> u64 {
        self.0[call as usize].load(Ordering::Relaxed)
    }
}

//! The sides of a decision: rows besides the run that it rests on. A store reads and locks them under the shard's head,
//! and writes them with the events. The store handles each kind alike and knows the meaning of none.
//!
//! A side has a file of its own and a place in `each_side`. The file says on which row a command is decided, how the
//! events of a batch change the rows, and which rows are to be written. A store has a file for it by the same name, and
//! its `mod` line in the store's `sides`: the compiler names what is missing. The list does not make these lines, since
//! `cargo fmt` passes over files that a macro declares.

pub mod claims;
pub mod contents;
pub mod leases;
pub mod lifecycles;
pub mod max_running;
pub mod namespaces;
mod side;
pub mod suspended;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::lifecycles::{Declared, LifecycleFound, LifecycleKey, Lifecycles};
use self::namespaces::NamespaceFound;
pub use self::side::{Applied, Side};
use super::{Ask, Claimed, Command, Hash, HeldLease, Run, RunId, RunWrite, Time};

/// Hands all sides to a macro. In this order a store takes the rows that commits of several shards share, then the rows
/// of the shard, and writes all.
#[doc(hidden)]
#[macro_export]
macro_rules! __each_side {
    ($of:ident) => {
        $of! { leases, suspended, max_running, claims, namespaces, contents }
    };
}
pub use __each_side as each_side;

macro_rules! sides {
    ($($side:ident),+) => {
        /// The keys of the rows that the decisions on some commands may rest on.
        #[derive(Clone, Debug, Default)]
        pub struct Wanted {
            $(
                #[doc = concat!("Of [`", stringify!($side), "`].")]
                pub $side: BTreeSet<<$side::Rows as Side>::Key>,
            )+
            /// The time from which deadlines of people are acted upon.
            pub acts_from: bool,
        }

        impl Wanted {
            /// The rows that are wanted by commands on runs that are not known yet.
            #[must_use]
            pub fn by<'a>(commands: impl IntoIterator<Item = &'a Command>) -> Self {
                let mut wanted = Self::default();
                for command in commands {
                    $(wanted.$side.extend($side::Rows::wanted(command));)+
                    wanted.acts_from |= matches!(command.ask, Ask::Sweep);
                }
                wanted
            }

            /// Whether a command is decided only on its run, and on rows that are new or that a store may remember.
            #[must_use]
            pub fn is_only_the_run(command: &Command, run: Option<&Run>) -> bool {
                !($($side::Rows::is_read_for(command, run))||+)
            }
        }

        /// The rows as they were read, as far as they are there.
        #[derive(Clone, Debug, Default)]
        pub struct Sides {
            $(
                #[doc = concat!("Of [`", stringify!($side), "`].")]
                pub $side: Vec<<$side::Rows as Side>::Row>,
            )+
            /// The lifecycles that were [wanted](lifecycles::wanted), as far as they are there.
            pub lifecycles: Vec<(LifecycleKey, Arc<Declared>)>,
            /// The time from which deadlines of people are acted upon: a while after the authority was last away.
            pub acts_from: Option<Time>,
        }

        /// The rows of the sides to be written, in the order of their keys.
        #[derive(Clone, Debug, Default)]
        pub struct SideWrites {
            $(
                #[doc = concat!("Of [`", stringify!($side), "`].")]
                pub $side: <$side::Rows as Side>::Writes,
            )+
        }

        /// The rows, as the commands of a batch leave them.
        #[derive(Debug)]
        pub(super) struct Batch {
            $($side: $side::Rows,)+
            lifecycles: Lifecycles,
            acts_from: Option<Time>,
        }

        impl Batch {
            pub(super) fn of(sides: Sides) -> Self {
                Self {
                    $($side: $side::Rows::of(sides.$side),)+
                    lifecycles: Lifecycles::of(sides.lifecycles),
                    acts_from: sides.acts_from,
                }
            }

            /// See [`Side::lacks`].
            pub(super) fn lacks(&self, command: &Command, run: Option<&Run>) -> bool {
                $(self.$side.lacks(command, run))||+
            }

            pub(super) fn apply(&mut self, applied: &Applied<'_>) {
                $(self.$side.apply(applied);)+
            }

            pub(super) fn writes(self, runs: &[RunWrite]) -> SideWrites {
                SideWrites { $($side: self.$side.writes(runs),)+ }
            }
        }
    };
}
each_side!(sides);

/// The rows of the sides that one decision rests on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    /// The run's lease as it is kept; none where the command is not decided on it.
    pub lease: Option<HeldLease>,
    /// The runs that count towards the command's [`MaxRunning`](super::MaxRunning).
    pub running: &'a [RunId],
    /// The claim of the command's [claim request](crate::domain::ask::Brought::claim_request).
    pub claimed: Option<&'a Claimed>,
    /// The command's namespace, where it may create a run.
    pub namespace: NamespaceFound<'a>,
    /// The keys of the run's links, where the command adds some.
    pub links: &'a [Hash],
    /// The lifecycle that the run is pinned to, or is to be.
    pub lifecycle: LifecycleFound<'a>,
    /// The time from which deadlines of people are acted upon; none where the command is not decided on it.
    pub acts_from: Option<Time>,
}

impl Batch {
    pub(super) fn found(&self, command: &Command, run: Option<&Run>) -> Found<'_> {
        Found {
            lease: self.leases.row(command),
            running: self.max_running.row(command, run),
            claimed: self.claims.row(command),
            namespace: self.namespaces.row(command),
            links: self.contents.links(command),
            lifecycle: self.lifecycles.row(command, run),
            acts_from: self.acts_from,
        }
    }
}

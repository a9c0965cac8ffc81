//! Callers that share few things: who counts as one caller, and how much each may take while others want some too.
//!
//! [`Shares`] bounds a thing that is taken in parts, such as the places of a queue or its bytes. [`Turns`] lets few use
//! a thing at once, in an order in which a caller that has used much comes after one that has used little. Both count
//! by [`CallerKey`], and by nothing else.

mod shares;
mod turns;

use std::hash::BuildHasher as _;
use std::hash::RandomState;
use std::sync::LazyLock;
use std::time::Duration;

pub use shares::{Share, Shares};
pub use turns::{Turn, Turns};

/// One of the two that a call counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// A connection, by its number.
    Connection(u64),
    /// An agent, by its name.
    Agent(u64),
}

/// The key by which limits count a call: the connection that it came on, and the agent that it names. Callers are not
/// proven, so each of the two is bounded: who names many agents has one connection, and who opens many connections has
/// one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerKey {
    connection: u64,
    agent: Option<u64>,
}

impl CallerKey {
    /// The authority itself, whose commands count as one caller's.
    pub const AUTHORITY: Self = Self { connection: 0, agent: None };

    /// The key of a connection, by its number from 1, and of the agent that a call on it names.
    #[must_use]
    pub fn of(connection: u64, agent: Option<&[u8]>) -> Self {
        // Drawn anew in each process, so that nobody can choose a name that counts as another one.
        static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { connection, agent: agent.map(|agent| NAMES.hash_one(agent)) }
    }

    /// The parties that a call of this caller counts for.
    pub fn parties(self) -> impl Iterator<Item = Party> {
        [Some(Party::Connection(self.connection)), self.agent.map(Party::Agent)].into_iter().flatten()
    }

    /// Whether calls of both count for the same connection or the same agent.
    #[must_use]
    pub fn shares_party(self, other: Self) -> bool {
        self.connection == other.connection || (self.agent.is_some() && self.agent == other.agent)
    }
}

/// The factors of a refused caller's wait, in turn: callers that are refused together come back apart.
pub const SPREAD: [f64; 5] = [0.8, 0.9, 1.0, 1.1, 1.2];

/// A wait, for the caller that is refused as the `nth`.
#[must_use]
pub fn spread(wait: Duration, nth: u64) -> Duration {
    let nth = usize::try_from(nth % SPREAD.len() as u64).expect("less than a length");
    wait.mul_f64(SPREAD[nth])
}

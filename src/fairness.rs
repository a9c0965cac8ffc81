//! Callers that share few things: who counts as one caller, and how much each may take while others want some too.
//!
//! [`Shares`] bounds a thing that is taken in parts, such as the places of a queue or its bytes. [`Turns`] lets few use
//! a thing at once, in an order in which a caller that has used much comes after one that has used little. Both count
//! by [`CallerKey`], and by nothing else.
//!
//! Every queue, page, ring and cache of the process is bounded: in bytes where callers choose the size of an item, and
//! for each caller where callers share it. Invariant: this module has the key by which callers are told apart, and no
//! other module makes one.

mod shares;
mod turns;

use std::hash::RandomState;
use std::hash::{BuildHasher as _, Hash};
use std::sync::LazyLock;
use std::time::Duration;

pub use shares::{Share, Shares};
pub use turns::{Turn, Turns};

/// One of those that a call counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// A connection, by its number.
    Connection(u64),
    /// An agent, by its namespace and its name.
    Agent(u64),
    /// A proven identity, by its issuer and its subject.
    Subject(u64),
    /// A namespace, by its name.
    Namespace(u64),
}

/// The key by which limits count a call. A caller that was proven is its identity, on whatever connections and by
/// whatever names. One that is believed is both the connection that the call came on and the agent that the call names:
/// who names many agents has one connection, and who opens many connections has one name. And what callers of different
/// namespaces share, the namespaces share first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerKey {
    connection: u64,
    agent: Option<u64>,
    subject: Option<u64>,
    namespace: u64,
}

/// Drawn anew in each process, so that nobody can choose a name that counts as another one.
static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl CallerKey {
    /// The authority itself, whose commands count as one caller's.
    pub const AUTHORITY: Self = Self { connection: 0, agent: None, subject: None, namespace: 0 };

    /// The key of a connection, by its number from 1, and of the agent that a call on it names.
    #[must_use]
    pub fn new(connection: u64, agent: Option<&[u8]>) -> Self {
        Self { connection, agent: agent.map(|agent| NAMES.hash_one(agent)), ..Self::AUTHORITY }
    }

    /// The key for calls within a namespace. Agents of one name in two namespaces are two.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        let namespace = NAMES.hash_one(namespace);
        Self { namespace, agent: self.agent.map(|agent| NAMES.hash_one((namespace, agent))), ..self }
    }

    /// The key of a caller whose identity was proven.
    #[must_use]
    pub fn proven(self, identity: &impl Hash) -> Self {
        Self { subject: Some(NAMES.hash_one(identity)), ..self }
    }

    /// The parties of which each is bounded by what one caller may have.
    pub fn parties(self) -> impl Iterator<Item = Party> {
        let [holder, agent] = match self.subject {
            Some(subject) => [Some(Party::Subject(subject)), None],
            None => [Some(self.connection()), self.agent()],
        };
        [holder, agent].into_iter().flatten()
    }

    /// The party that the caller is, whatever it names.
    fn holder(self) -> Party {
        self.subject.map_or(self.connection(), Party::Subject)
    }

    fn connection(self) -> Party {
        Party::Connection(self.connection)
    }

    fn agent(self) -> Option<Party> {
        self.agent.map(Party::Agent)
    }

    fn namespace(self) -> Party {
        Party::Namespace(self.namespace)
    }

    /// Whether calls of both count for the same caller.
    #[must_use]
    pub fn shares_party(self, other: Self) -> bool {
        self.parties().any(|party| other.parties().any(|other| party == other))
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

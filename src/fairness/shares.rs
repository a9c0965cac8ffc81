//! A bounded thing that callers take parts of.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{CallerKey, Party};

/// A thing of which there is so much, in units of the user's choice.
///
/// A caller that is alone may take all of it. While others have some, a caller may take as much as leaves it with half
/// at most. Where all is taken, a caller is still given what an equal share of all would be, or what is granted to each,
/// so that nobody has to wait until one who took everything gives some back. All callers together never have more than
/// [`Shares::max_in_all`].
#[derive(Debug)]
pub struct Shares {
    max: usize,
    granted: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By connection, or by identity where one was proven.
    by_holder: HashMap<Party, usize>,
    /// By the agent that calls name. Those that name none, and those of proven callers, are one entry.
    by_agent: HashMap<Option<Party>, usize>,
    by_namespace: HashMap<Party, usize>,
}

impl Shares {
    /// A thing of `max` units, of which each caller may always take `granted`.
    #[must_use]
    pub fn new(max: usize, granted: usize) -> Arc<Self> {
        Arc::new(Self { max, granted, taken: Mutex::default() })
    }

    /// Takes units for a caller, until the value is dropped; none where that would be too many.
    #[must_use]
    pub fn take(self: &Arc<Self>, caller: CallerKey, units: usize) -> Option<Share> {
        let mut taken = self.taken();
        let Taken { all, by_holder, by_agent, by_namespace } = &mut *taken;
        let (holder, agent, namespace) = (caller.holder(), named(caller), caller.namespace());
        let by_name = agent.is_none() || self.admits(*all, by_agent, &agent, units);
        let is_own = by_name && self.admits(*all, by_holder, &holder, units);
        // A namespace that is alone has everything: its callers share it.
        let is_alone = by_namespace.keys().all(|other| *other == namespace);
        if !is_own || !(is_alone || self.admits(*all, by_namespace, &namespace, units)) {
            return None;
        }
        *all += units;
        *by_holder.entry(holder).or_default() += units;
        *by_agent.entry(agent).or_default() += units;
        *by_namespace.entry(namespace).or_default() += units;
        Some(Share { shares: self.clone(), caller, units })
    }

    /// Whether one of these takers may take so many units more.
    fn admits<K: Eq + std::hash::Hash>(&self, all: usize, takers: &HashMap<K, usize>, taker: &K, units: usize) -> bool {
        let before = takers.get(taker).copied();
        let own = before.unwrap_or(0) + units;
        if own <= self.granted && all + units <= self.max_in_all() {
            return true;
        }
        let (others, takers) = (all + units - own, takers.len() + usize::from(before.is_none()));
        let fits = all + units <= self.max && (others == 0 || own <= self.max / 2);
        fits || (own <= self.max / takers && all + units <= 2 * self.max)
    }

    /// The units that there are.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// The units that all callers together have at most: where some came after one had taken everything, equal shares go
    /// up to twice the thing, and what is granted to each has as much room again.
    #[must_use]
    pub fn max_in_all(&self) -> usize {
        3 * self.max
    }

    /// The units that are taken.
    #[must_use]
    pub fn all(&self) -> usize {
        self.taken().all
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }
}

/// Units that a caller has taken, until the value is dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    caller: CallerKey,
    units: usize,
}

impl Share {
    /// Takes some of the units apart: a share of their own.
    #[must_use]
    pub fn split(&mut self, units: usize) -> Self {
        assert!(units <= self.units, "a share has no more than was taken");
        self.units -= units;
        Self { shares: self.shares.clone(), caller: self.caller, units }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken();
        let Taken { all, by_holder, by_agent, by_namespace } = &mut *taken;
        *all -= self.units;
        give_back(by_holder, &self.caller.holder(), self.units);
        give_back(by_agent, &named(self.caller), self.units);
        give_back(by_namespace, &self.caller.namespace(), self.units);
    }
}

/// The agent for which a caller's share counts beside the caller itself.
fn named(caller: CallerKey) -> Option<Party> {
    caller.agent().filter(|_| caller.subject.is_none())
}

/// Takers that have nothing are forgotten, so that there are never more of them than units.
fn give_back<K: Eq + std::hash::Hash>(takers: &mut HashMap<K, usize>, taker: &K, units: usize) {
    if let Some(taken) = takers.get_mut(taker) {
        *taken -= units;
        if *taken == 0 {
            takers.remove(taker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(number: u64) -> CallerKey {
        CallerKey::new(number, None)
    }

    fn take_all(shares: &Arc<Shares>, caller: CallerKey) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(caller, 1)).collect()
    }

    #[test]
    fn a_caller_that_is_alone_takes_everything_and_the_next_one_still_gets_half() {
        let shares = Shares::new(100, 4);
        let greedy = take_all(&shares, connection(1));
        assert_eq!(greedy.len(), 100);
        let honest = take_all(&shares, connection(2));
        assert_eq!(honest.len(), 50, "an equal share");
        drop(honest);
        drop(greedy);
        assert_eq!(shares.all(), 0);
        let Taken { by_holder, by_agent, by_namespace, .. } = &*shares.taken();
        assert!(by_holder.is_empty() && by_agent.is_empty() && by_namespace.is_empty());
    }

    #[test]
    fn while_others_have_some_a_caller_takes_half_at_most() {
        let shares = Shares::new(100, 4);
        let _other = shares.take(connection(2), 1);
        assert_eq!(take_all(&shares, connection(1)).len(), 50);
    }

    #[test]
    fn an_agent_takes_no_more_on_many_connections_and_a_connection_no_more_by_many_names() {
        let shares = Shares::new(100, 4);
        let _other = shares.take(connection(1_000), 1);
        let agent: Vec<Share> =
            (1..=200).filter_map(|number| shares.take(CallerKey::new(number, Some(b"a")), 1)).collect();
        assert_eq!(agent.len(), 50);
        drop(agent);
        let names = (0..200_u8).filter_map(|name| shares.take(CallerKey::new(7, Some(&[name])), 1)).collect::<Vec<_>>();
        assert_eq!(names.len(), 50);
    }

    #[test]
    fn a_new_caller_gets_what_is_granted_to_each_and_all_together_are_bounded() {
        let shares = Shares::new(100, 4);
        let held: Vec<Vec<Share>> = (1..=25).map(|number| take_all(&shares, connection(number))).collect();
        assert!(held.iter().all(|shares| shares.len() >= 4), "granted");
        let more: Vec<Share> = (1_000..2_000).filter_map(|number| shares.take(connection(number), 4)).collect();
        assert_eq!((shares.all(), shares.max_in_all()), (300, 300), "however many callers come: {} more", more.len());
    }

    #[test]
    fn a_namespace_with_many_callers_takes_half_while_another_one_has_some() {
        let shares = Shares::new(100, 4);
        let of = |number, namespace| connection(number).within(namespace);
        let _other = shares.take(of(1_000, "small"), 1);
        let large = (1..=200).filter_map(|number| shares.take(of(number, "large"), 1)).collect::<Vec<_>>();
        assert_eq!(large.len(), 50);
        assert!(shares.take(of(1_001, "small"), 30).is_some());
    }

    #[test]
    fn a_proven_caller_is_one_on_many_connections_and_several_on_one_connection_are_several() {
        let shares = Shares::new(100, 4);
        let _other = shares.take(connection(1_000), 1);
        let one: Vec<Share> =
            (1..=200).filter_map(|number| shares.take(connection(number).proven(&"one"), 1)).collect();
        assert_eq!(one.len(), 50);
        let another = (0..49).filter_map(|_| shares.take(connection(1).proven(&"another"), 1)).collect::<Vec<_>>();
        assert_eq!(another.len(), 49, "on a connection of the first");
    }

    #[test]
    fn the_parts_of_a_share_are_given_back_each_by_itself() {
        let shares = Shares::new(100, 4);
        let mut whole = shares.take(connection(1), 10).unwrap();
        let part = whole.split(3);
        drop(whole);
        assert_eq!(shares.all(), 3);
        drop(part);
        assert_eq!(shares.all(), 0);
        assert!(shares.taken().by_holder.is_empty());
    }

    #[test]
    fn units_are_counted_and_not_takings() {
        let shares = Shares::new(100, 4);
        let large = shares.take(connection(1), 90);
        assert!(
            large.is_some() && shares.take(connection(1), 11).is_none() && shares.take(connection(1), 10).is_some()
        );
        assert!(shares.take(connection(2), 51).is_none() && shares.take(connection(2), 50).is_some());
    }
}

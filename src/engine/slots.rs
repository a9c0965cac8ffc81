//! The commits that a process has in flight: their largest number, and the time at which another one pays.
//!
//! A commit costs nearly the same whether it carries one command or ten. So a commit that would carry fewer commands
//! than the average of those in flight waits until some of them have ended, while its queue grows, and then begins with
//! any number. With nothing in flight a commit begins at once. No commit waits for a slow or hanging one, since it
//! would share no cost with it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Commits whose ends a small commit awaits at most before it begins.
const ENDS_MAX: usize = 3;

/// The time that a small commit waits for one of these ends.
const END_WAIT_MAX: Duration = Duration::from_millis(5);

/// See the module.
pub(super) struct Slots {
    free: Arc<Semaphore>,
    in_flight: Mutex<InFlight>,
    ended: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    commits: usize,
    commands: usize,
}

impl Slots {
    pub(super) fn new(commits_max: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(commits_max));
        Arc::new(Self { free, in_flight: Mutex::default(), ended: Notify::new() })
    }

    /// Waits until a commit of the queued commands should begin, whose number may grow meanwhile.
    pub(super) async fn begin(self: &Arc<Self>, queued: impl Fn() -> usize) -> Slot {
        for _ in 0..ENDS_MAX {
            // Created before the check below, so that no end in between is missed.
            let ended = self.ended.notified();
            if self.in_flight().is_worth(queued()) {
                break;
            }
            if timeout(END_WAIT_MAX, ended).await.is_err() {
                break;
            }
        }
        let free = self.free.clone().acquire_owned().await.expect("the semaphore is never closed");
        self.in_flight().commits += 1;
        Slot { slots: self.clone(), commands: 0, _free: free }
    }

    fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock()
    }
}

impl InFlight {
    /// Whether another commit of this many commands carries its share.
    fn is_worth(self, queued: usize) -> bool {
        queued * self.commits >= self.commands
    }
}

/// A commit in flight, until the slot is dropped.
pub(super) struct Slot {
    slots: Arc<Slots>,
    commands: usize,
    _free: OwnedSemaphorePermit,
}

impl Slot {
    /// Counts the commands that the commit carries.
    pub(super) fn takes(&mut self, commands: usize) {
        self.commands += commands;
        self.slots.in_flight().commands += commands;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut in_flight = self.slots.in_flight();
        in_flight.commits -= 1;
        in_flight.commands -= self.commands;
        drop(in_flight);
        self.slots.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_commit_that_carries_its_share_begins_at_once_and_a_smaller_one_when_another_has_ended() {
        let slots = Slots::new(4);
        let mut first = slots.begin(|| 1).now_or_never().expect("nothing is in flight");
        first.takes(6);
        let mut second = slots.begin(|| 6).now_or_never().expect("it carries as much");
        second.takes(6);
        let mut third = Box::pin(slots.begin(|| 5));
        assert!(third.as_mut().now_or_never().is_none(), "it would carry less");
        for _ in 1..ENDS_MAX {
            drop(second);
            assert!(third.as_mut().now_or_never().is_none(), "it would still carry less");
            second = slots.begin(|| 6).now_or_never().expect("it carries as much");
            second.takes(6);
        }
        drop(second);
        let third = third.now_or_never().expect("it has waited for long enough");
        drop((first, third));
        assert!(slots.begin(|| 1).now_or_never().is_some(), "nothing is in flight");
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_that_never_ends_holds_up_no_other() {
        let slots = Slots::new(4);
        let mut stuck = slots.begin(|| 9).await;
        stuck.takes(9);
        let begun = tokio::time::Instant::now();
        drop(slots.begin(|| 1).await);
        assert!(begun.elapsed() <= 2 * END_WAIT_MAX, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn there_are_no_more_in_flight_than_the_store_can_take() {
        let slots = Slots::new(1);
        let first = slots.begin(|| 9).await;
        let mut second = Box::pin(slots.begin(|| 9));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.now_or_never().is_some());
    }
}

//! The clock by which credentials end, and the looks at it. On Postgres the database's clock is the witness of a step.

use std::sync::Arc;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::authority::AuthoritySlot;
use crate::clock::{Clock, CredentialClock, SystemClock};
use crate::tasks::Supervisor;

/// A clock that begins now, and is looked at until the stop.
pub(super) fn clock(slot: AuthoritySlot, supervisor: &Supervisor) -> Arc<dyn Clock> {
    let clock = Arc::new(CredentialClock::beside(SystemClock));
    supervisor.vital("clock", follow(clock.clone(), slot, supervisor.stop()));
    clock
}

async fn follow(clock: Arc<CredentialClock<SystemClock>>, slot: AuthoritySlot, stop: CancellationToken) {
    let mut due = interval(CredentialClock::<SystemClock>::LOOK_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _at = due.tick() => {}
        }
        let ahead = slot.get().and_then(|backend| backend.store.clocks().server_ahead_micros);
        clock.look(ahead.map(|ahead| SystemClock.now().plus_micros(ahead.saturating_neg())));
    }
}

//! The rule of `max_running`: whether a claim, or a resumption under a lease, finds room.

use crate::domain::context::Context;
use crate::domain::{LabelValue, MaxRunning, Refusal, Run, RunId};

/// Refuses a claim where as many runs with the same value of a label are running as it allows.
pub(super) fn leaves_room(run: &Run, max: Option<&MaxRunning>, context: &Context<'_>) -> Result<(), Refusal> {
    let Some(max) = max else { return Ok(()) };
    let Some(LabelValue { value, .. }) = LabelValue::new(run, &max.label) else { return Ok(()) };
    // A run that kept its slot takes no other one.
    let mut running: Vec<RunId> = context.sides.running.iter().filter(|other| **other != run.run_id).cloned().collect();
    let room = u32::try_from(running.len()).is_ok_and(|running| running < max.limit);
    if room {
        return Ok(());
    }
    running.sort_unstable();
    Err(Refusal::MaxRunning { max: max.clone(), value, running, run: run.summary() })
}

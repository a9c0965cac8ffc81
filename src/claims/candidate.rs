//! A run that one claimer was given, and what becomes of it.

use std::sync::Arc;

use super::candidates::Lane;
use super::queue::Queue;
use super::state::Wake;
use crate::store::query::Place;

/// See the module. Dropped undecided, it goes back to where it was.
pub(super) struct Candidate<'a> {
    queue: &'a Queue,
    taken: Option<(Place, Arc<Lane>)>,
}

impl<'a> Candidate<'a> {
    pub(super) fn new(queue: &'a Queue, place: Place, lane: Arc<Lane>) -> Self {
        Self { queue, taken: Some((place, lane)) }
    }

    pub(super) fn run_id(&self) -> &str {
        self.taken.as_ref().map_or("", |(place, _)| place.run_id.as_str())
    }

    /// This claimer has it.
    pub(super) fn claimed(mut self) {
        if let Some((place, _)) = self.taken.take() {
            self.queue.state().decided(&place);
        }
    }

    /// Somebody else had it before.
    pub(super) fn lost(mut self) {
        if let Some((place, _)) = self.taken.take() {
            let wake = self.queue.state().lost(&place);
            self.queue.wake(wake);
        }
    }

    /// It was refused because these run. Whether it waits for their end, back where it was; else it is to be tried again.
    pub(super) fn waits_for(&mut self, running: &[String]) -> bool {
        let Some((place, lane)) = &self.taken else { return true };
        let mut state = self.queue.state();
        if state.is_refused_in_vain(place, lane, running) {
            return false;
        }
        if let Some((place, lane)) = self.taken.take() {
            state.put_back(place, &lane);
        }
        true
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        if let Some((place, lane)) = self.taken.take() {
            self.queue.state().put_back(place, &lane);
            self.queue.wake(Wake::All);
        }
    }
}

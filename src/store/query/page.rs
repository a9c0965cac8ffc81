//! The end of a page of a list.

use std::ops::ControlFlow;

use super::Place;

/// A page that a walk is filling, with the values that will be its runs.
pub(in crate::store) struct Filling<T> {
    limit: usize,
    bytes_max: usize,
    bytes: usize,
    last_shown: Option<Place>,
    pub(in crate::store) runs: Vec<T>,
    /// See [`RunPage::next`](super::RunPage::next).
    pub(in crate::store) next: Option<Place>,
}

impl<T> Filling<T> {
    pub(in crate::store) fn new(limit: usize, bytes_max: usize) -> Self {
        Self {
            limit: limit.max(1),
            bytes_max: bytes_max.max(1),
            bytes: 0,
            last_shown: None,
            runs: Vec::new(),
            next: None,
        }
    }

    /// Takes the next run of a walk; beyond the `last` one, the walk does not look. A run that matches comes with its
    /// value and bytes, if there is room. Answers whether the walk goes on.
    pub(in crate::store) fn look<E>(
        &mut self,
        place: Place,
        last: bool,
        matching: Option<impl FnOnce() -> Result<(T, usize), E>>,
    ) -> Result<ControlFlow<()>, E> {
        let matches = matching.is_some();
        if let Some(run) = matching {
            if self.runs.len() >= self.limit {
                self.next = self.last_shown.take();
                return Ok(ControlFlow::Break(()));
            }
            let (run, bytes) = run()?;
            self.runs.push(run);
            self.bytes += bytes;
        }
        if last || self.bytes >= self.bytes_max {
            self.next = Some(place);
            return Ok(ControlFlow::Break(()));
        }
        if matches {
            self.last_shown = Some(place);
        }
        Ok(ControlFlow::Continue(()))
    }
}

//! Priority: which of the runs that wait for a claim come first.

use serde::{Deserialize, Serialize};

/// The priority of a run: of the runs that a claimer may have, the higher one comes first, then the older run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(i16);

impl Priority {
    /// The priority of a run that was given none.
    pub const NONE: Self = Self(0);
    /// The highest priority.
    pub const MAX: i16 = 100;

    /// The priority of this number; none where it is not from -100 to 100.
    #[must_use]
    pub fn of(number: i32) -> Option<Self> {
        i16::try_from(number).ok().filter(|number| number.abs() <= Self::MAX).map(Self)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> i16 {
        self.0
    }

    /// Whether it is that of a run that was given none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

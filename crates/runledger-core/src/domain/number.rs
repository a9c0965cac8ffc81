//! Numbers with types of their own, so that the compiler keeps apart what they count.

/// Makes the type of a number. Rows, JSON, texts and logs have the bare number.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Wraps a bare number, as `From` does, and also in constants.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The bare number: for rows, for messages, and for fields of the log, which are to stay numbers.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                Self::new(number)
            }
        }

        impl From<$name> for u64 {
            fn from(number: $name) -> Self {
                number.0
            }
        }

        // For comparisons with literals: tests are full of them.
        impl PartialEq<u64> for $name {
            fn eq(&self, number: &u64) -> bool {
                self.0 == *number
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.0, f)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

pub(super) use number;

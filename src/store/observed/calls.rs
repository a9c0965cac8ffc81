//! The methods of a store that ask the database something, and the number of calls of each.

use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the methods that are counted, each under its own name.
macro_rules! calls {
    ($($path:ident {
        $(fn $told:ident($($tells:ident: $Told:ty),*) $(-> $Answer:ty)?;)*
        $(async fn $asked:ident($($asks:ident: $Asked:ty),*) $(-> $Found:ty)? $(as $call:ident)?;)*
    })*) => {
        /// A method of a store that asks the database something.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call {
            $($($(#[doc = concat!("`", stringify!($asked), "`.")] $call,)?)*)*
        }

        impl Call {
            /// All of the methods.
            pub const ALL: [Self; [$($($(stringify!($call),)?)*)*].len()] = [$($($(Self::$call,)?)*)*];

            /// The method's name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($($(Self::$call => stringify!($asked),)?)*)*
                }
            }
        }
    };
}

crate::store_paths!(calls);

/// The number of calls of each method, whatever their results.
#[derive(Debug)]
pub struct Calls([AtomicU64; Call::ALL.len()]);

impl Default for Calls {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Call::ALL.len()])
    }
}

impl Calls {
    pub(super) fn count(&self, call: Call) {
        self.0[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Each method's name, and the number of its calls.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Call::ALL.into_iter().map(|call| (call.name(), self.of(call)))
    }

    /// The number of calls of this method.
    #[must_use]
    pub fn of(&self, call: Call) -> u64 {
        self.0[call as usize].load(Ordering::Relaxed)
    }
}

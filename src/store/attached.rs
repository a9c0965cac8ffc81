//! A value that a read takes along, such as the turn of its caller: the value is dropped when the read has ended, and
//! so has every statement that the read has sent.
//!
//! A caller that goes away drops its read at once, while the server may execute the statement for seconds. The session
//! on which it does holds the value until then: so a turn lasts, and counts, for as long as the work that it was for.

use std::any::Any;
use std::sync::Arc;

use tokio::task_local;

/// See the module.
pub type Attached = Arc<dyn Any + Send + Sync>;

task_local! {
    static ATTACHED: Attached;
}

/// Runs a read that takes a value along.
pub async fn with<T>(value: Attached, read: impl Future<Output = T>) -> T {
    ATTACHED.scope(value, read).await
}

/// The value that the read of now takes along.
#[must_use]
pub fn current() -> Option<Attached> {
    ATTACHED.try_with(Clone::clone).ok()
}

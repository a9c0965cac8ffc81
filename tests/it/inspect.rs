//! `verify`, `export`, `doctor` and `bench fill`: the real binary beside servers, beside none, and on damaged ledgers.

pub(crate) mod broken;
mod damage;
mod doctor;
mod export;
mod fill;
mod following;
mod hung;
mod ledger;
mod lifecycles;
mod opening;
mod purged;
mod redacted;
mod set_clock;
mod unreadable;
mod verify;

/// Makes each behaviour a test of its own on both stores.
macro_rules! on_both_stores {
    // Each with a copy of a ledger that has runs of every kind.
    (filled: $($behaviour:ident)*) => {
        on_both_stores! { @ (filled_sqlite filled_postgres) $($behaviour)* }
    };
    (@ ($sqlite:ident $postgres:ident) $($behaviour:ident)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                super::$behaviour(crate::inspect::ledger::Ledger::$sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                super::$behaviour(crate::inspect::ledger::Ledger::$postgres().await).await;
            })*
        }
    };
    ($($behaviour:ident)*) => {
        on_both_stores! { @ (empty_sqlite postgres) $($behaviour)* }
    };
}
use on_both_stores;

//! Names of runs and namespaces as parameters.

use rusqlite::types::{ToSql, ToSqlOutput};

use crate::domain::{Namespace, RunId};

/// A name is a text.
macro_rules! text {
    ($name:ty) => {
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                self.as_str().to_sql()
            }
        }
    };
}

text!(Namespace);
text!(RunId);

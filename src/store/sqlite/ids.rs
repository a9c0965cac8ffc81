//! Names of runs and namespaces as columns and parameters.

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use crate::domain::{Namespace, RunId};

/// A name is a text.
macro_rules! text {
    ($name:ty) => {
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                self.as_str().to_sql()
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                value.as_str().map(Self::from)
            }
        }
    };
}

text!(Namespace);
text!(RunId);

//! Names of runs and namespaces as columns and parameters.

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::domain::{Namespace, RunId};

type Failed = Box<dyn std::error::Error + Sync + Send>;

/// A name is a text.
macro_rules! text {
    ($name:ty) => {
        impl ToSql for $name {
            fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Failed> {
                self.as_str().to_sql(ty, out)
            }

            fn accepts(ty: &Type) -> bool {
                <&str as ToSql>::accepts(ty)
            }

            to_sql_checked!();
        }

        impl<'a> FromSql<'a> for $name {
            fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Failed> {
                <&str as FromSql>::from_sql(ty, raw).map(Self::from)
            }

            fn accepts(ty: &Type) -> bool {
                <&str as FromSql>::accepts(ty)
            }
        }
    };
}

text!(Namespace);
text!(RunId);

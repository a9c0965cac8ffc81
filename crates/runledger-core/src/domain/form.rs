//! The stored form of a run and of its changes: flat JSON objects, whose names and order never change.
//!
//! A `form!` stands beside each struct and names its fields, in their order. A field without
//! a name is a part, whose own names stand in its place: so a new field of a part is named where the part is, and nowhere
//! else. One that is forgotten does not compile.
//!
//! Invariant: a name that no part knows is an error. Code that drops a field which it does not know would write the run
//! back without it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer};

use super::{Metadata, Priority};

/// What stands in an object, whole or as a part of it.
pub trait Form {
    /// Writes each field that is not blank.
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;

    /// The number of its names, with those of its parts.
    fn names(&self) -> u32;

    /// Reads the value of a name, and tells which of its own the name is; none: it is not its own.
    fn read<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<Option<u32>, M::Error>;
}

impl<F: Form + Clone> Form for Cow<'_, F> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        (**self).write(map)
    }

    fn names(&self) -> u32 {
        (**self).names()
    }

    fn read<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<Option<u32>, M::Error> {
        self.to_mut().read(name, map)
    }
}

/// What is not written where nothing is in it.
pub trait Blank {
    /// Whether nothing is in it.
    fn is_blank(&self) -> bool;
}

impl<T> Blank for Option<T> {
    fn is_blank(&self) -> bool {
        self.is_none()
    }
}

impl<T> Blank for Vec<T> {
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl<T> Blank for BTreeSet<T> {
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Blank for BTreeMap<K, V> {
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl Blank for Metadata {
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl Blank for Priority {
    fn is_blank(&self) -> bool {
        self.is_none()
    }
}

impl Blank for bool {
    fn is_blank(&self) -> bool {
        !self
    }
}

impl Blank for u32 {
    fn is_blank(&self) -> bool {
        *self == 0
    }
}

impl Blank for i64 {
    fn is_blank(&self) -> bool {
        *self == 0
    }
}

/// A name of a field, which is borrowed where the text allows.
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a name")
            }

            fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Reads an object. A name that is there twice would lose what was said first: it is an error, whatever it said.
pub fn read_object<'de, F: Form, D: Deserializer<'de>>(
    form: F,
    required: &'static [&'static str],
    deserializer: D,
) -> Result<F, D::Error> {
    deserializer.deserialize_map(Object(form, required))
}

struct Object<F>(F, &'static [&'static str]);

impl<'de, F: Form> Visitor<'de> for Object<F> {
    type Value = F;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<F, M::Error> {
        let Self(mut form, required) = self;
        let (mut seen, mut there) = (0_u64, 0_u32);
        while let Some(Name(name)) = map.next_key()? {
            let Some(nth) = form.read(&name, &mut map)? else {
                return Err(Error::custom(format_args!("unknown field `{name}`")));
            };
            if seen & 1 << nth != 0 {
                return Err(Error::custom(format_args!("duplicate field `{name}`")));
            }
            seen |= 1 << nth;
            there |= required.iter().position(|required| *required == name).map_or(0, |nth| 1 << nth);
        }
        match required.iter().enumerate().find(|(nth, _)| there & 1 << nth == 0) {
            Some((_, name)) => Err(Error::missing_field(name)),
            None => Ok(form),
        }
    }
}

/// Names the fields of a struct, in the order in which they are written: `field: "name"`, which is left out where it is
/// blank; `field: "name" required`; or `part`, whose fields stand in its place. Fields behind the semicolon are not written.
#[doc(hidden)]
#[macro_export]
macro_rules! __form {
    (@write $map:ident $field:ident) => {
        $crate::domain::form::Form::write($field, $map)?;
    };
    (@write $map:ident $field:ident $name:literal) => {
        if !$crate::domain::form::Blank::is_blank($field) {
            $map.serialize_entry($name, $field)?;
        }
    };
    (@write $map:ident $field:ident $name:literal required) => {
        $map.serialize_entry($name, $field)?;
    };
    (@names $of:ident $field:ident) => { $crate::domain::form::Form::names(&$of.$field) };
    (@names $of:ident $field:ident $name:literal $($must:ident)?) => { 1 };
    (@read $of:ident $map:ident $asked:ident $nth:ident $field:ident) => {
        if let Some(of_part) = $crate::domain::form::Form::read(&mut $of.$field, $asked, $map)? {
            return Ok(Some($nth + of_part));
        }
        let $nth = $nth + $crate::domain::form::Form::names(&$of.$field);
    };
    (@read $of:ident $map:ident $asked:ident $nth:ident $field:ident $name:literal $($must:ident)?) => {
        if $asked == $name {
            $of.$field = $map.next_value()?;
            return Ok(Some($nth));
        }
        let $nth = $nth + 1;
    };
    ($type:ident $(<$life:lifetime>)? {
        $($field:ident $(: $name:literal $($must:ident)?)?),* $(; $($skipped:ident),+)?
    }) => {
        impl$(<$life>)? $crate::domain::form::Form for $type$(<$life>)? {
            fn write<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                let Self { $($field,)* $($($skipped: _,)+)? } = self;
                $($crate::domain::form::form!(@write map $field $($name $($must)?)?);)*
                Ok(())
            }

            fn names(&self) -> u32 {
                0 $(+ $crate::domain::form::form!(@names self $field $($name $($must)?)?))*
            }

            fn read<'de, M: serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut M,
            ) -> Result<Option<u32>, M::Error> {
                let nth = 0;
                $($crate::domain::form::form!(@read self map name nth $field $($name $($must)?)?);)*
                let _all = nth;
                Ok(None)
            }
        }
    };
}

/// The same, of a struct that is an object of its own: with what it is before anything of it was read, and the names that
/// must be there.
#[doc(hidden)]
#[macro_export]
macro_rules! __object {
    ($unread:expr, [$($required:literal),*], $type:ident $(<$life:lifetime>)? { $($fields:tt)* }) => {
        $crate::domain::form::form!($type $(<$life>)? { $($fields)* });

        impl$(<$life>)? serde::Serialize for $type$(<$life>)? {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $crate::domain::form::Form::write(self, &mut map)?;
                map.end()
            }
        }

        impl<'de $(, $life)?> serde::Deserialize<'de> for $type$(<$life>)? {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::domain::form::read_object($unread, &[$($required),*], deserializer)
            }
        }
    };
    ($type:ident { $($fields:tt)* }) => {
        $crate::domain::form::object!($type::default(), [], $type { $($fields)* });
    };
}

pub use {__form as form, __object as object};

#[cfg(test)]
mod tests {
    use serde_json::{Map, from_str, to_value};

    use crate::domain::{Bindings, Changes, Refinements, RefinementsChange, Supervision};

    /// The names of an object and of its parts are told apart by numbers, of which an object has 64.
    #[test]
    fn a_name_that_is_there_twice_is_an_error_whatever_it_says() {
        fn refused<T: serde::de::DeserializeOwned + std::fmt::Debug>(text: &str) -> String {
            from_str::<T>(text).expect_err(text).to_string()
        }
        for (text, said) in [
            ("{\"fallbackUsed\":false,\"fallbackUsed\":false}", refused::<Bindings>),
            ("{\"route\":null,\"workflowId\":\"a\",\"route\":\"cli\"}", refused::<Bindings>),
            ("{\"presumed\":false,\"presumed\":true}", refused::<Supervision>),
            ("{\"presumed\":true,\"presumed\":true}", refused::<Changes>),
            ("{\"links\":0,\"iteration\":1,\"links\":3}", refused::<Refinements>),
            ("{\"word\":null,\"priority\":0,\"word\":\"a\"}", refused::<RefinementsChange>),
        ] as [(&str, fn(&str) -> String); 6]
        {
            assert!(said(text).contains("duplicate field"), "{text}: {}", said(text));
        }
        let read: RefinementsChange = from_str("{\"phase\":\"a\",\"parentRunId\":\"b\",\"iteration\":2}").unwrap();
        assert_eq!(to_value(read).unwrap().as_object().map(Map::len), Some(3), "names of several parts");
    }
}

//! How a lifecycle is named: `name`, the newest version; or `name@3`. And how a run is pinned to one: to the version,
//! and to what it declared, since versions begin at 1 again where a namespace was deleted and made anew.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::is_name;
use crate::domain::Hash;

/// A lifecycle as a call names it. Its text is `name` or `name@version`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LifecycleName {
    pub name: String,
    /// The version; none: the newest.
    pub version: Option<u32>,
}

/// One version of a lifecycle. Its text is `name@version`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LifecycleId {
    pub name: String,
    /// The version, from 1.
    pub version: u32,
}

/// What a run is pinned to. Its text is `name@version#digest`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LifecyclePin {
    /// The version.
    pub id: LifecycleId,
    /// The first eight bytes of the SHA-256 of `name@version`, a line feed, and what the version declares as the ledger
    /// keeps it: two of a name that declare the same are told apart.
    pub digest: u64,
}

impl LifecyclePin {
    /// The pin to a version, by what it declares as the ledger keeps it.
    #[must_use]
    pub fn new(id: LifecycleId, declaration: &str) -> Self {
        let hash = Hash::new(format!("{id}\n{declaration}").as_bytes());
        let (first, _) = hash.as_bytes().split_first_chunk().expect("it has 32 bytes");
        Self { id, digest: u64::from_be_bytes(*first) }
    }
}

impl fmt::Display for LifecyclePin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}#{:016x}", self.id, self.digest)
    }
}

impl From<LifecyclePin> for String {
    fn from(pin: LifecyclePin) -> Self {
        pin.to_string()
    }
}

impl TryFrom<String> for LifecyclePin {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (id, digest) = text.split_once('#').ok_or("no pin to a lifecycle")?;
        let digest = u64::from_str_radix(digest, 16).map_err(|_| "no digest of a lifecycle")?;
        Ok(Self { id: id.to_owned().try_into()?, digest })
    }
}

impl LifecycleName {
    /// The lifecycle that a text names; none where it names none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, version) = match text.split_once('@') {
            None => (text, None),
            Some((name, version)) => {
                let is_plain = version.bytes().all(|digit| digit.is_ascii_digit()) && !version.starts_with('0');
                (name, Some(version.parse().ok().filter(|_| is_plain)?))
            }
        };
        is_name(name).then(|| Self { name: name.to_owned(), version })
    }

    /// Whether it names this version, as far as it names one.
    #[must_use]
    pub fn is(&self, id: &LifecycleId) -> bool {
        self.name == id.name && self.version.is_none_or(|version| version == id.version)
    }
}

impl From<&LifecycleId> for LifecycleName {
    fn from(id: &LifecycleId) -> Self {
        Self { name: id.name.clone(), version: Some(id.version) }
    }
}

impl fmt::Display for LifecycleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version } = self;
        match version {
            None => formatter.write_str(name),
            Some(version) => write!(formatter, "{name}@{version}"),
        }
    }
}

impl fmt::Display for LifecycleId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.name, self.version)
    }
}

impl From<LifecycleName> for String {
    fn from(name: LifecycleName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for LifecycleName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("no name of a lifecycle")
    }
}

impl From<LifecycleId> for String {
    fn from(id: LifecycleId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for LifecycleId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match LifecycleName::parse(&text) {
            Some(LifecycleName { name, version: Some(version) }) => Ok(Self { name, version }),
            Some(_) | None => Err("no version of a lifecycle"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_text() {
        for text in ["a", "openviber.task", "openviber.task@3", "a_b-c.d@4294967295"] {
            assert_eq!(LifecycleName::parse(text).map(|name| name.to_string()).as_deref(), Some(text));
        }
        let pin = LifecyclePin::new(LifecycleId { name: "a".into(), version: 3 }, "{}");
        assert_eq!(pin.to_string(), "a@3#90946ffaab9e5822");
        assert_eq!(LifecyclePin::try_from(pin.to_string()), Ok(pin.clone()));
        let next = LifecyclePin::new(LifecycleId { name: "a".into(), version: 4 }, "{}");
        assert_ne!(next.digest, pin.digest, "another version that declares the same");
        for wrong in ["", "A", "1a", "a@", "a@0", "a@01", "a@+1", "a@4294967296", "a@1@2", "a b", "@1", &"a".repeat(65)]
        {
            assert_eq!(LifecycleName::parse(wrong), None, "{wrong}");
        }
    }
}

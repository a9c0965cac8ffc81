//! A token's entry in the access file.

use std::fmt::Write as _;

use crate::auth::token::TokenHash;
use crate::domain::Time;

/// See the module.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) hash: TokenHash,
    pub(super) expires_at: Option<Time>,
    pub(super) namespaces: Vec<String>,
    pub(super) roles: Vec<&'static str>,
    pub(super) agents: Vec<String>,
}

impl Entry<'_> {
    /// The entry's text.
    pub(super) fn to_toml(&self) -> String {
        let text = |value: &str| toml::Value::from(value).to_string();
        let list = |values: Vec<&str>| values.into_iter().map(text).collect::<Vec<_>>().join(", ");
        let mut entry = format!("\n[[token]]\nname = {}\nsha256 = \"{}\"\n", text(self.name), self.hash);
        if let Some(end) = self.expires_at {
            let _written = writeln!(entry, "expires_at = \"{end}\"");
        }
        let namespaces = list(self.namespaces.iter().map(String::as_str).collect());
        let roles = list(self.roles.clone());
        let _written = write!(entry, "grants = [{{ namespaces = [{namespaces}], roles = [{roles}]");
        if !self.agents.is_empty() {
            let agents = list(self.agents.iter().map(String::as_str).collect());
            let _written = write!(entry, ", agents = [{agents}]");
        }
        entry.push_str(" }]\n");
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::access_file;

    #[test]
    fn an_entry_is_what_the_access_file_takes_whatever_stands_in_the_name() {
        let entry = Entry {
            name: "a \"quoted\" \\ name",
            hash: TokenHash::new(b"abc"),
            expires_at: Some(Time::from_micros(1_900_000_000_000_000)),
            namespaces: vec!["team-*".into(), "default".into()],
            roles: vec!["reporter", "reader"],
            agents: vec!["ci-*".into()],
        };
        let rules = access_file::read(&entry.to_toml()).unwrap();
        let known = rules.of_token(&TokenHash::new(b"abc")).unwrap();
        assert_eq!(known.identity.subject, entry.name);
        assert_eq!(known.expires_at, entry.expires_at);
    }
}

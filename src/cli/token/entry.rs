//! A token's entry in the access file.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use crate::auth::access_file;
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

/// Adds an entry to an access file. The file is replaced as a whole, so that a server never reads a half of it; and
/// only where it is right afterwards.
pub(super) fn append(path: &Path, entry: &str) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let (before, known) = match fs::read_to_string(path) {
        Ok(text) => (text, Some(fs::metadata(path).map_err(cannot)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (String::new(), None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let after = format!("{before}{entry}");
    access_file::read(&after).map_err(|faults| format!("{}: {}", path.display(), faults.join("; ")))?;
    // What a link leads to is replaced, and not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_new| path.to_owned());
    let mut name = target.clone().into_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let written = fs::File::create_new(&name).and_then(|mut file| {
        // Whoever could read the file still can: the server, above all.
        if let Some(known) = &known {
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (known.uid(), known.gid()) {
                fchown(&file, Some(known.uid()), Some(known.gid()))?;
            }
        }
        let mode = known.as_ref().map_or(0o600, |known| known.permissions().mode());
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(after.as_bytes())?;
        file.sync_all()?;
        fs::rename(&name, &target)
    });
    written.map_err(|error| {
        let _left = fs::remove_file(&name);
        cannot(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_what_the_access_file_takes_whatever_stands_in_the_name() {
        let entry = Entry {
            name: "a \"quoted\" \\ name",
            hash: TokenHash::of(b"abc"),
            expires_at: Some(Time::from_micros(1_900_000_000_000_000)),
            namespaces: vec!["team-*".into(), "default".into()],
            roles: vec!["reporter", "reader"],
            agents: vec!["ci-*".into()],
        };
        let rules = access_file::read(&entry.to_toml()).unwrap();
        let known = rules.of_token(&TokenHash::of(b"abc")).unwrap();
        assert_eq!(known.identity.subject, entry.name);
        assert_eq!(known.expires_at, entry.expires_at);
    }

    #[test]
    fn an_entry_is_added_to_what_the_file_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.toml");
        let entry = |token: &[u8]| {
            let (namespaces, roles) = (vec!["*".to_owned()], vec!["reader"]);
            let hash = TokenHash::of(token);
            Entry { name: "n", hash, expires_at: None, namespaces, roles, agents: Vec::new() }.to_toml()
        };
        append(&path, &entry(b"one")).unwrap();
        append(&path, &entry(b"two")).unwrap();
        assert!(append(&path, &entry(b"two")).unwrap_err().contains("same sha256"));
        let rules = access_file::read(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(rules.tokens().count(), 2);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}

//! What a program is given and what it leaves, as files in a folder of the run's own, which goes with the worker.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use runledger_proto::Struct;
use runledger_proto::json::{self, structure};
use tempfile::TempDir;

use crate::domain::limits::{CONTENT_BYTES_MAX, METADATA_DEPTH_MAX};
use crate::private;
use crate::text::object;

/// Bytes of a result that are read: an object may be written with any space between its parts.
const READ_BYTES_MAX: usize = 16 * CONTENT_BYTES_MAX;

/// The files of one run's program. Only this user reads them.
pub(super) struct Papers {
    folder: TempDir,
    has_input: bool,
}

impl Papers {
    /// Writes down what the run was given.
    pub(super) fn laid_out(input: Option<&Struct>) -> io::Result<Self> {
        let folder = private::temporary_folder("runledger-worker.")?;
        if let Some(input) = input {
            let mut file = private::create_new(&folder.path().join("input.json"))?;
            file.write_all(json::text(input).as_bytes())?;
        }
        Ok(Self { folder, has_input: input.is_some() })
    }

    /// Where they are.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file with what the run was given.
    pub(super) fn input(&self) -> Option<PathBuf> {
        self.has_input.then(|| self.folder.path().join("input.json"))
    }

    fn result(&self) -> PathBuf {
        self.folder.path().join("result.json")
    }

    /// The variables by which the program finds the files.
    pub(super) fn environment(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let input = self.input().map(|path| ("RUNLEDGER_INPUT", path.into_os_string()));
        input.into_iter().chain([("RUNLEDGER_RESULT", self.result().into_os_string())])
    }

    /// What the program left; none where it wrote nothing.
    ///
    /// # Errors
    ///
    /// Why it is no result.
    pub(super) fn left(&self) -> Result<Option<Struct>, String> {
        let text = match runledger_files::text(&self.result(), READ_BYTES_MAX as u64) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot be read: {error}")),
        };
        if text.is_empty() {
            return Ok(None);
        }
        let object = object(&text).map_err(|error| format!("is no JSON object that can be kept as it is: {error}"))?;
        if object.values().map(depth).max().unwrap_or(0) >= METADATA_DEPTH_MAX {
            return Err(format!("has more than {METADATA_DEPTH_MAX} objects and lists in one another"));
        }
        if object.iter().any(|(key, value)| key.contains('\0') || has_zero(value)) {
            return Err("has the character U+0000, which no text may have".to_owned());
        }
        let found = structure(&object);
        let bytes = json::text(&found).len();
        if bytes > CONTENT_BYTES_MAX {
            return Err(format!("is {bytes} bytes as compact JSON; the limit is {CONTENT_BYTES_MAX}"));
        }
        Ok(Some(found))
    }
}

/// The objects and lists in one another.
fn depth(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        serde_json::Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => 0,
    }
}

/// Whether a text has the character that no store takes.
fn has_zero(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Array(values) => values.iter().any(has_zero),
        serde_json::Value::Object(map) => map.iter().any(|(key, value)| key.contains('\0') || has_zero(value)),
        serde_json::Value::String(text) => text.contains('\0'),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_a_program_left_is_an_object_or_told_to_be_none() {
        let papers = Papers::laid_out(None).unwrap();
        assert_eq!(papers.left(), Ok(None));
        let mode = fs::metadata(papers.folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "nobody else reads what a run was given");
        for (text, fault) in [
            ("[1]", "is no JSON object"),
            ("{", "is no JSON object"),
            (&format!("{{\"a\":\"{}\"}}", "x".repeat(CONTENT_BYTES_MAX)), "the limit is 65536"),
            (&format!("{{\"a\":{}{}}}", "[".repeat(32), "]".repeat(32)), "in one another"),
            (r#"{"a":[{"b":"\u0000"}]}"#, "U+0000"),
            (r#"{"a":{"\u0000":1}}"#, "U+0000"),
        ] {
            fs::write(papers.result(), text).unwrap();
            let said = papers.left().unwrap_err();
            assert!(said.contains(fault), "{said}");
        }
        fs::write(papers.result(), "{ \"a\" : 1 }\n").unwrap();
        assert_eq!(json::object(&papers.left().unwrap().unwrap()), "{\"a\":1}");
        fs::remove_file(papers.result()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, papers.result(), rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(
            papers.left(),
            Err("cannot be read: it is a pipe and no file".to_owned()),
            "nobody writes into it, and nobody waits for that"
        );
    }
}

//! Small file systems of a test's own, where the system lets it make them.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory, unmounted with this value.
#[derive(Debug)]
pub(crate) struct Mount {
    directory: TempDir,
}

impl Mount {
    /// Mounts a file system; returns none, and prints so, where this process may not mount.
    pub(crate) fn tmpfs(options: &str) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(directory.path()).output();
        match mounted {
            Ok(done) if done.status.success() => Some(Self { directory }),
            Ok(done) => {
                eprintln!("SKIPPED: nothing can be mounted here: {}", String::from_utf8_lossy(&done.stderr));
                None
            }
            Err(error) => {
                eprintln!("SKIPPED: nothing can be mounted here: {error}");
                None
            }
        }
    }

    /// Lets nobody write to it any more.
    pub(crate) fn only_read(&self) {
        let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).status().unwrap();
        assert!(remounted.success());
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(self.directory.path()).status();
    }
}

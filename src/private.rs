//! The one place that makes files and folders, and opens files to write. What is made here is its owner's alone: 0600, in
//! folders of 0700, whatever the umask is. A ledger has the key of its cursors in it, an export the whole history, and a
//! run's papers what nobody else was given.
//!
//! A folder or a file that was there before is the user's: its rights stay, but for [`close_to_others`]. A file that is
//! replaced is at no moment half of itself: it is written beside, made durable, and renamed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::umask;
use tempfile::TempDir;

/// The rights of a new file.
const FILE: u32 = 0o600;

/// The rights of a new folder.
const FOLDER: u32 = 0o700;

/// Links that are followed one after the other, as on Linux.
const LINKS_MAX: usize = 40;

/// Leaves the owner's rights alone in what the process makes: a umask may take those of others, and no more. Called before
/// the process has threads.
pub fn keep_owners_rights() {
    // It can be read only by changing it.
    let before = umask(Mode::RWXG | Mode::RWXO);
    umask(before & (Mode::RWXG | Mode::RWXO));
}

/// Makes a folder, and those above it, where they are missing.
///
/// # Errors
///
/// It cannot be made.
pub fn folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(path)
}

/// A new folder for temporary files, which goes with the value.
///
/// # Errors
///
/// It cannot be made.
pub fn temporary_folder(prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().permissions(Permissions::from_mode(FOLDER)).prefix(prefix).tempdir()
}

/// A new file, to read and to write.
///
/// # Errors
///
/// It is there already, or cannot be made.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(FILE).open(path)
}

/// A file to read and to write, made where it is missing.
///
/// # Errors
///
/// It cannot be opened.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE).open(path)
}

/// A file to read and to write, made where it is missing. It has this name itself: no link is followed, and no pipe is
/// waited for.
///
/// # Errors
///
/// It cannot be opened.
pub fn open_own(path: &Path) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).expect("flags of open(2) are small");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE).custom_flags(flags).open(path)
}

/// A file to read and to append to, made where it is missing.
///
/// # Errors
///
/// It cannot be opened.
pub fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(FILE).open(path)
}

/// A file that is there, to read and to write.
///
/// # Errors
///
/// It cannot be opened.
pub fn open_existing(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// A pipe or a device that is there, to write only: a pipe waits for its reader.
///
/// # Errors
///
/// It cannot be opened.
pub fn open_pipe(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// A file under way, beside the one that it becomes. It is removed unless it is finished.
#[derive(Debug)]
pub struct PartFile {
    path: PathBuf,
    becomes: PathBuf,
    is_finished: bool,
}

impl PartFile {
    /// A new file beside this one, whose name is of nobody else's.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub fn beside(becomes: PathBuf) -> io::Result<(File, Self)> {
        let mut number = std::process::id();
        loop {
            let path = with_ending(&becomes, &format!(".{number}.part"));
            match create_new(&path) {
                // Left by a process of the same number, such as the only one of a container.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number = number.wrapping_add(1),
                created => return Ok((created?, Self { path, becomes, is_finished: false })),
            }
        }
    }

    /// Makes the file durable, and gives it its name.
    ///
    /// # Errors
    ///
    /// The file that was there before is still there, and whole.
    pub fn finish(mut self, file: &File) -> io::Result<()> {
        file.sync_all()?;
        fs::rename(&self.path, &self.becomes)?;
        self.is_finished = true;
        // Its name lasts as well.
        match self.becomes.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
            Some(_) | None => File::open(".")?.sync_all(),
        }
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// The rights of a file that takes the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Owner, group and mode of the former file: whoever could read it still can, such as a server.
    AsTheyWere,
    /// The same, but none of others.
    OfOwnerAndGroup,
    /// The mode of the former file. The owner is who writes now.
    OfAnyWriter,
}

/// Whether what a path leads to may be replaced by what a command writes there: nothing, an empty file, or one that has
/// what such a command writes, as far as its first bytes tell. What is no file is no matter of this.
///
/// # Errors
///
/// It is there, and cannot be read.
pub fn may_replace(path: &Path, bytes_max: u64, is_own: impl FnOnce(&str) -> bool) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(there) if there.is_file() => {}
        Ok(_) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    match runledger_files::text(path, bytes_max) {
        Ok(text) => Ok(text.is_empty() || is_own(&text)),
        // It is larger, or no text.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether two paths lead to one file, which may not be there yet.
#[must_use]
pub fn is_one_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| followed(path).and_then(std::path::absolute);
    place(one).ok().zip(place(other).ok()).is_some_and(|(one, other)| one == other)
}

/// Replaces a file as a whole; what a link leads to, and not the link.
///
/// # Errors
///
/// The file that was there before is still there, and whole.
pub fn replace(path: &Path, content: &[u8], rights: Rights) -> io::Result<()> {
    let (file, part) = written_beside(path, content, rights)?;
    part.finish(&file)
}

/// The same without the last step, for a file that waits for something else: [`PartFile::finish`] makes it the one.
///
/// # Errors
///
/// It cannot be written, or the file that is there is none.
pub fn written_beside(path: &Path, content: &[u8], rights: Rights) -> io::Result<(File, PartFile)> {
    let path = followed(path)?;
    let former = match fs::metadata(&path) {
        Ok(former) if !former.is_file() => return Err(io::Error::other("it is there, and no file")),
        Ok(former) => Some(former),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let (mut file, part) = PartFile::beside(path)?;
    if let Some(former) = former {
        take_over(&file, &former, rights)?;
    }
    file.write_all(content)?;
    file.sync_all()?;
    Ok((file, part))
}

/// Gives a file rights by those of the one that it replaces.
///
/// # Errors
///
/// This process may not.
pub fn take_over(file: &File, former: &Metadata, rights: Rights) -> io::Result<()> {
    let made = file.metadata()?;
    if rights != Rights::OfAnyWriter && (made.uid(), made.gid()) != (former.uid(), former.gid()) {
        fchown(file, Some(former.uid()), Some(former.gid()))?;
    }
    let bits = match rights {
        Rights::AsTheyWere | Rights::OfAnyWriter => former.mode() & 0o777,
        Rights::OfOwnerAndGroup => closed(former.mode()),
    };
    file.set_permissions(Permissions::from_mode(bits))
}

/// The rights of others.
const OTHERS: u32 = 0o007;

/// The rights without others'. Where others had some, the group had its own by the same umask: nobody had chosen them.
fn closed(mode: u32) -> u32 {
    if mode & OTHERS == 0 { mode & 0o770 } else { FILE }
}

/// Takes the rights of others from a file that is there, and says whether they had some. Those that a group alone has
/// were given to it, and stay.
///
/// # Errors
///
/// It is not there, or is somebody else's.
pub fn close_to_others(path: &Path) -> io::Result<bool> {
    // Not what a link leads to, nor what is no file: their rights are somebody else's to choose.
    let found = fs::symlink_metadata(path)?;
    let mode = found.mode();
    if !found.is_file() || mode & OTHERS == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(closed(mode))).map(|()| true)
}

/// The right to read a file and then replace it: held by one process at a time, and free when it ends, however that is.
/// Nothing is left beside the file.
#[derive(Debug)]
pub struct Turn {
    file: File,
    path: PathBuf,
}

impl Turn {
    /// Waits for the turn.
    ///
    /// # Errors
    ///
    /// No file can be made beside this one.
    pub fn at(path: &Path) -> io::Result<Self> {
        let path = with_ending(&followed(path)?, ".runledger-lock");
        loop {
            let file = open_or_create(&path)?;
            file.lock()?;
            // Whoever had it before has removed it: then this file has no name any more, and another may be locked.
            let own = file.metadata()?;
            let named = fs::metadata(&path);
            if named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
                return Ok(Self { file, path });
            }
        }
    }
}

impl Drop for Turn {
    /// The name goes first: who waits for this file then sees that it has none.
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
        let _closed_anyway = self.file.unlock();
    }
}

/// The file that a link leads to, whether it is there or not: the link stays. A pipe or a device stays what it is.
///
/// # Errors
///
/// The links go round in a circle, or lead to a file that a process has open, such as `/dev/stdout`.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    if let Ok(there) = fs::metadata(path) {
        if !there.is_file() {
            return Ok(path.to_owned());
        }
        if is_descriptor(path) {
            return Err(io::Error::other("it is a file that is open already: name the file itself"));
        }
        return fs::canonicalize(path);
    }
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links"))
}

/// Whether a path leads to what a process has open, such as `/dev/stdout`. What stands there is not replaced by a rename:
/// whoever has it open would go on with the former file.
fn is_descriptor(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if fs::canonicalize(folder).is_ok_and(|folder| folder.starts_with("/proc") && folder.ends_with("fd")) {
            return true;
        }
        match fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            Err(_) => return false,
        }
    }
    false
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_owners_rights_and_loses_others_only_where_that_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (before, rights, after) in [
            (None, Rights::AsTheyWere, 0o600),
            (Some(0o644), Rights::AsTheyWere, 0o644),
            (Some(0o644), Rights::OfOwnerAndGroup, 0o600),
            (Some(0o640), Rights::OfOwnerAndGroup, 0o640),
            (Some(0o400), Rights::OfOwnerAndGroup, 0o400),
        ] {
            if let Some(before) = before {
                fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            }
            replace(&path, b"content", rights).unwrap();
            assert_eq!(mode(&path), after, "{before:?} {rights:?}");
            assert_eq!(fs::read(&path).unwrap(), b"content");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        replace(&link, b"new", Rights::AsTheyWere).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(folder.path().join("target")).unwrap(), b"new");
        assert!(replace(folder.path(), b"x", Rights::AsTheyWere).is_err(), "a folder is not replaced");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left beside them");
    }

    #[test]
    fn a_file_that_was_not_finished_leaves_the_former_one_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, b"former", Rights::AsTheyWere).unwrap();
        drop(written_beside(&path, b"next", Rights::AsTheyWere).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"former");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn rights_of_others_go_and_those_that_a_group_was_given_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        create_new(&path).unwrap();
        for (before, after) in [(0o644, 0o600), (0o664, 0o600), (0o602, 0o600), (0o640, 0o640), (0o600, 0o600)] {
            fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            assert_eq!(close_to_others(&path).unwrap(), before != after);
            assert_eq!(mode(&path), after, "{before:o}");
        }
    }

    #[test]
    fn many_turns_at_one_file_never_meet() {
        let folder = tempfile::tempdir().unwrap();
        let (path, inside) = (folder.path().join("file"), AtomicUsize::new(0));
        fs::write(&path, "").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let turn = Turn::at(&path).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have their turn");
                        let before = fs::read_to_string(&path).unwrap();
                        replace(&path, format!("{before}x").as_bytes(), Rights::AsTheyWere).unwrap();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap().len(), 160);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}

//! What stands where a store is to be, however it was named: what is refused, by which sentence, and that nothing is made
//! in its place or beside it.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::calls::{Step, ask};
use super::data::Data;
use super::mixed::STRANGER;
use super::server::{Process, SOON, Server, run};
use crate::support::mount::Mount;

/// What stands in the store's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Nothing,
    AnothersFile,
    OwnFileClosed,
    FolderClosed,
    FolderClosedBesideItsLock,
    AnothersLock,
    SecondName,
    SecondNameOfItsIndex,
    ReadOnly,
    Full,
    Folder,
    Pipe,
    Device,
    ForeignFile,
    ForeignDatabase,
    Cut,
    CutInItsHeader,
    ForeignLog,
    LogAlone,
    NoLog,
    FolderForALog,
    LogGone,
    LogDamaged,
}

impl There {
    const ALL: [Self; 23] = [
        Self::Nothing,
        Self::AnothersFile,
        Self::OwnFileClosed,
        Self::FolderClosed,
        Self::FolderClosedBesideItsLock,
        Self::AnothersLock,
        Self::SecondName,
        Self::SecondNameOfItsIndex,
        Self::ReadOnly,
        Self::Full,
        Self::Folder,
        Self::Pipe,
        Self::Device,
        Self::ForeignFile,
        Self::ForeignDatabase,
        Self::Cut,
        Self::CutInItsHeader,
        Self::ForeignLog,
        Self::LogAlone,
        Self::NoLog,
        Self::FolderForALog,
        Self::LogGone,
        Self::LogDamaged,
    ];

    /// The words of the refusal; none where a new ledger is made.
    fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::AnothersFile | Self::ReadOnly => Some("ledger.db cannot be written"),
            Self::OwnFileClosed => Some("(mode 444), and this is user 65534: give yourself the right (chmod u+rw "),
            Self::FolderClosed | Self::FolderClosedBesideItsLock => Some(
                "runledger is of user 65534 and group 65534 (mode 555), and this is user 65534: give yourself the right (chmod u+rwx ",
            ),
            Self::AnothersLock => Some("ledger.db.lock cannot be written"),
            Self::SecondName => Some("has 2 names (hard links)"),
            Self::SecondNameOfItsIndex => {
                Some("the index of its log (`-shm`) is another file as well, by a hard link: remove the other name")
            }
            Self::Full => Some("the disk is full"),
            Self::Folder => Some("it is a folder and no file: name another with --store or RUNLEDGER_STORE"),
            Self::Pipe => Some("it is a named pipe and no file: name another with --store or RUNLEDGER_STORE"),
            Self::Device => Some("it is a device and no file: name another with --store or RUNLEDGER_STORE"),
            Self::ForeignFile => Some("the file is no SQLite database: name another"),
            Self::ForeignDatabase => Some("the file is a database of another program: name another"),
            Self::Cut | Self::CutInItsHeader => Some("the file ends before its last page: it was cut, or a copy of it"),
            Self::ForeignLog => Some(STRANGER),
            Self::LogAlone => Some("the file is missing, and its write-ahead log is still there: put the file back"),
            Self::NoLog => Some("what stands in the place of its write-ahead log (`-wal`) is no log: move it away"),
            Self::FolderForALog => {
                Some("what stands in the place of its write-ahead log (`-wal`) is a folder and no file: move it away")
            }
            Self::LogGone => {
                Some("its write-ahead log (`-wal`) is missing or empty, which has what was committed last")
            }
            Self::LogDamaged => Some("its write-ahead log (`-wal`) is damaged, and has commits behind the damage"),
        }
    }

    /// The name by which the doctor tells it, with an exit code of 1; none where there is no ledger at all.
    fn fault(self) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::ReadOnly => None,
            Self::AnothersFile
            | Self::OwnFileClosed
            | Self::FolderClosed
            | Self::FolderClosedBesideItsLock
            | Self::AnothersLock => Some("no_access"),
            Self::SecondName => Some("several_names"),
            Self::Full => Some("no_space"),
            Self::Folder | Self::Pipe | Self::Device | Self::ForeignFile | Self::ForeignDatabase => Some("foreign"),
            Self::SecondNameOfItsIndex
            | Self::Cut
            | Self::CutInItsHeader
            | Self::ForeignLog
            | Self::LogAlone
            | Self::NoLog
            | Self::FolderForALog
            | Self::LogGone => Some("parts"),
            Self::LogDamaged => Some("damaged"),
        }
    }

    /// Whether those who only read are refused for the same reason. A file that can be read is read wherever it stands.
    fn is_for_readers(self) -> bool {
        !matches!(self, Self::Nothing | Self::AnothersFile | Self::ReadOnly | Self::Full) && !self.is_for_writers()
    }

    /// Whether those who only read are not refused, and the doctor tells why a server is.
    fn is_for_writers(self) -> bool {
        matches!(self, Self::SecondName | Self::SecondNameOfItsIndex) || self.is_of_nobody()
    }

    /// Whether the ledger is of the user `nobody`, who serves it.
    fn is_of_nobody(self) -> bool {
        matches!(self, Self::OwnFileClosed | Self::FolderClosed | Self::FolderClosedBesideItsLock | Self::AnothersLock)
    }
}

/// A folder of data, with the store's place in it.
struct Place {
    directory: TempDir,
    mount: Option<Mount>,
}

impl Place {
    fn data(&self) -> &Path {
        self.mount.as_ref().map_or(self.directory.path(), Mount::path)
    }

    fn file(&self) -> PathBuf {
        self.data().join("runledger/ledger.db")
    }

    fn beside(&self, end: &str) -> PathBuf {
        self.data().join(format!("runledger/ledger.db{end}"))
    }

    /// Puts a ledger there that is of the user `nobody`, with empty files beside it, and these rights. None where this process
    /// cannot.
    fn of_nobody(&self, ledger: &Ledger, beside: &[&str], rights: &[(&str, u32)]) -> Option<()> {
        let folder = self.data().join("runledger");
        fs::write(self.file(), &ledger.file).unwrap();
        for ending in beside {
            fs::write(self.beside(ending), "").unwrap();
        }
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        for path in entries.chain([folder.clone()]).collect::<Vec<_>>() {
            fs::set_permissions(&path, Permissions::from_mode(if path.is_dir() { 0o700 } else { 0o600 })).unwrap();
            std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).ok()?;
        }
        fs::set_permissions(self.data(), Permissions::from_mode(0o755)).unwrap();
        for (ending, mode) in rights {
            let path = if *ending == "/.." { folder.clone() } else { self.beside(ending) };
            fs::set_permissions(path, Permissions::from_mode(*mode)).unwrap();
        }
        Some(())
    }

    /// The names below the folder, and the contents of files.
    fn contents(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let (mut found, mut folders) = (BTreeMap::new(), vec![self.data().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
                let kind = entry.file_type().unwrap();
                let lock = entry.path().extension().is_some_and(|end| end == "lock");
                let bytes = (kind.is_file() && !lock).then(|| fs::read(entry.path()).unwrap());
                found.insert(entry.path(), bytes);
                if kind.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        found
    }

    /// Puts it there. None where this system cannot make one.
    fn with(there: There, ledger: &Ledger) -> Option<Self> {
        let mount = match there {
            There::ReadOnly => Some(Mount::tmpfs("ro,size=1m")?),
            There::Full => Some(Mount::tmpfs("size=1m")?),
            There::Nothing
            | There::AnothersFile
            | There::OwnFileClosed
            | There::FolderClosed
            | There::FolderClosedBesideItsLock
            | There::AnothersLock
            | There::SecondName
            | There::SecondNameOfItsIndex
            | There::Folder
            | There::Pipe
            | There::Device
            | There::ForeignFile
            | There::ForeignDatabase
            | There::Cut
            | There::CutInItsHeader
            | There::ForeignLog
            | There::LogAlone
            | There::NoLog
            | There::FolderForALog
            | There::LogGone
            | There::LogDamaged => None,
        };
        let place = Self { directory: TempDir::new().unwrap(), mount };
        let file = place.file();
        if there != There::ReadOnly {
            fs::create_dir(place.data().join("runledger")).unwrap();
        }
        match there {
            There::Nothing | There::ReadOnly => {}
            There::AnothersFile => {
                fs::write(&file, &ledger.file).unwrap();
                fs::set_permissions(place.data(), Permissions::from_mode(0o777)).unwrap();
                fs::set_permissions(place.data().join("runledger"), Permissions::from_mode(0o777)).unwrap();
                fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            }
            There::OwnFileClosed => place.of_nobody(ledger, &[], &[("", 0o444)])?,
            There::FolderClosed => place.of_nobody(ledger, &[], &[("/..", 0o555)])?,
            There::FolderClosedBesideItsLock => place.of_nobody(ledger, &[".lock"], &[("/..", 0o555)])?,
            There::AnothersLock => {
                place.of_nobody(ledger, &[], &[])?;
                fs::write(place.beside(".lock"), "").unwrap();
                fs::set_permissions(place.beside(".lock"), Permissions::from_mode(0o600)).unwrap();
            }
            There::SecondName | There::SecondNameOfItsIndex => {
                let ending = if there == There::SecondName { "" } else { "-shm" };
                fs::write(&file, &ledger.file).unwrap();
                fs::write(place.beside(".lock"), "").unwrap();
                fs::OpenOptions::new().append(true).create(true).open(place.beside(ending)).unwrap();
                fs::hard_link(place.beside(ending), place.data().join("second")).unwrap();
            }
            There::Full => {
                fs::write(&file, &ledger.file).unwrap();
                let mut filler = fs::File::create(place.data().join("filler")).unwrap();
                for size in [65536, 4096, 1] {
                    while filler.write_all(&vec![0; size]).is_ok() {}
                }
            }
            There::Folder => fs::create_dir(&file).unwrap(),
            There::Pipe => assert!(Command::new("mkfifo").arg(&file).status().unwrap().success()),
            There::Device => std::os::unix::fs::symlink("/dev/zero", &file).unwrap(),
            There::ForeignFile => fs::write(&file, "milk, bread").unwrap(),
            There::ForeignDatabase => {
                let other = rusqlite::Connection::open(&file).unwrap();
                other.execute_batch("create table notes (note text)").unwrap();
            }
            There::Cut => fs::write(&file, &ledger.file[..ledger.file.len() / 2]).unwrap(),
            There::CutInItsHeader => fs::write(&file, &ledger.file[..60]).unwrap(),
            There::ForeignLog => {
                fs::write(&file, &ledger.file).unwrap();
                fs::write(place.beside("-wal"), &ledger.later_log).unwrap();
            }
            There::LogAlone => fs::write(place.beside("-wal"), &ledger.later_log).unwrap(),
            There::NoLog => {
                fs::write(&file, &ledger.file).unwrap();
                fs::write(place.beside("-wal"), "milk, bread, and enough of it for a header").unwrap();
            }
            There::FolderForALog => {
                fs::write(&file, &ledger.file).unwrap();
                fs::create_dir(place.beside("-wal")).unwrap();
            }
            There::LogGone => fs::write(&file, &ledger.killed).unwrap(),
            There::LogDamaged => {
                fs::write(&file, &ledger.killed).unwrap();
                let mut log = ledger.later_log.clone();
                let middle = log.len() / 2;
                log[middle..middle + 4].copy_from_slice(b"bits");
                fs::write(place.beside("-wal"), log).unwrap();
            }
        }
        Some(place)
    }
}

/// A ledger's file, and the file and its log of a later time, when its server was killed.
struct Ledger {
    file: Vec<u8>,
    killed: Vec<u8>,
    later_log: Vec<u8>,
}

impl Ledger {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("ledger.db");
        let (code, said) = run(&["migrate", "--store", &Data::Sqlite(path.clone()).store()]).await;
        assert_eq!(code, 0, "{said}");
        let file = fs::read(&path).unwrap();
        let mut server = Server::start(&Data::Sqlite(path.clone()).store()).await;
        server.is_ready().await;
        for run_id in ["run", "other", "third", "fourth"] {
            ask(&mut server.client(), run_id, Step::Start, "request").await.unwrap();
        }
        server.process.kill();
        Self {
            file,
            killed: fs::read(&path).unwrap(),
            later_log: fs::read(directory.path().join("ledger.db-wal")).unwrap(),
        }
    }
}

/// How the store is named.
#[derive(Clone, Copy, Debug)]
enum Named {
    Default,
    Flag,
    Settings,
}

/// Starts a command on the place.
fn command(command: &[&str], named: Named, place: &Place, there: There) -> Option<Process> {
    let store = Data::Sqlite(place.file()).store();
    let settings = place.directory.path().with_extension("toml");
    let data = place.data().to_str().unwrap();
    let (flags, environment) = match named {
        Named::Default => (vec![], vec![("XDG_DATA_HOME", data)]),
        Named::Flag => (vec!["--store", &store], vec![]),
        Named::Settings => {
            fs::write(&settings, format!("store = \"{store}\"\n")).unwrap();
            (vec!["--config", settings.to_str().unwrap()], vec![])
        }
    };
    let args = [command, &flags].concat();
    let is_anothers = there == There::AnothersFile && fs::OpenOptions::new().write(true).open(place.file()).is_ok();
    if is_anothers || there.is_of_nobody() {
        // Root may write whatever it is.
        return Process::spawn_as_nobody(&args, &environment);
    }
    Some(Process::spawn_with(&args, &environment))
}

/// The doctor says it as a problem, by its name and by the words of the refusal, and that is its exit code.
async fn is_diagnosed(there: There, named: Named, place: &Place) {
    let doctor = &["doctor", "--output", "json"][..];
    let (code, said) = command(doctor, named, place, there).unwrap().exited(SOON).await;
    let Some(fault) = there.fault() else {
        assert_eq!(code, 3, "{there:?} {named:?}: {said}");
        return;
    };
    assert_eq!(code, 1, "{there:?} {named:?}: {said}");
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{there:?}: {error}: {said}"));
    let problems = report["problems"].as_array().unwrap();
    let problem =
        problems.iter().find(|problem| problem["name"] == fault).unwrap_or_else(|| panic!("{there:?}: {said}"));
    let told = format!("{}: {}", problem["what"].as_str().unwrap(), problem["todo"].as_str().unwrap()).to_lowercase();
    let is_the_same = there.is_for_readers() || there.is_for_writers();
    let words = there.refusal().filter(|_| is_the_same).unwrap_or_default().to_lowercase();
    assert!(told.contains(&words), "{there:?} {named:?}: {told}");
    if there == There::AnothersFile {
        assert!(told.contains("cannot be read") && told.contains("chmod 640"), "{told}");
    }
    let (code, said) = command(&["doctor"], named, place, there).unwrap().exited(SOON).await;
    assert!(code == 1 && said.starts_with("NOT HEALTHY\nPROBLEM  "), "{there:?} {named:?}: {code}: {said}");
}

async fn is_as_it_should_be(there: There, named: Named, ledger: &Ledger) {
    let Some(place) = Place::with(there, ledger) else { return };
    let before = place.contents();
    let serve = &["serve", "--listen", "127.0.0.1:0"][..];
    let Some(mut server) = command(serve, named, &place, there) else { return };
    let Some(words) = there.refusal() else {
        let server = Server::of(server).await;
        server.is_ready().await;
        server.process.says("a new ledger was created").await;
        assert!(place.file().exists(), "{named:?}");
        return;
    };
    let (code, said) = server.exited(SOON).await;
    assert!(code == 1 && said.contains(words), "{there:?} {named:?}: {code}: {said}");
    assert!(!said.contains("listens on") && !said.contains("NOT DURABLE"), "{there:?} {named:?}: {said}");
    is_diagnosed(there, named, &place).await;
    let readers: &[&[&str]] = &[&["verify"], &["export"], &["retention", "preview"], &["migrate", "--dry-run"]];
    for reader in readers.iter().filter(|_| there.is_for_readers()) {
        let (code, said) = command(reader, named, &place, there).unwrap().exited(SOON).await;
        assert!(code != 0 && said.contains(words), "{there:?} {named:?} {reader:?}: {code}: {said}");
    }
    let after = place.contents();
    let made: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    // What could be opened and not written to has a lock beside it.
    assert!(there == There::Full || made.is_empty(), "{there:?} {named:?} made {made:?}");
    for (name, bytes) in &before {
        assert!(after.get(name) == Some(bytes), "{there:?} {named:?} changed {}", name.display());
    }
    let _settings = fs::remove_file(place.directory.path().with_extension("toml"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_stands_in_a_stores_place_is_named_and_left_as_it_is_however_the_store_is_named() {
    let ledger = Ledger::new().await;
    for there in There::ALL {
        let [one, other, third] =
            [Named::Default, Named::Flag, Named::Settings].map(|named| is_as_it_should_be(there, named, &ledger));
        tokio::join!(one, other, third);
    }
}

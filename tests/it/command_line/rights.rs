//! Whatever the program makes is its owner's alone, also where the umask gives everything to everybody; and a token that is
//! made or revoked is so for good, however many are at it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::process::Command;

use super::cli::{Going, Ran, ran};
use crate::support::everywhere::Everywhere;

/// A user's home, and a shell whose umask is this.
struct Home {
    place: TempDir,
    umask: &'static str,
}

impl Home {
    fn new(umask: &'static str) -> Self {
        Self { place: TempDir::new().unwrap(), umask }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let script = format!("umask {} && exec \"$0\" \"$@\"", self.umask);
        command.args(["-c", &script, env!("CARGO_BIN_EXE_runledger")]).args(args);
        command.env_clear().envs(Everywhere::environment()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", self.place.path()).env("TMPDIR", self.place.path()).current_dir(self.place.path());
        command.stdin(Stdio::null());
        command
    }

    async fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args)).await
    }

    async fn done(&self, args: &[&str]) -> Ran {
        let ran = self.run(args).await;
        assert_eq!(ran.code, 0, "{args:?}: {}{}", ran.out, ran.err);
        ran
    }

    /// A server, and where it listens.
    async fn serves(&self, args: &[&str]) -> (Going, String) {
        let flags = Everywhere::flags(args);
        let serve = ["serve", "--listen", "127.0.0.1:0"];
        let mut command = self.command(&[&serve[..], args].concat());
        command.args(flags);
        let mut going = Going::of(command);
        let first = going.out.next_line().await.unwrap().expect("it listens");
        let address = first.split_whitespace().next_back().unwrap().to_owned();
        (going, address)
    }

    /// Everything that stands in the home, with the rights of each.
    fn content(&self) -> Vec<(PathBuf, u32)> {
        let (mut folders, mut content) = (vec![self.place.path().to_owned()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                // What a process removes meanwhile has no rights.
                let Ok(found) = fs::symlink_metadata(&path) else { continue };
                content.push((path.clone(), found.permissions().mode() & 0o777));
                if found.is_dir() {
                    folders.push(path);
                }
            }
        }
        content
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_the_program_makes_is_its_owners_alone_whatever_the_umask() {
    for umask in ["000", "022", "777"] {
        let home = Home::new(umask);
        let (server, address) = home.serves(&[]).await;
        let server_flag = ["--server", &*address];
        let started = ["run", "start", "--task-thread-id", "t", "--run-id", "r", "--deferred", "--input", "-"];
        let mut command = home.command(&[&started[..], &server_flag].concat());
        fs::write(home.path("input"), "{\"a\":1}").unwrap();
        command.stdin(fs::File::open(home.path("input")).unwrap());
        assert_eq!(ran(command).await.code, 0);
        fs::remove_file(home.path("input")).unwrap();
        let stat = ["run", "worker", "--claim", "--runs", "1"];
        let program = "stat -c '%a %n' \"$(dirname \"$RUNLEDGER_RESULT\")\" \"$RUNLEDGER_INPUT\" >&2";
        let args = [&stat[..], &server_flag, &["--", "sh", "-c", program]].concat();
        let worker = home.done(&args).await;
        assert!(worker.err.contains("700 /") && worker.err.contains("600 /"), "{}", worker.err);
        let store = format!("sqlite:{}", home.path(".local/share/runledger/ledger.db").display());
        let export = ["export", "--store", &store, "--output"];
        home.done(&[&export[..], &["lines.jsonl", "--namespace", "default", "--cursor-output", "cursor"]].concat())
            .await;
        home.done(&["context", "add", "one", "--server", "127.0.0.1:1"]).await;
        let token =
            ["token", "new", "--name", "n", "--namespace", "*", "--role", "reader", "--access-file", "access.toml"];
        home.done(&[&token[..], &["--output", "token"]].concat()).await;
        home.done(&["token", "revoke", "--name", "n", "--access-file", "access.toml"]).await;

        let content = home.content();
        for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.lock", "lines.jsonl", "cursor", "token"]
            .into_iter()
            .chain(["access.toml", "contexts.toml"])
        {
            assert!(content.iter().any(|(path, _)| path.ends_with(name)), "{name} is not among {content:?}");
        }
        for (path, mode) in content {
            let right = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, right, "umask {umask}: {} has {mode:o}", path.display());
        }
        server.signal("TERM");
        server.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_of_an_earlier_release_is_closed_to_others_and_folders_stay_as_they_are() {
    let home = Home::new("022");
    fs::create_dir(home.path("data")).unwrap();
    fs::set_permissions(home.path("data"), fs::Permissions::from_mode(0o755)).unwrap();
    let store = format!("sqlite:{}", home.path("data/ledger.db").display());
    let (server, _) = home.serves(&["--store", &store]).await;
    server.signal("TERM");
    assert_eq!(server.ended().await.0, 0);
    for (before, after, said) in [(0o644, 0o600, true), (0o640, 0o640, false)] {
        for name in ["data/ledger.db", "data/ledger.db.lock"] {
            fs::set_permissions(home.path(name), fs::Permissions::from_mode(before)).unwrap();
        }
        let (server, address) = home.serves(&["--store", &store]).await;
        home.done(&["run", "start", "--task-thread-id", "t", "--server", &address]).await;
        for name in ["data/ledger.db", "data/ledger.db.lock", "data/ledger.db-wal", "data/ledger.db-shm"] {
            assert_eq!(home.mode(name), after, "{name} after {before:o}");
        }
        server.signal("TERM");
        let (code, _, log) = server.ended().await;
        assert_eq!((code, log.contains("everybody on this machine could read the ledger")), (0, said), "{log}");
    }
    assert_eq!(home.mode("data"), 0o755);
}

const NEW: [&str; 6] = ["token", "new", "--namespace", "*", "--role", "reader"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_is_lost_and_none_comes_back_however_many_are_made_and_revoked_at_once() {
    let home = Home::new("022");
    let access = ["--access-file", "access.toml"];
    let make = |name: String| {
        let output = format!("{name}.token");
        home.command(&[&NEW[..], &access, &["--name", &name, "--output", &output]].concat())
    };
    for ran in join_all((0..20).map(|number| ran(make(format!("first-{number}"))))).await {
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    let revoke = |number: usize| {
        home.command(&[&["token", "revoke", "--name", &format!("first-{number}")][..], &access].concat())
    };
    let making = (0..10).map(|number| ran(make(format!("second-{number}"))));
    let revoked = (0..10).map(|number| ran(revoke(number)));
    let (all_made, revoked) = tokio::join!(join_all(making), join_all(revoked));
    for ran in all_made.into_iter().chain(revoked) {
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    let list = home.done(&["token", "list", "--access-file", "access.toml", "-o", "json"]).await.out;
    let mut names: Vec<String> = list
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    let mut kept: Vec<String> = (10..20)
        .map(|number| format!("first-{number}"))
        .chain((0..10).map(|number| format!("second-{number}")))
        .collect();
    kept.sort();
    assert_eq!(names, kept);
    let left = fs::read_dir(home.place.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let beside: Vec<_> = left.filter(|name| name != "access.toml" && name.strip_suffix(".token").is_none()).collect();
    assert!(beside.is_empty(), "{beside:?}");
}

#[tokio::test]
async fn a_token_that_cannot_be_made_or_revoked_leaves_what_is_there() {
    let home = Home::new("022");
    let access = ["--access-file", "access.toml"];
    let new = |more: &[&str]| [&NEW[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let run = async |args: Vec<String>| home.run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let live = run(new(&["--name", "a", "--output", "live", "--access-file", "access.toml"])).await;
    assert_eq!((live.code, live.out.as_str()), (0, ""), "{}", live.err);
    let (token, entries) =
        (fs::read_to_string(home.path("live")).unwrap(), fs::read_to_string(home.path("access.toml")).unwrap());
    assert!(token.ends_with('\n') && !live.err.contains(token.trim()), "{}", live.err);
    fs::create_dir(home.path("folder")).unwrap();
    for (args, code) in [
        (new(&["--name", "", "--output", "live", "--access-file", "access.toml"]), 2),
        (new(&["--name", "b", "--output", "live", "--access-file", "folder"]), 1),
        (new(&["--name", "b", "--output", "folder", "--access-file", "access.toml"]), 1),
        (new(&["--name", "b", "--output", "no/such/folder", "--access-file", "access.toml"]), 1),
        (new(&["--name", "b", "--output", "access.toml", "--access-file", "./access.toml"]), 2),
        (words(&["token", "revoke", "--name", "b", "--access-file", "access.toml"]), 1),
        (words(&["token", "revoke", "--access-file", "access.toml"]), 2),
        (words(&["token", "revoke", "--sha256", "12", "--access-file", "access.toml"]), 2),
        (words(&["token", "revoke", "--name", "a", "--access-file", "absent.toml"]), 1),
    ] {
        let ran = run(args.clone()).await;
        assert_eq!(ran.code, code, "{args:?}: {}{}", ran.out, ran.err);
        assert_eq!(fs::read_to_string(home.path("live")).unwrap(), token, "{args:?}");
        assert_eq!(fs::read_to_string(home.path("access.toml")).unwrap(), entries, "{args:?}");
    }
    // A token that was not printed has no entry either.
    let full = Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let mut unprinted = home.command(&[&NEW[..], &access, &["--name", "b"]].concat());
    let unprinted = unprinted.stdout(full).stderr(Stdio::null()).status().await.unwrap();
    assert_eq!(unprinted.code(), Some(1));
    assert_eq!(fs::read_to_string(home.path("access.toml")).unwrap(), entries);

    // A file that a shell has made is the shell's, and others may read it: that is said.
    let shells = Stdio::from(fs::File::create(home.path("shells")).unwrap());
    fs::set_permissions(home.path("shells"), fs::Permissions::from_mode(0o644)).unwrap();
    let mut printed = home.command(&[&NEW[..], &["--name", "b"]].concat());
    let printed = printed.stdout(shells).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().await.unwrap();
    assert!(String::from_utf8_lossy(&printed.stderr).contains("--output makes one that they cannot"), "{printed:?}");
    assert!(fs::read_to_string(home.path("shells")).unwrap().starts_with("rl_"));

    // Of two tokens with one name, the hash says which.
    let second = run(new(&["--name", "a", "--output", "second", "--access-file", "access.toml"])).await;
    assert_eq!(second.code, 0, "{}", second.err);
    let both = home.run(&["token", "revoke", "--name", "a", "--access-file", "access.toml"]).await;
    assert!(both.code == 1 && both.err.contains("has 2 tokens \"a\": --sha256 says which of "), "{}", both.err);
    let digits = both.err.rsplit(' ').next().unwrap().trim();
    home.done(&["token", "revoke", "--sha256", digits, "--access-file", "access.toml"]).await;
    assert_eq!(home.done(&["token", "list", "--access-file", "access.toml"]).await.out.lines().count(), 2);
    assert!(exists_alone(home.place.path()), "nothing is left beside them");
}

fn exists_alone(home: &Path) -> bool {
    let names = ["access.toml", "live", "second", "folder", "shells"];
    fs::read_dir(home).unwrap().all(|entry| names.iter().any(|name| entry.as_ref().unwrap().file_name() == *name))
}

//! Whatever stands where the program reads a file: it ends, or goes on serving, and says what it found. The flags are taken
//! from the program itself, so that none is left out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tempfile::TempDir;
use tokio::process::Command;

use super::cli::ran;
use super::{every_command, path};
use crate::process::server::{Process, SOON};

/// A flag that names a file, and a command line that reads it, in which FILE stands for it.
struct Case {
    /// The families of commands that take the flag, or all clients.
    of: &'static str,
    flag: &'static str,
    line: &'static str,
    reads: Reads,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// A pipe is read as well.
    Once,
    /// It is read again later, so it is a file.
    Again,
}

const fn case(of: &'static str, flag: &'static str, reads: Reads, line: &'static str) -> Case {
    Case { of, flag, line, reads }
}

/// A file that is there, of the right kind.
const SOME: &str = "/etc/passwd";

const CASES: &[Case] = &[
    case("serve config", "config", Reads::Again, "serve --config FILE"),
    case("serve config", "store-file", Reads::Once, "serve --listen 127.0.0.1:0 --store-file FILE"),
    case("serve config", "access-file", Reads::Again, "serve --listen 127.0.0.1:0 --store memory --access-file FILE"),
    case("serve config", "tls-cert", Reads::Again, "serve --listen 127.0.0.1:0 --tls-cert FILE --tls-key SOME"),
    case("serve config", "tls-key", Reads::Again, "serve --listen 127.0.0.1:0 --tls-cert SOME --tls-key FILE"),
    case("serve config", "tls-client-ca", Reads::Again, TLS_CA),
    case("serve config", "tls-client-crl", Reads::Again, TLS_CRL),
    case(
        "serve config",
        "otlp-ca",
        Reads::Again,
        "serve --listen 127.0.0.1:0 --store memory \
        --otlp-endpoint https://127.0.0.1:1 --otlp-ca FILE",
    ),
    case(
        "serve config",
        "otlp-headers-file",
        Reads::Again,
        "serve --listen 127.0.0.1:0 --store memory \
        --otlp-endpoint http://127.0.0.1:1 --otlp-headers-file FILE",
    ),
    case("export doctor verify migrate retention", "config", Reads::Again, "doctor --config FILE"),
    case("export doctor verify migrate retention", "store-file", Reads::Once, "doctor --store-file FILE"),
    case("token", "access-file", Reads::Again, "token list --access-file FILE"),
    case("token", "access-file", Reads::Again, "token revoke --name x --access-file FILE"),
    case("token", "access-file", Reads::Again, "token new --name x --namespace * --role reader --access-file FILE"),
    case("*", "tls-ca", Reads::Again, "whoami --server https://127.0.0.1:1 --tls-ca FILE"),
    case(
        "*",
        "tls-cert",
        Reads::Again,
        "whoami --server https://127.0.0.1:1 --tls-ca CA --tls-cert FILE --tls-key SOME",
    ),
    case("*", "tls-key", Reads::Again, "whoami --server https://127.0.0.1:1 --tls-ca CA --tls-cert CA --tls-key FILE"),
    case("*", "token-file", Reads::Once, "whoami --server 127.0.0.1:1 --allow-plaintext-token --token-file FILE"),
    case("run", "metadata", Reads::Once, "run start --server 127.0.0.1:1 --task-thread-id t --metadata @FILE"),
    case("run", "input", Reads::Once, "run start --server 127.0.0.1:1 --task-thread-id t --input @FILE"),
    case("run", "result", Reads::Once, "run complete r --server 127.0.0.1:1 --result @FILE"),
    case("lifecycle", "", Reads::Once, "lifecycle check FILE"),
    case("lifecycle", "file", Reads::Once, "lifecycle draw --file FILE"),
    case("namespace", "cursor-file", Reads::Once, "namespace exported n --server 127.0.0.1:1 --cursor-file FILE"),
    case("config", "", Reads::Again, "config check FILE"),
    // No flag: the place is the user's.
    case("contexts", "", Reads::Again, "context list"),
];

const TLS_CA: &str = "serve --listen 127.0.0.1:0 --tls-cert SOME --tls-key SOME --tls-client-ca FILE";
const TLS_CRL: &str =
    "serve --listen 127.0.0.1:0 --tls-cert SOME --tls-key SOME --tls-client-ca SOME --tls-client-crl FILE";

/// Flags that name a file to write, or that only keep a name; and the argument of `run apply`, a stream that is waited for.
const NOT_READ: &[(&str, &str)] =
    &[("export", "output"), ("export", "cursor-output"), ("token", "output"), ("run", "")];

#[test]
fn every_flag_that_names_a_file_is_among_those_that_are_tried() {
    let mut seen = 0;
    for command in every_command().iter().skip(1) {
        let family = path(command).split(' ').next().unwrap().to_owned();
        let of_serve = ["serve", "config"].contains(&&*family);
        for arg in command.get_arguments() {
            let names = arg.get_value_names().unwrap_or_default();
            if !names.iter().any(|name| name.contains("FILE")) {
                continue;
            }
            let flag = arg.get_long().unwrap_or_default();
            let is_tried = CASES.iter().any(|case| {
                case.flag == flag && (case.of.split(' ').any(|of| of == family) || case.of == "*" && !of_serve)
            });
            assert!(is_tried || NOT_READ.contains(&(&*family, flag)), "{} --{flag}", path(command));
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}

/// What stands in a file's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Pipe,
    Folder,
    Endless,
    Large,
}

impl There {
    const ALL: [Self; 4] = [Self::Pipe, Self::Folder, Self::Endless, Self::Large];

    fn put(self, path: &Path) {
        match self {
            Self::Pipe => assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success()),
            Self::Folder => fs::create_dir(path).unwrap(),
            Self::Endless => std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
            // More than any of them may have.
            Self::Large => File::create(path).unwrap().set_len(17 << 20).unwrap(),
        }
    }

    fn sentence(self, reads: Reads) -> &'static str {
        match (self, reads) {
            (Self::Pipe, Reads::Once) => "nobody wrote to the pipe within 5 s",
            (Self::Pipe, Reads::Again) => "it is a pipe and no file",
            (Self::Folder, _) => "it is a folder and no file",
            (Self::Endless, Reads::Again) => "it is a device and no file",
            (Self::Endless, Reads::Once) | (Self::Large, _) => "it has more than ",
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_a_pipe_a_folder_endless_or_large_is_refused_by_a_sentence_and_waited_for_by_nobody() {
    let place = TempDir::new().unwrap();
    let ca = place.path().join("ca.pem");
    fs::write(&ca, crate::support::tls::Ca::new("files").pem()).unwrap();
    let tries = CASES.iter().enumerate().flat_map(|(at, case)| There::ALL.map(|there| (at, case, there)));
    let wrong = stream::iter(tries).map(async |(at, case, there)| {
        let home = place.path().join(format!("{at}-{there:?}"));
        fs::create_dir_all(home.join("runledger")).unwrap();
        let file = if case.of == "contexts" { home.join("runledger/contexts.toml") } else { home.join("file") };
        there.put(&file);
        let mut command = Command::new(env!("CARGO_BIN_EXE_runledger"));
        let shown = |path: &PathBuf| path.display().to_string();
        let words = case.line.split_whitespace().map(|word| match word {
            "SOME" => SOME.to_owned(),
            "CA" => shown(&ca),
            word => word.replace("FILE", &shown(&file)),
        });
        command.args(words).env_clear().env("HOME", &home).env("XDG_CONFIG_HOME", &home).stdin(Stdio::null());
        let ran = ran(command).await;
        let named = shown(&file);
        let is_told = ran.err.contains(there.sentence(case.reads)) && ran.err.contains(&named);
        let beside = fs::read_dir(file.parent().unwrap()).unwrap().count();
        let is_kept = beside == if case.of == "contexts" { 1 } else { 2 };
        // What is no file is a mistake of the command line. A command at an access file is refused, as by a wrong one.
        let is_usage = there != There::Large && !["token", "config", "contexts"].contains(&case.of);
        let ends = if is_usage { [2, 2] } else { [1, 2] };
        (!is_told || !is_kept || !ends.contains(&ran.code)).then(|| format!("{} and {there:?}: {ran:?}", case.line))
    });
    let wrong: Vec<String> = wrong.buffer_unordered(6).filter_map(async |wrong| wrong).collect().await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_from_a_pipe_is_read_where_it_is_read_once() {
    let script = "printf '{' | \"$0\" lifecycle check /dev/stdin; echo $?; \
                  printf not-a-store | \"$0\" doctor --store-file /dev/stdin; echo $?";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_runledger")]).env_clear().env("HOME", "/nowhere");
    let ran = ran(command).await;
    assert_eq!(ran.out, "1\n2\n", "{}", ran.err);
    assert!(
        ran.err.contains("/dev/stdin is not sound") && ran.err.contains("--store-file /dev/stdin: "),
        "{}",
        ran.err
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_in_the_place_of_a_file_that_is_followed_is_told_and_the_file_after_it_holds() {
    let place = TempDir::new().unwrap();
    let access = place.path().join("access.toml");
    let named = access.to_str().unwrap();
    let entry = |name: &str| {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_runledger"))
            .args(["token", "new", "--name", name, "--namespace", "*", "--role", "reader", "--access-file", named])
            .output()
            .unwrap();
        assert!(out.status.success());
    };
    entry("one");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--access-file", named];
    let mut process = Process::spawn(&[&serve[..], &["--reload-interval", "1s"]].concat());
    process.says("listens on").await;
    let aside = place.path().join("aside");
    fs::rename(&access, &aside).unwrap();
    There::Pipe.put(&access);
    process.says("it is a pipe and no file").await;
    fs::remove_file(&access).unwrap();
    fs::rename(&aside, &access).unwrap();
    entry("two");
    process.says("new access rules hold").await;
    process.signal("TERM");
    let (code, said) = process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_nowhere_to_go_is_an_error_and_a_file_that_is_open_is_not_replaced() {
    let place = TempDir::new().unwrap();
    let shell = |script: String| {
        let mut command = Command::new("bash");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_runledger")]).env_clear().current_dir(place.path());
        ran(command)
    };
    let store = format!("sqlite:{}", place.path().join("ledger.db").display());
    let server = Process::spawn(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
    server.says("the store is open").await;
    let new = "\"$0\" token new --name x --namespace x --role reader";
    let lost = shell(format!("{new} --access-file access.toml >&-")).await;
    assert!(lost.code == 1 && lost.err.contains("standard output is closed"), "{lost:?}");
    assert!(!place.path().join("access.toml").exists(), "an entry of a token that nobody has");
    let lost = shell(format!("\"$0\" export --store {store} >&-")).await;
    assert!(lost.code == 1 && lost.err.contains("standard output is closed"), "{lost:?}");
    let kept = shell(format!("\"$0\" export --store {store} >/dev/null")).await;
    assert_eq!(kept.code, 0, "{kept:?}");
    let between = shell(format!("(echo before; {new} --output /dev/stdout 2>&3; echo after) 3>&2 > between")).await;
    let text = fs::read_to_string(place.path().join("between")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(matches!(lines[..], ["before", token, "after"] if token.starts_with("rl_")), "{between:?}: {text}");
    let refused = shell(format!("{new} --output /dev/fd/3 3> open")).await;
    assert!(refused.code == 1 && refused.err.contains("open already"), "{refused:?}");
    File::create(place.path().join("zeros")).unwrap().set_len(1 << 30).unwrap();
    let large = shell(format!("\"$0\" export --store {store} --output zeros")).await;
    assert!(large.code == 1 && large.err.contains("no export wrote it"), "{large:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_answered_while_a_pipe_is_waited_for() {
    let place = TempDir::new().unwrap();
    let pipe = place.path().join("pipe");
    There::Pipe.put(&pipe);
    let mut process = Process::spawn(&["serve", "--listen", "127.0.0.1:0", "--store-file", pipe.to_str().unwrap()]);
    // It has opened the pipe: a writer finds its reader.
    let writer = tokio::task::spawn_blocking(move || File::options().write(true).open(pipe)).await.unwrap().unwrap();
    process.signal("TERM");
    let _status = process.ended(Duration::from_secs(4)).await;
    drop(writer);
}

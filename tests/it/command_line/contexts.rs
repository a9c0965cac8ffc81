//! Named contexts: kept by the binary in a home of its own, and used by every command that calls a server.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tempfile::TempDir;
use tokio::process::Command;

use super::cli::{Ran, command, ran};
use crate::support::authorities::Authority;
use crate::support::gate::Gate;
use crate::support::server::Server;

/// A user's home.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join(".config/runledger/contexts.toml")
    }

    fn writes(&self, text: &str) {
        std::fs::create_dir_all(self.file().parent().unwrap()).unwrap();
        std::fs::write(self.file(), text).unwrap();
    }

    /// A command of this user, who has named no server in the environment.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command("", args);
        command.env_remove("RUNLEDGER_SERVER").env("HOME", self.0.path()).current_dir(self.0.path());
        command
    }

    async fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args)).await
    }

    async fn done(&self, args: &[&str]) -> String {
        let ran = self.run(args).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}: {}", ran.out);
        ran.out
    }
}

#[tokio::test]
async fn contexts_are_added_used_shown_and_removed() {
    let home = Home::new();
    assert_eq!(home.done(&["context", "list"]).await, "CURRENT  NAME  SERVER  NAMESPACE  AS\n");
    home.done(&["context", "add", "one", "--server", "127.0.0.1:1,127.0.0.1:2", "--as", "agent-7"]).await;
    home.done(&["context", "add", "two", "--server", "https://[::1]:3", "--namespace", "qa", "--use"]).await;
    let list = home.done(&["context", "list"]).await;
    let rows: Vec<Vec<&str>> = list.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [vec!["one", "127.0.0.1:1,127.0.0.1:2", "agent-7"], vec!["*", "two", "https://[::1]:3", "qa"]]);
    let show = home.done(&["context", "show"]).await;
    let shown: Vec<Vec<&str>> = show.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(shown, [["name", "two"], ["current", "yes"], ["server", "https://[::1]:3"], ["namespace", "qa"]]);
    let json = home.done(&["context", "show", "one", "--output", "json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let expected = serde_json::json!({
        "name": "one", "current": false, "server": ["127.0.0.1:1", "127.0.0.1:2"], "as": "agent-7",
    });
    assert_eq!(json, expected);

    home.done(&["context", "use", "one"]).await;
    assert!(home.done(&["context", "show"]).await.starts_with("name     one\n"));
    let removed = home.run(&["context", "remove", "one"]).await;
    assert_eq!((removed.code, removed.out.as_str()), (0, ""));
    assert!(removed.err.contains("one was the current context, and none is current now"), "{}", removed.err);
    let none = home.run(&["context", "show"]).await;
    assert_eq!(
        (none.code, none.err.as_str()),
        (1, "runledger: no context is current: `runledger context use NAME` makes one so\n")
    );
    home.done(&["context", "use", "two"]).await;
    home.done(&["context", "use", "--none"]).await;
    assert_eq!(home.run(&["context", "show"]).await.code, 1);
    let gone = home.run(&["context", "use", "one"]).await;
    assert_eq!((gone.code, gone.err.as_str()), (1, "runledger: there is no context \"one\" among two\n"));
}

#[tokio::test]
async fn the_file_is_its_owners_alone_and_holds_paths_from_the_root_and_nothing_of_the_environment() {
    let home = Home::new();
    std::fs::write(home.0.path().join("token"), "s3cret").unwrap();
    let add = ["context", "add", "one", "--server", "127.0.0.1:1", "--token-file", "token"];
    let mut adding = home.command(&add);
    adding.env("RUNLEDGER_NAMESPACE", "elsewhere").env("RUNLEDGER_TOKEN", "s3cret").env("RUNLEDGER_AGENT_ID", "x");
    let Ran { code, err, .. } = ran(adding).await;
    assert_eq!((code, err.as_str()), (0, ""));
    let text = std::fs::read_to_string(home.file()).unwrap();
    let token = std::path::absolute(home.0.path().join("token")).unwrap();
    assert_eq!(text, format!("[contexts.one]\nserver = [\"127.0.0.1:1\"]\ntoken-file = \"{}\"\n", token.display()));
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.file()), 0o600);
    assert_eq!(mode(home.file().parent().unwrap().to_owned()), 0o700);

    let again = home.run(&add).await;
    let exists = "runledger: there is a context \"one\" already: --replace writes it anew\n";
    assert_eq!((again.code, again.err.as_str()), (1, exists));
    home.done(&[&add[..], &["--replace", "--namespace", "qa"]].concat()).await;
    assert!(std::fs::read_to_string(home.file()).unwrap().contains("namespace = \"qa\"\n"));

    // A link to the file, as tools for such files make it, stays one.
    let elsewhere = home.0.path().join("dotfiles.toml");
    std::fs::rename(home.file(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, home.file()).unwrap();
    home.done(&["context", "use", "one"]).await;
    assert!(std::fs::symlink_metadata(home.file()).unwrap().is_symlink());
    assert!(std::fs::read_to_string(elsewhere).unwrap().starts_with("current = \"one\"\n"));
}

#[tokio::test]
async fn many_commands_at_once_lose_no_context() {
    let home = Home::new();
    let names: Vec<String> = (0..8).map(|name| format!("c{name}")).collect();
    let adding = names.iter().map(|name| home.command(&["context", "add", name, "--server", "127.0.0.1:1"]));
    for ran in futures_util::future::join_all(adding.map(ran)).await {
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    let list = home.done(&["context", "list", "-o", "json"]).await;
    assert_eq!(list.lines().count(), 8, "{list}");
}

#[tokio::test]
async fn what_is_wrong_in_the_file_is_named_and_not_shown() {
    let home = Home::new();
    for (text, said) in [
        ("[contexts.a]\ntoken = \"s3cret\"\n", ", line 2: unknown field `token`, expected one of "),
        ("curent = \"a\"\n", ", line 1: unknown field `curent`, expected "),
        ("[contexts.a]\nserver = [\"nowhere\"]\n", ", line 2: expected HOST:PORT or https://HOST:PORT"),
        ("[contexts.a\n", ", line 1: "),
    ] {
        home.writes(text);
        let file = home.file().display().to_string();
        for (args, code) in [(&["run", "get", "r"][..], 2), (&["watch"], 2), (&["context", "list"], 1)] {
            let ran = home.run(args).await;
            assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
            assert!(ran.err.starts_with(&format!("runledger: {file}{said}")), "{}", ran.err);
            assert!(!ran.err.contains("s3cret"), "{}", ran.err);
        }
    }
    home.writes("current = \"gone\"\n[contexts.here]\n");
    let ran = home.run(&["run", "get", "r"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (2, "runledger: there is no context \"gone\" among here\n"));
    let homeless = ran_without_home(&["context", "add", "x"]).await;
    assert_eq!(homeless.code, 1, "{}", homeless.err);
}

async fn ran_without_home(args: &[&str]) -> Ran {
    ran(command("127.0.0.1:1", args)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flag_goes_before_the_environment_and_that_before_the_context() {
    let (home, server) = (Home::new(), Server::start("memory").await);
    let gate = Gate::before(server.address(), None).await;
    let address = gate.address.to_string();
    let token = |name: &str| {
        let path = home.0.path().join(name);
        std::fs::write(&path, name).unwrap();
        path.display().to_string()
    };
    let of_context = token("of-context");
    let add = ["context", "add", "one", "--server", &address, "--as", "a", "--namespace", "of-context", "--use"];
    home.done(&[&add[..], &["--token-file", &of_context]].concat()).await;
    let list = ["run", "list"];
    home.done(&list).await;
    let mut by_environment = home.command(&list);
    by_environment.env("RUNLEDGER_NAMESPACE", "of-environment").env("RUNLEDGER_TOKEN", "of-environment");
    assert_eq!(ran(by_environment).await.code, 0);
    let mut by_flags =
        home.command(&[&list[..], &["--namespace", "of-flag", "--token-file", &token("of-flag")]].concat());
    by_flags.env("RUNLEDGER_NAMESPACE", "of-environment").env("RUNLEDGER_TOKEN", "of-environment");
    assert_eq!(ran(by_flags).await.code, 0);
    assert_eq!(gate.sent("runledger-namespace"), ["of-context", "of-environment", "of-flag"]);
    assert_eq!(gate.sent("authorization"), ["Bearer of-context", "Bearer of-environment", "Bearer of-flag"]);
    assert_eq!(gate.sent("runledger-agent-id"), ["a"; 3]);

    home.done(&["context", "add", "other", "--server", &address]).await;
    home.done(&["run", "list", "--context", "other"]).await;
    let mut selected = home.command(&list);
    selected.env("RUNLEDGER_CONTEXT", "other");
    assert_eq!(ran(selected).await.code, 0);
    assert_eq!(gate.sent("authorization")[3..], ["", ""]);
    let unknown = home.run(&["run", "list", "--context", "thrid"]).await;
    assert_eq!(
        (unknown.code, unknown.err.as_str()),
        (2, "runledger: there is no context \"thrid\" among one, other\n")
    );
}

/// Variables that say otherwise than any context of these tests, as a shell has them from another server.
fn of_another_shell(command: &mut Command, server: &str, token_file: &str) {
    command
        .env("RUNLEDGER_SERVER", server)
        .env("RUNLEDGER_NAMESPACE", "of-environment")
        .env("RUNLEDGER_AGENT_ID", "of-environment")
        .env("RUNLEDGER_TOKEN_FILE", token_file)
        .env("RUNLEDGER_TOKEN", "of-environment")
        .env("RUNLEDGER_CLIENT_TLS", "no")
        .env("RUNLEDGER_ALLOW_PLAINTEXT_TOKEN", "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_that_is_named_is_final_and_what_says_otherwise_is_told_on_one_line() {
    let (home, server) = (Home::new(), Server::start("memory").await);
    let (own, other) = (Gate::before(server.address(), None).await, Gate::before(server.address(), None).await);
    let (address, elsewhere) = (own.address.to_string(), other.address.to_string());
    let token = |name: &str| {
        let path = home.0.path().join(name);
        std::fs::write(&path, name).unwrap();
        path.display().to_string()
    };
    let (of_context, of_environment) = (token("of-context"), token("of-environment"));
    let whole = ["context", "add", "whole", "--server", &address, "--as", "a", "--namespace", "of-context"];
    home.done(&[&whole[..], &["--token-file", &of_context]].concat()).await;
    home.done(&["context", "add", "bare", "--server", &address]).await;
    home.done(&["context", "add", "current", "--server", &elsewhere, "--use"]).await;
    let aside = "RUNLEDGER_SERVER, RUNLEDGER_AGENT_ID, RUNLEDGER_NAMESPACE, RUNLEDGER_TOKEN_FILE, RUNLEDGER_TOKEN, \
                 RUNLEDGER_ALLOW_PLAINTEXT_TOKEN say otherwise and are left aside\n";
    for (name, namespace, agent, bearer) in [("whole", "of-context", "a", "Bearer of-context"), ("bare", "", "", "")] {
        for by_flag in [true, false] {
            let list = ["run", "list"];
            let mut command = if by_flag {
                home.command(&[&list[..], &["--context", name]].concat())
            } else {
                let mut command = home.command(&list);
                command.env("RUNLEDGER_CONTEXT", name);
                command
            };
            of_another_shell(&mut command, &elsewhere, &of_environment);
            let ran = ran(command).await;
            assert_eq!(ran.code, 0, "{name}: {}", ran.err);
            assert_eq!(ran.err, format!("runledger: the context \"{name}\" is named, so {aside}"));
            let newest = |header| own.sent(header).pop().unwrap();
            let sent = (newest("runledger-namespace"), newest("runledger-agent-id"), newest("authorization"));
            assert_eq!(sent, (namespace.to_owned(), agent.to_owned(), bearer.to_owned()), "{name}");
        }
    }
    // A variable that says the same is no contradiction; one that says nothing sound is not even read.
    let mut same = home.command(&["run", "list", "--context", "whole"]);
    same.env("RUNLEDGER_SERVER", &address)
        .env("RUNLEDGER_NAMESPACE", "of-context")
        .env("RUNLEDGER_TOKEN_FILE", of_context);
    let same = ran(same).await;
    assert_eq!((same.code, same.err.as_str()), (0, ""));
    let mut broken = home.command(&["run", "list", "--context", "bare"]);
    broken
        .env("RUNLEDGER_SERVER", "no address")
        .env("RUNLEDGER_TOKEN", "two words")
        .env("RUNLEDGER_CLIENT_TLS_CERT", "x");
    let broken = ran(broken).await;
    assert_eq!(broken.code, 0, "{}", broken.err);
    assert_eq!(own.calls().len(), 6);
    assert_eq!(other.calls().len(), 0, "nothing went to the server of the environment, or of the current context");

    // A context that names no server is about the rest.
    home.done(&["context", "add", "somewhere", "--namespace", "of-somewhere"]).await;
    let mut somewhere = home.command(&["run", "list", "--context", "somewhere"]);
    somewhere.env("RUNLEDGER_SERVER", &address);
    let somewhere = ran(somewhere).await;
    assert_eq!((somewhere.code, somewhere.err.as_str()), (0, ""));
    assert_eq!(own.sent("runledger-namespace").pop().unwrap(), "of-somewhere");

    // A flag beside it was said for this very call; and `none` is no context, so that the environment counts.
    home.done(&["run", "list", "--context", "whole", "--namespace", "of-flag"]).await;
    assert_eq!(own.sent("runledger-namespace").pop().unwrap(), "of-flag");
    let mut none = home.command(&["run", "list", "--context", "none"]);
    of_another_shell(&mut none, &elsewhere, &of_environment);
    let none = ran(none).await;
    assert_eq!((none.code, none.err.contains("both set: the file goes before")), (0, true), "{}", none.err);
    assert_eq!(other.sent("authorization"), ["Bearer of-environment"]);
    let reserved = home.run(&["context", "add", "none", "--server", &address]).await;
    assert_eq!(reserved.code, 2, "{}", reserved.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contexts_token_and_its_leave_for_plain_text_are_for_its_own_servers() {
    let (home, server) = (Home::new(), Server::start("memory").await);
    let (own, other) = (Gate::before(server.address(), None).await, Gate::before(server.address(), None).await);
    let (address, elsewhere) = (own.address.to_string(), other.address.to_string());
    let token = home.0.path().join("token");
    std::fs::write(&token, "s3cret").unwrap();
    let token = token.display().to_string();
    let add =
        ["context", "add", "one", "--server", &address, "--token-file", &token, "--allow-plaintext-token", "--use"];
    home.done(&add).await;
    let list = ["run", "list"];
    let said = format!(
        "runledger: the token of the context \"one\" is for its own servers, and is not sent to {elsewhere}: \
         --token-file names one for it\n"
    );
    for named in [&[][..], &["--context", "one"]] {
        let away = home.run(&[&list[..], named, &["--server", &elsewhere]].concat()).await;
        assert_eq!((away.code, &*away.err), (0, &*said), "{named:?}");
    }
    let mut by_environment = home.command(&list);
    by_environment.env("RUNLEDGER_SERVER", &elsewhere);
    let away = ran(by_environment).await;
    assert_eq!((away.code, &*away.err), (0, &*said));
    let both = home.run(&[&list[..], &["--server", &format!("{address},{elsewhere}")]].concat()).await;
    assert_eq!(both.code, 0, "{}", both.err);
    assert!(both.err.contains("is not sent to"), "one of two is not its own: {}", both.err);
    assert!(own.sent("authorization").iter().all(String::is_empty), "{:?}", own.sent("authorization"));
    let said_so = ["--server", &elsewhere, "--token-file", &token];
    home.done(&[&list[..], &said_so].concat()).await;
    assert_eq!(other.sent("authorization"), ["", "", "", "Bearer s3cret"]);
    home.done(&[&list[..], &["--server", &address]].concat()).await;
    assert_eq!(own.sent("authorization").pop().unwrap(), "Bearer s3cret");
    // The context's leave to send a token in plain text is not for a server that it does not name.
    let plain = home.run(&[&list[..], &["--server", "192.0.2.9:1", "--token-file", &token]].concat()).await;
    assert_eq!(plain.code, 2, "{}", plain.err);
    assert!(plain.err.contains("in plain text, for everybody on the way to read"), "{}", plain.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workers_program_calls_as_the_worker_does_whatever_contexts_there_are() {
    let (home, server) = (Home::new(), Server::start("memory").await);
    let gate = Gate::before(server.address(), None).await;
    let address = gate.address.to_string();
    home.done(&["context", "add", "one", "--server", &address, "--namespace", "of-context"]).await;
    home.done(&["context", "add", "current", "--server", "127.0.0.1:1", "--as", "other", "--use"]).await;
    let program = "exec \"$0\" run update \"$RUNLEDGER_RUN_ID\" --lease-epoch \"$RUNLEDGER_LEASE_EPOCH\" --label a=b";
    let worker = ["run", "worker", "--task-thread-id", "t", "--as", "a", "--context", "one", "--namespace", "of-flag"];
    let binary = env!("CARGO_BIN_EXE_runledger");
    let mut command = home.command(&[&worker[..], &["--", "bash", "-c", program, binary]].concat());
    of_another_shell(&mut command, "127.0.0.1:2", "/nowhere");
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let ran = ran(command).await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("a=b"), "{}", ran.out);
    assert!(gate.sent("runledger-namespace").iter().all(|sent| sent == "of-flag"), "{:?}", gate.calls());
    assert!(gate.sent("runledger-agent-id").iter().all(|sent| sent == "a"));
    assert!(gate.sent("authorization").iter().all(String::is_empty));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_of_tls_leaves_an_address_in_plain_text_as_it_is() {
    let (home, server, authority) = (Home::new(), Server::start("memory").await, Authority::new("a"));
    let gate = Gate::before(server.address(), Some(authority.server())).await;
    let (address, ca) = (gate.address.to_string(), authority.file().display().to_string());
    home.done(&["context", "add", "one", "--server", &address, "--tls-ca", &ca, "--use"]).await;
    home.done(&["run", "list"]).await;
    home.done(&["health"]).await;
    home.done(&["run", "list", "--server", &format!("http://{}", server.address())]).await;
    let over_tls = home.run(&["run", "list", "--server", server.address()]).await;
    assert_eq!(over_tls.code, 3, "{}", over_tls.err);
    assert_eq!(gate.calls().len(), 2);
}

//! Settings of a server: from flags, the environment and a file, looked at before it starts and while it serves.

use std::path::PathBuf;

use runledger_client::Health;
use runledger_proto::v1::StartRunRequest;
use tempfile::TempDir;
use tokio::process::Command;

use super::cli::{Ran, command, ran};
use crate::process::server::{Client, SOON, Server, eventually};

/// A directory with a file of settings.
struct Settings(TempDir);

impl Settings {
    fn of(text: &str) -> Self {
        let settings = Self(TempDir::new().unwrap());
        settings.write(text);
        settings
    }

    fn write(&self, text: &str) {
        // As editors and configuration management do it: the file is there or not, and never half.
        let new = self.0.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("runledger.toml")
    }

    fn name(&self) -> String {
        self.path().to_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command("", args);
        command.env_remove("RUNLEDGER_SERVER").current_dir(self.0.path());
        command
    }

    async fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args)).await
    }
}

async fn start(client: &mut Client, run_id: &str) -> Result<(), tonic::Status> {
    let start = StartRunRequest { run_id: run_id.to_owned(), task_thread_id: "t".to_owned(), ..Default::default() };
    client.start_run(start).await.map(drop)
}

/// The line of a setting in what `config show` printed: its value and its source.
fn line<'a>(shown: &'a str, key: &str) -> Vec<&'a str> {
    let line = shown.lines().find(|line| line.starts_with(&format!("{key} ")));
    let (setting, source) = line.unwrap_or_else(|| panic!("{key}: {shown}")).split_once('#').unwrap();
    vec![setting.split_once('=').unwrap().1.trim(), source.trim()]
}

#[tokio::test]
async fn a_file_with_three_mistakes_names_all_three_and_nothing_is_served() {
    let settings = Settings::of("listen_adress = \"x\"\nlog = \"info\"\nconnections = 2\nlog_format = \"xml\"\n");
    let name = settings.name();
    for args in [
        vec!["serve", "--config", &name],
        vec!["config", "check", &name],
        vec!["config", "check", "--config", &name],
        vec!["config", "show", &name],
    ] {
        let ran = settings.run(&args).await;
        let mistakes = [
            "1: unknown key `listen_adress`: did you mean `listen`?",
            "3: `connections`: 2 is not in 3..=1000",
            "4: `log_format`: expected one of text, json",
        ];
        let wanted: Vec<_> = mistakes.iter().map(|mistake| format!("runledger: {name}:{mistake}")).collect();
        assert_eq!(ran.err.lines().collect::<Vec<_>>(), wanted, "{args:?}");
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
    }
}

#[tokio::test]
async fn a_flag_is_above_the_environment_which_is_above_the_file_which_is_above_the_default() {
    let settings = Settings::of("connections = 11\nclient_connections = 12\nwait_max = \"13s\"\nauth = [\"none\"]\n");
    let name = settings.name();
    let mut command = settings.command(&["config", "show", &name, "--client-connections", "22"]);
    command.env("RUNLEDGER_CLIENT_CONNECTIONS", "32").env("RUNLEDGER_WAIT_MAX", "33s");
    command.env("RUNLEDGER_STORE", "postgres://app:hunter2@db/runs");
    let shown = ran(command).await;
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    for (key, value, source) in [
        ("connections", "11", "file"),
        ("client_connections", "22", "flag"),
        ("wait_max", "\"33s\"", "environment"),
        ("log", "\"warn,runledger=info\"", "default"),
        ("auth", "\"none\"", "file"),
        ("store", "\"postgres://app:***@db/runs\"", "environment"),
    ] {
        assert_eq!(line(&shown.out, key), [value, source], "{key}");
    }
}

#[tokio::test]
async fn a_check_reads_the_files_that_the_settings_name_and_tells_every_mistake() {
    let settings = Settings::of(
        "store = \"memory\"\ntls_cert = \"none.pem\"\ntls_key = \"none.key\"\naccess_file = \"none.toml\"\n\
         otlp_endpoint = \"http://127.0.0.1:4317\"\notlp_headers_file = \"none.headers\"\n",
    );
    let bad = settings.run(&["config", "check", "runledger.toml"]).await;
    assert_eq!(bad.code, 1, "{}", bad.err);
    for file in ["none.pem", "none.toml", "none.headers"] {
        assert!(bad.err.contains(file), "{file}: {}", bad.err);
    }
    settings.write("store = \"memory\"\ntls_cert = \"none.pem\"\n");
    let half = settings.run(&["config", "check", "runledger.toml"]).await;
    assert!(half.code == 1 && half.err.contains("--tls-cert needs --tls-key"), "{}", half.err);
    settings.write("store = \"memory\"\n");
    let good = settings.run(&["config", "check", "runledger.toml"]).await;
    assert_eq!((good.code, good.out.as_str()), (0, "the settings are good\n"), "{}", good.err);
}

#[tokio::test]
async fn a_store_with_a_password_stands_in_a_file_of_its_own() {
    let settings = Settings::of("store_file = \"store\"\n");
    std::fs::write(settings.0.path().join("store"), "postgres//app:hunter2@db/runs\n").unwrap();
    let bad = settings.run(&["config", "check", "runledger.toml"]).await;
    assert_eq!(bad.code, 1);
    assert!(bad.err.contains("--store-file store") && !bad.err.contains("hunter2"), "{}", bad.err);
    std::fs::write(settings.0.path().join("store"), "memory\n").unwrap();
    assert_eq!(settings.run(&["config", "check", "runledger.toml"]).await.code, 0);
    let mut in_both = settings.command(&["config", "show", "--store", "memory"]);
    in_both.env("RUNLEDGER_STORE_FILE", "store");
    let shown = ran(in_both).await;
    assert_eq!(line(&shown.out, "store"), ["\"memory\"", "flag"], "{}", shown.err);
    assert!(
        shown.out.contains("# store_file is not set"),
        "a flag sets the environment's other way aside: {}",
        shown.out
    );
    let flag = settings.run(&["config", "show", "runledger.toml", "--store", "memory"]).await;
    assert_eq!(line(&flag.out, "store"), ["\"memory\"", "flag"], "a flag sets the file's other way aside");
    assert!(flag.out.contains("# store_file is not set"), "{}", flag.out);
    settings.write("store_file = \"store\"\nstore = \"memory\"\n");
    let both = settings.run(&["config", "check", "runledger.toml"]).await;
    assert!(both.code == 1 && both.err.contains("give one"), "{}", both.err);
}

#[tokio::test]
async fn every_command_on_the_store_finds_it_in_the_file_of_settings() {
    let settings = Settings::of("store = \"sqlite:own.db\"\nlisten = \"127.0.0.1:0\"\n");
    let name = settings.name();
    let mut serve = settings.command(&["migrate"]);
    serve.env("RUNLEDGER_CONFIG", &name);
    let migrated = ran(serve).await;
    assert_eq!(migrated.code, 0, "{}", migrated.err);
    assert!(settings.0.path().join("own.db").is_file(), "{}", migrated.out);
    for args in [&["verify"][..], &["doctor"], &["export"], &["retention", "preview"], &["migrate"]] {
        let mut of_environment = settings.command(args);
        of_environment.env("RUNLEDGER_CONFIG", &name);
        let by_flag = [args, &["--config", &name]].concat();
        for command in [of_environment, settings.command(&by_flag)] {
            let found = ran(command).await;
            assert_eq!(found.code, 0, "{args:?}: {} {}", found.out, found.err);
        }
        let elsewhere = settings.run(&[args, &["--config", &name, "--store", "sqlite:own.db/x.db"]].concat()).await;
        assert_ne!(elsewhere.code, 0, "{args:?}: a flag is above the file");
    }
    settings.write("shop = 1\n");
    let wrong = settings.run(&["doctor", "--config", &name]).await;
    assert!(wrong.code == 2 && wrong.err.contains("unknown key `shop`"), "{}", wrong.err);
}

#[tokio::test]
async fn the_collector_that_all_programs_share_is_shown() {
    let settings = Settings::of("store = \"memory\"\n");
    let mut shared = settings.command(&["config", "show", "runledger.toml"]);
    shared.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
    let shown = ran(shared).await;
    assert_eq!(line(&shown.out, "otlp_endpoint"), ["\"http://127.0.0.1:4317\"", "environment"], "{}", shown.err);
}

#[tokio::test]
async fn a_change_by_which_the_server_would_not_start_again_is_refused_until_it_would() {
    let good = "store = \"memory\"\nreload_interval = \"50ms\"\n";
    let settings = Settings::of(good);
    let server = Server::start_with(&["--config", &settings.name()]).await;
    server.becomes("readiness", Health::Serving, SOON).await;
    let access = settings.0.path().join("access.toml");
    let access_file = access.to_str().unwrap();
    settings.write(&format!("{good}access_file = \"{access_file}\"\ncaller_calls_per_second = 1\n"));
    server.process.says("the file of settings is wrong: they stay as they are").await;
    assert!(server.process.said().contains(access_file), "{}", server.process.said());
    let mut client = server.hasty();
    for nth in 0..20 {
        start(&mut client, &format!("before-{nth}")).await.unwrap();
    }
    // What was wrong was another file: it is there now.
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let entry = format!(
        "[[token]]\nname = \"a\"\nsha256 = \"{hash}\"\ngrants = [{{ namespaces = [\"*\"], roles = [\"admin\"] }}]\n"
    );
    std::fs::write(access, entry).unwrap();
    server.process.says("settings have changed, and hold settings=\"caller_calls_per_second\"").await;
    assert_eq!(server.process.said().matches("the file of settings is wrong").count(), 1);
}

#[tokio::test]
async fn what_can_be_reloaded_is_at_a_sighup_and_what_cannot_is_named() {
    let settings = Settings::of("store = \"memory\"\nreload_interval = \"1h\"\n");
    let server = Server::start_with(&["--config", &settings.name()]).await;
    server.becomes("readiness", Health::Serving, SOON).await;
    let mut client = server.hasty();
    for nth in 0..20 {
        start(&mut client, &format!("before-{nth}")).await.unwrap();
    }
    settings.write("store = \"memory\"\nreload_interval = \"1h\"\ncaller_calls_per_second = 1\nconnections = 9\n");
    server.process.signal("HUP");
    server.process.says("hold after a restart").await;
    let said = server.process.said();
    assert!(said.contains("caller_calls_per_second") && said.contains("connections"), "{said}");
    let limited = eventually(SOON, async || start(&mut client, "after").await.err());
    assert_eq!(limited.await.expect("there is a limit").code(), tonic::Code::ResourceExhausted);

    settings.write("store = \"memory\"\nreload_interval = \"1h\"\ncaller_calls_per_secnd = 1\n");
    server.process.signal("HUP");
    server.process.says("did you mean `caller_calls_per_second`").await;
    // Nothing has changed by it.
    let limited = eventually(SOON, async || start(&mut client, "still").await.err());
    assert_eq!(limited.await.expect("there is a limit").code(), tonic::Code::ResourceExhausted);
}

#[tokio::test]
async fn help_names_the_file_and_the_order_of_precedence() {
    let settings = Settings::of("");
    let help = settings.run(&["config", "--help"]).await.out;
    assert!(
        help.replace('\n', " ").contains("flags, then by the environment, then by the file, then by defaults"),
        "{help}"
    );
    assert!(settings.run(&["serve", "--help"]).await.out.contains("--config <FILE>"));
    assert!(settings.run(&["config", "reference"]).await.out.contains("| `listen` |"));
}

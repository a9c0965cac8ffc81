//! What is said of that which was asked for and not done, and of what was taken for something else.

use std::path::Path;

use tempfile::TempDir;

use super::cli::{cli, done};
use super::{every_command, examples_of};
use crate::support::server::Server;

const NEW: [&str; 9] =
    ["token", "new", "--name", "ci", "--namespace", "default", "--role", "reader", "--expires-in=1d"];

#[tokio::test]
async fn a_token_replaces_a_token_or_nothing_and_else_only_what_force_says() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let new = async |more: &[&str]| cli("", &[&NEW[..], more].concat()).await;
    let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let (key, file, access) = (path("server.key"), path("token"), path("access.toml"));
    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nprecious\n").unwrap();
    let ran = new(&["--output", &key, "--access-file", &access]).await;
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    assert!(ran.err.contains("holds no token") && ran.err.contains("--force"), "{}", ran.err);
    assert!(text("server.key").contains("precious") && !Path::new(&access).exists());
    for other in ["rl_a b", "rl", "a token", "rl_a\nrl_b\n", &"x".repeat(100_000)] {
        std::fs::write(&file, other).unwrap();
        assert_eq!(new(&["--output", &file]).await.code, 1, "{other:.20}");
        assert_eq!(text("token"), other);
    }
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    assert_eq!(new(&["--output", &file]).await.code, 1);
    std::fs::write(&file, "").unwrap();
    for _ in 0..2 {
        let ran = new(&["--output", &file, "--access-file", &access]).await;
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(text("token").starts_with("rl_"));
    }
    assert_eq!(new(&["--output", &key, "--force"]).await.code, 0);
    assert!(text("server.key").starts_with("rl_"));
    assert_eq!(new(&["--force"]).await.code, 2);
}

#[tokio::test]
async fn a_grant_for_no_namespace_is_refused_by_its_flag_and_in_the_file() {
    let directory = TempDir::new().unwrap();
    let access = directory.path().join("access.toml").display().to_string();
    for name in [" ", "A", "a b", "é", "a."] {
        let ran = cli(
            "",
            &["token", "new", "--name", "x", "--namespace", name, "--role", "reader", "--access-file", &access],
        )
        .await;
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("--namespace") && ran.err.contains("no namespace"), "{}", ran.err);
    }
    assert!(!Path::new(&access).exists());
    assert_eq!(cli("", &[&NEW[..], &["--access-file", &access]].concat()).await.code, 0);
    let wrong = std::fs::read_to_string(&access).unwrap().replace("\"default\"", "\"Default\"");
    std::fs::write(&access, &wrong).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--access-file", &access];
    let ran = cli("", &serve).await;
    assert!(ran.code == 1 && ran.err.contains("token 1 (`ci`): namespaces: `Default`"), "{}: {}", ran.code, ran.err);
    let ran = cli("", &["config", "check", "--access-file", &access]).await;
    assert!(ran.code != 0 && ran.err.contains("`Default`"), "{}: {} {}", ran.code, ran.out, ran.err);
}

#[tokio::test]
async fn a_broken_access_file_is_told_by_its_own_lines() {
    let directory = TempDir::new().unwrap();
    let access = directory.path().join("access.toml").display().to_string();
    let broken = "\n\n[[token]]\nname = \"a\"\ngrants = [";
    std::fs::write(&access, broken).unwrap();
    let said = async |args: &[&str]| {
        let ran = cli("", args).await;
        assert_eq!(ran.code, 1, "{}", ran.err);
        let (_, line) = ran.err.split_once(": line ").unwrap_or_else(|| panic!("{}", ran.err));
        line.to_owned()
    };
    let by_new = said(&[&NEW[..], &["--access-file", &access]].concat()).await;
    assert_eq!(by_new, said(&["token", "list", "--access-file", &access]).await);
    assert!(by_new.starts_with('5'), "{by_new}");
    assert_eq!(std::fs::read_to_string(&access).unwrap(), broken);
}

#[tokio::test]
async fn what_a_run_that_was_there_did_not_take_is_said() {
    let server = Server::start("memory").await;
    let server = server.address();
    let start = ["run", "start", "--task-thread-id", "t", "--run-id", "r"];
    done(server, &[&start[..], &["--label", "a=b", "--metadata", "{\"a\": 1}"]].concat()).await;
    // What the run has already is no loss.
    done(server, &[&start[..], &["--label", "a=b", "--metadata", "{\"a\": 1}"]].concat()).await;
    let more = ["--metadata", "{\"z\": 1}", "--input", "{}", "--label", "a=c", "--workflow", "w", "--phase", "p"];
    let ran = cli(server, &[&start[..], &more].concat()).await;
    let wanted = "--workflow-id, --label, --metadata, --input, --phase were not taken";
    assert!(ran.code == 0 && ran.err.contains(wanted), "{}: {}", ran.code, ran.err);
    done(server, &["run", "complete", "r", "--result", "{}"]).await;
    done(server, &["run", "complete", "r"]).await;
    let ran = cli(server, &["run", "complete", "r", "--result", "{}"]).await;
    assert!(ran.code == 0 && ran.err.contains("ended already") && ran.err.contains("--result was not"), "{}", ran.err);
}

#[tokio::test]
async fn an_object_that_is_none_is_told_with_what_to_write() {
    let start = ["run", "start", "--task-thread-id", "t"];
    for (text, wanted) in [
        ("nofile.json", "a file is named as @FILE"),
        ("7", "it is no object"),
        ("[1]", "it is a list"),
        ("\"a\"", "it is no object"),
        ("", "it is empty"),
        ("{\"a\":", "it is no JSON"),
    ] {
        for flag in ["--metadata", "--input"] {
            let ran = cli("127.0.0.1:1", &[&start[..], &[flag, text]].concat()).await;
            assert_eq!(ran.code, 2, "{}", ran.err);
            assert!(ran.err.contains(flag) && (ran.err.contains(wanted) || text.is_empty()), "{text}: {}", ran.err);
            assert!(!ran.err.contains("expected ident") && !ran.err.contains("sequence"), "{}", ran.err);
        }
    }
    let both = cli("127.0.0.1:1", &[&start[..], &["--metadata", "-", "--input", "-"]].concat()).await;
    assert_eq!(both.code, 2, "{}", both.err);
    assert!(both.err.contains("--metadata and --input both read standard input"), "{}", both.err);
}

#[test]
fn no_example_of_a_help_begins_a_run_that_the_pages_have_ended() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![std::fs::read_to_string(root.join("README.md")).unwrap()];
    for page in std::fs::read_dir(root.join("docs")).unwrap() {
        let path = page.unwrap().path();
        if path.is_file() {
            pages.push(std::fs::read_to_string(path).unwrap());
        }
    }
    let mut seen = 0;
    for example in every_command().iter().flat_map(examples_of) {
        let Some((_, after)) = example.split_once("--run-id ") else { continue };
        let id = after.split(' ').next().unwrap();
        let is_id = |word: &str| word == id;
        let of_ids = |char: char| !(char.is_ascii_alphanumeric() || "-._~".contains(char));
        assert!(!pages.iter().any(|page| page.split(of_ids).any(is_id)), "{id} of {example}");
        seen += 1;
    }
    assert!(seen >= 2, "{seen}");
}

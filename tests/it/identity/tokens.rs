//! Tokens as operators make them, and a server as they start it.

use runledger_proto::v1::GetRunRequest;

use super::callers::{Caller, Place, entry, grant, reason};
use crate::process::server::{Process, SOON, run};

#[tokio::test]
async fn a_token_that_was_made_is_taken_within_moments_and_is_shown_nowhere() {
    let place = Place::start(&entry("first", &grant("*", "reader", ""))).await;
    let file = place.path.to_str().unwrap();
    let made = ["token", "new", "--name", "ci", "--namespace", "default", "--role", "reporter", "--agent", "ci-*"];
    let (code, said) = run(&[&made[..], &["--access-file", file]].concat()).await;
    assert_eq!(code, 0, "{said}");
    let token = said.lines().find(|line| line.starts_with("rl_")).unwrap().to_owned();
    place.server.process.says("new access rules hold").await;
    let mut client = place.client(Caller::of(&token).acting("ci-1"));
    let status = client.get_run(GetRunRequest { run_id: "none".into(), ..Default::default() }).await.unwrap_err();
    assert_eq!(reason(&status), "RUN_NOT_FOUND");
    let (code, listed) = run(&["token", "list", "--access-file", file]).await;
    assert!(code == 0 && listed.contains("ci") && listed.contains("first") && listed.contains("ci-*"), "{listed}");
    let kept = std::fs::read_to_string(&place.path).unwrap();
    for text in [&listed, &kept, &place.server.process.said()] {
        assert!(!text.contains(&token), "{text}");
    }
}

#[tokio::test]
async fn a_server_whose_access_file_is_wrong_does_not_start_and_names_all_that_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.toml");
    std::fs::write(
        &path,
        "[[token]]\nname = \"a\"\nsha256 = \"1\"\ngrants = [{ namespaces = [\"*\"], roles = [\"boss\"] }]\n",
    )
    .unwrap();
    let serve = |more: &[&str]| {
        let own = ["serve", "--listen", "127.0.0.1:0", "--store", "memory"];
        Process::spawn(&[&own, more].concat())
    };
    let file = path.to_str().unwrap();
    let (code, said) = serve(&["--access-file", file]).exited(SOON).await;
    assert!(code == 1 && said.contains("sha256 must be") && said.contains("`boss` is none of"), "{code}: {said}");
    let (code, said) = serve(&["--access-file", "/nowhere/access.toml"]).exited(SOON).await;
    assert!(code == 1 && said.contains("cannot read /nowhere/access.toml"), "{code}: {said}");
    let (code, said) = serve(&["--auth", "token"]).exited(SOON).await;
    assert!(code == 2 && said.contains("--access-file"), "{code}: {said}");
    let (code, said) = serve(&["--auth", "none", "--access-file", file]).exited(SOON).await;
    assert!(code == 2 && said.contains("--auth none"), "{code}: {said}");
    std::fs::write(&path, entry("a", &grant("*", "reader", ""))).unwrap();
    let (code, said) = serve(&["--auth", "jwt", "--access-file", file]).exited(SOON).await;
    assert!(code == 1 && said.contains("[[issuer]]"), "{code}: {said}");
}

#[tokio::test]
async fn an_address_beyond_loopback_needs_identity_and_encryption_or_a_word_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.toml");
    std::fs::write(&path, entry("a", &grant("*", "reader", ""))).unwrap();
    let file = path.to_str().unwrap();
    let serve = |more: &[&str]| {
        let own = ["serve", "--listen", "0.0.0.0:0", "--store", "memory"];
        Process::spawn(&[&own, more].concat())
    };
    let (code, said) = serve(&[]).exited(SOON).await;
    assert!(code == 2 && said.contains("--access-file") && said.contains("--insecure"), "{code}: {said}");
    let (code, said) = serve(&["--access-file", file]).exited(SOON).await;
    assert!(code == 2 && said.contains("--tls-cert") && said.contains("--insecure"), "{code}: {said}");
    serve(&["--access-file", file, "--insecure"]).says("listens on").await;
}

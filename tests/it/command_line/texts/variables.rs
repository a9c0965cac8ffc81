//! Variables of the environment whose value makes no sense: what is said names them, as nobody has typed their flags.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::{Arg, Command};
use tempfile::TempDir;

use super::{arguments, is};
use crate::command_line::cli::{command, ran};
use crate::support::server::Server;

/// A value that no argument with a form of its own takes.
const NONSENSE: &str = "\u{1}nonsense;é";

fn takes(arg: &Arg, value: &OsStr) -> bool {
    let alone = Arg::new("alone").long("alone").value_parser(arg.get_value_parser().clone()).env(Resettable::Reset);
    let mut word = OsString::from("--alone=");
    word.push(value);
    Command::new("alone").no_binary_name(true).arg(alone).try_get_matches_from([word]).is_ok()
}

#[tokio::test]
async fn a_variable_whose_value_makes_no_sense_is_named() {
    let (mut seen, mut named) = (BTreeSet::new(), 0);
    for (called, arg) in arguments() {
        let Some(variable) = arg.get_env() else { continue };
        let is_path = is::<PathBuf>(&arg) || is::<OsString>(&arg);
        if is_path || !seen.insert(variable.to_owned()) {
            continue;
        }
        let path = called.rsplit_once(' ').unwrap().0;
        let words: Vec<&str> = path.split(' ').collect();
        for value in [OsStr::from_bytes(b"\xff"), OsStr::new(NONSENSE)] {
            if takes(&arg, value) {
                continue;
            }
            let mut wrong = command("", &words);
            wrong.env_remove("RUNLEDGER_SERVER").env(variable, value);
            let ran = ran(wrong).await;
            let variable = variable.to_str().unwrap();
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{path}: {variable}: {}", ran.err);
            assert!(ran.err.starts_with(&format!("error: {variable}")), "{path}: {}", ran.err);
            named += 1;
        }
    }
    assert!(named >= 40, "{named}");
}

#[tokio::test]
async fn a_flag_that_was_typed_is_named_and_not_its_variable() {
    let mut wrong = command("", &["run", "list", "--server", "nonsense"]);
    wrong.env("RUNLEDGER_SERVER", "nonsense");
    let ran = ran(wrong).await;
    assert!(ran.code == 2 && ran.err.starts_with("error: invalid value 'nonsense'"), "{}", ran.err);
}

#[tokio::test]
async fn a_flag_of_the_workers_program_is_none_that_was_typed() {
    let program = ["run", "worker", "--as", "a", "--claim", "--", "prog", "--server", "x:1"];
    for (words, begins) in [
        (program.to_vec(), "error: RUNLEDGER_SERVER: invalid value 'nonsense'"),
        ([&["run", "worker", "--server", "nonsense"], &program[2..]].concat(), "error: invalid value 'nonsense'"),
    ] {
        let mut wrong = command("", &words);
        wrong.env("RUNLEDGER_SERVER", "nonsense");
        let ran = ran(wrong).await;
        assert!(ran.code == 2 && ran.err.starts_with(begins), "{words:?}: {}", ran.err);
    }
}

#[tokio::test]
async fn a_file_of_settings_that_a_variable_names_is_told_with_the_variable() {
    let mut wrong = command("", &["serve"]);
    wrong.env_remove("RUNLEDGER_SERVER").env("RUNLEDGER_STORE", "nonsense");
    let by_variable = ran(wrong).await;
    assert!(by_variable.code == 2 && by_variable.err.contains("RUNLEDGER_STORE: expected"), "{}", by_variable.err);
    let directory = TempDir::new().unwrap();
    let missing = directory.path().join("missing.toml").display().to_string();
    let mut wrong = command("", &["serve"]);
    wrong.env_remove("RUNLEDGER_SERVER").env("RUNLEDGER_CONFIG", &missing);
    let by_variable = ran(wrong).await;
    assert!(by_variable.code == 2 && by_variable.err.contains("RUNLEDGER_CONFIG: cannot read"), "{}", by_variable.err);
    let mut wrong = command("", &["serve", "--config", &missing]);
    wrong.env_remove("RUNLEDGER_SERVER");
    let by_flag = ran(wrong).await;
    assert!(by_flag.code == 2 && !by_flag.err.contains("RUNLEDGER_CONFIG"), "{}", by_flag.err);
}

#[tokio::test]
async fn of_two_tokens_of_the_environment_it_is_said_which_one_goes_before() {
    let server = Server::start("memory").await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "of-a-file\n").unwrap();
    let ask = async |more: &[&str], by_file: bool| {
        let mut asks = command(server.address(), &[&["run", "list"][..], more].concat());
        asks.env("RUNLEDGER_TOKEN", "by-value");
        if by_file {
            asks.env("RUNLEDGER_TOKEN_FILE", &file);
        }
        let ran = ran(asks).await;
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.err
    };
    let said = ask(&[], true).await;
    assert!(said.contains("RUNLEDGER_TOKEN_FILE and RUNLEDGER_TOKEN are both set: the file goes before"), "{said}");
    assert_eq!(ask(&[], false).await, "");
    assert_eq!(ask(&["--token-file", file.to_str().unwrap(), "--timeout", "9s"], false).await, "");
}

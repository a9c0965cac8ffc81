//! A ledger on a file system that does not answer, such as a network mount whose server is gone.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::data::Data;
use crate::process::server::{Process, SOON, run};

/// Loaded in front of the C library, it lets whoever asks for a path with these words in it wait for an hour, or the first time
/// for longer than a doctor does.
const HANGS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static int awake;
static void wait_for(const char *path) {
    if (path && strstr(path, "/does-not-answer/")) sleep(3600);
    if (path && strstr(path, "/wakes-slowly/") && !__sync_lock_test_and_set(&awake, 1)) sleep(4);
}
int statx(int at, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    wait_for(path);
    return ((int (*)(int, const char *, int, unsigned, struct statx *))dlsym(RTLD_NEXT, "statx"))(at, path, flags, mask, found);
}
#define OPENS(name) \
int name(const char *path, int flags, ...) { \
    va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
    wait_for(path); \
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
}
OPENS(open)
OPENS(open64)
"#;

fn library(directory: &Path) -> PathBuf {
    let (source, library) = (directory.join("hangs.c"), directory.join("hangs.so"));
    std::fs::write(&source, HANGS).unwrap();
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status().unwrap();
    assert!(built.success());
    library
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_that_does_not_answer_is_named_within_seconds_by_all_who_only_read() {
    let directory = TempDir::new().unwrap();
    let folder = directory.path().join("does-not-answer");
    std::fs::create_dir(&folder).unwrap();
    let store = Data::Sqlite(folder.join("ledger.db")).store();
    let library = library(directory.path());
    let environment = [("LD_PRELOAD", library.to_str().unwrap())];
    let begun = [
        (&["doctor", "--output", "json"][..], 1, "2.5 s"),
        (&["doctor"], 1, "2.5 s"),
        (&["verify"], 3, "20 s"),
        (&["export"], 3, "20 s"),
        (&["retention", "preview"], 3, "20 s"),
        (&["migrate", "--dry-run"], 1, "20 s"),
    ]
    .map(|(command, code, waited)| {
        let command = [command, &["--store", &store]].concat();
        (Process::spawn_with(&command, &environment), command.join(" "), code, waited)
    });
    for (mut process, command, wanted, waited) in begun {
        let (code, said) = process.exited(2 * SOON).await;
        assert_eq!(code, wanted, "{command:?}: {said}");
        let refusal = format!("its file system does not answer: {waited} have passed");
        assert!(said.to_lowercase().contains(&refusal), "{command:?}: {said}");
        if said.starts_with('{') {
            let report: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(report["problems"][0]["name"], "no_answer", "{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_that_wakes_slowly_is_waited_for_by_whoever_wants_what_is_in_it() {
    let directory = TempDir::new().unwrap();
    let folder = directory.path().join("wakes-slowly");
    std::fs::create_dir(&folder).unwrap();
    let store = Data::Sqlite(folder.join("ledger.db")).store();
    let (code, said) = run(&["migrate", "--store", &store]).await;
    assert_eq!(code, 0, "{said}");
    let library = library(directory.path());
    let environment = [("LD_PRELOAD", library.to_str().unwrap())];
    let commands = [&["verify"][..], &["export"], &["retention", "preview"], &["migrate", "--dry-run"]];
    let begun = commands.map(|command| {
        let command = [command, &["--store", &store]].concat();
        (Process::spawn_with(&command, &environment), command.join(" "))
    });
    for (mut process, command) in begun {
        let (code, said) = process.exited(2 * SOON).await;
        assert_eq!(code, 0, "{command}: {said}");
    }
}

//! A ledger on a file system that does not answer, such as a network mount whose server is gone.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Duration, Instant};

use crate::process::data::Data;
use crate::process::server::{Process, SOON};

/// Loaded in front of the C library, it lets whoever asks for a path with these words in it wait for an hour.
const HANGS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static void wait_for(const char *path) { if (path && strstr(path, "/does-not-answer/")) sleep(3600); }
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
    let begun = Instant::now();
    for (command, wanted) in [
        (&["doctor", "--output", "json"][..], 1),
        (&["doctor"], 1),
        (&["verify"], 3),
        (&["export"], 3),
        (&["retention", "preview"], 3),
        (&["migrate", "--dry-run"], 1),
    ] {
        let command = [command, &["--store", &store]].concat();
        let (code, said) = Process::spawn_with(&command, &environment).exited(SOON).await;
        assert_eq!(code, wanted, "{command:?}: {said}");
        assert!(said.to_lowercase().contains("its file system does not answer"), "{command:?}: {said}");
        if said.starts_with('{') {
            let report: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(report["problems"][0]["name"], "no_answer", "{said}");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(6 * 8), "{:?}", begun.elapsed());
}

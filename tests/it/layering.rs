//! The table of the modules that each module may use, held against every file of the server and of its core.

mod clocks;
mod reading;
mod source;
mod writing;

use std::fs;
use std::path::{Path, PathBuf};

use source::{Used, uses};

/// Each top-level module, and the others that it may use: only such as stand above it, so that nothing goes round in a
/// circle. A module without a row is a breach: think where it belongs.
const MAY_USE: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("text", &["domain"]),
    ("declaration", &["domain", "text"]),
    ("clock", &["domain"]),
    ("stdio", &[]),
    ("telemetry", &["clock", "domain", "stdio"]),
    ("tasks", &["telemetry"]),
    ("fairness", &[]),
    ("memory", &[]),
    ("private", &[]),
    ("store", &["clock", "domain", "memory", "private", "tasks", "telemetry"]),
    ("engine", &["clock", "domain", "fairness", "store", "tasks", "telemetry"]),
    ("upkeep", &["domain", "engine", "fairness", "store", "tasks", "telemetry"]),
    ("feed", &["clock", "domain", "memory", "fairness", "store", "tasks", "telemetry"]),
    ("claims", &["domain", "engine", "feed", "fairness", "store", "tasks"]),
    ("reads", &["domain", "fairness", "store", "tasks"]),
    ("namespaces", &["domain", "store"]),
    ("retention", &["domain", "store", "telemetry"]),
    ("auth", &["clock", "domain", "fairness", "tasks", "telemetry", "text"]),
    ("wire", &["auth", "clock", "declaration", "domain", "feed", "store", "telemetry"]),
    ("tls", &["clock", "domain", "tasks", "telemetry"]),
    ("config", &["auth", "domain", "store", "telemetry", "text", "tls"]),
    (
        "authority",
        &[
            "auth",
            "claims",
            "declaration",
            "domain",
            "engine",
            "feed",
            "upkeep",
            "memory",
            "namespaces",
            "reads",
            "fairness",
            "store",
            "telemetry",
            "wire",
        ],
    ),
    (
        "grpc",
        &[
            "auth",
            "authority",
            "clock",
            "config",
            "domain",
            "engine",
            "feed",
            "memory",
            "fairness",
            "store",
            "tasks",
            "telemetry",
            "tls",
            "wire",
        ],
    ),
    ("admin", &["grpc", "tasks", "telemetry"]),
    (
        "app",
        &[
            "admin",
            "auth",
            "authority",
            "claims",
            "clock",
            "config",
            "domain",
            "engine",
            "feed",
            "grpc",
            "upkeep",
            "memory",
            "namespaces",
            "reads",
            "retention",
            "fairness",
            "stdio",
            "store",
            "tasks",
            "telemetry",
            "tls",
            "wire",
        ],
    ),
    (
        "cli",
        &[
            "app",
            "auth",
            "clock",
            "config",
            "declaration",
            "domain",
            "grpc",
            "memory",
            "private",
            "retention",
            "stdio",
            "store",
            "tasks",
            "telemetry",
            "text",
            "wire",
        ],
    ),
    ("main", &["app", "cli", "clock", "config", "private", "stdio"]),
];

/// Modules inside others that only their neighbours may name, and these neighbours.
const INNER: &[(&str, &[&str])] =
    &[("store::postgres", &["store::open", "store::postgres"]), ("store::sqlite", &["store::open", "store::sqlite"])];

/// Foreign crates (a name, or what names begin with) and the only places that may use them.
const CRATES: &[(&str, &[&str])] = &[
    ("tonic", &["auth", "grpc", "telemetry", "wire"]),
    ("governor", &["grpc::transport", "telemetry"]),
    ("tokio_rustls", &["auth", "grpc::transport", "tls"]),
    ("opentelemetry", &["telemetry"]),
    ("prometheus", &["telemetry"]),
    ("x509_parser", &["tls"]),
    ("tikv_jemalloc_ctl", &["memory"]),
    ("tikv_jemallocator", &["main"]),
    ("prost", &["auth", "authority", "grpc", "wire"]),
    // `telemetry` takes from it how an error is written on one line.
    ("runledger_proto", &["auth", "authority", "cli", "grpc", "telemetry", "wire"]),
    // `config` takes from it what an address is.
    ("runledger_client", &["cli", "config"]),
    ("runledger_bench", &["cli::bench"]),
    ("tokio_postgres", &["store::postgres"]),
    ("deadpool", &["store::postgres"]),
    ("deadpool_postgres", &["store::postgres"]),
    ("rusqlite", &["store::sqlite"]),
    // The crate's root names its modules as its own: by that path they are in the table above.
    ("runledger_core", &[]),
];

/// What the rules, declarations and texts are built of: nothing that reaches a store, a clock or a transport.
const CORE_CRATES: &[&str] =
    &["jiff", "saphyr-parser", "serde", "serde_json", "sha2", "siphasher", "strsim", "thiserror", "uuid"];

const LINES_MAX: usize = 500;

/// Names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] = &["mod", "util", "common", "helper", "types", "manager"];

#[test]
fn every_module_uses_only_what_the_architecture_lets_it() {
    let breaches: Vec<String> = files()
        .into_iter()
        .flat_map(|(path, text)| {
            let module = module_of(&path);
            breaches(&module, &text).into_iter().map(move |breach| format!("{}:{breach}", path.display()))
        })
        .collect();
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn every_file_is_named_for_what_it_holds_and_fits_its_reader() {
    for (path, text) in packages().iter().flat_map(|folder| files_of(folder)) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let empty =
            EMPTY_NAMES.iter().find(|empty| name.starts_with(**empty) && (**empty != "mod" || name == "mod.rs"));
        assert_eq!(empty, None, "{} says nothing of what is inside", path.display());
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines: split it", path.display());
    }
}

/// A store is handed the rules, and learns from them what it must know of a command: see `domain::Decide`.
#[test]
fn a_store_names_no_ask() {
    for (path, text) in files_of("src/store") {
        let module = format!("store::{}", module_of(&path));
        let named = uses(&module, &text).into_iter().find(|used| {
            used.path == "domain::Ask" || within(&used.path, "domain::ask") || used.path.starts_with("domain::Ask::")
        });
        let is_test = module.ends_with("::tests");
        assert!(is_test || named.is_none(), "{module} names an ask: {named:?}");
    }
}

#[test]
fn the_table_has_no_circle() {
    for (row, (name, allowed)) in MAY_USE.iter().enumerate() {
        for used in *allowed {
            assert!(
                MAY_USE[..row].iter().any(|(above, _)| above == used),
                "{name} may use {used}, which is not above it"
            );
        }
    }
}

#[test]
fn a_breach_is_seen_however_it_is_written() {
    for (module, text, breach) in [
        ("domain::run", "\nuse crate::store::Store;", "2: domain may not use store"),
        ("domain::run", "use super::super::store::Store;", "1: domain may not use store"),
        ("engine", "use super::feed::Hub;", "1: engine may not use feed"),
        ("engine::batch", "use crate::{domain::Run, feed::{Hub, tailer}};", "1: engine may not use feed"),
        ("feed::hub", "fn f() { let _ = crate::engine::Engine::new(); }", "1: feed may not use engine"),
        (
            "grpc::handlers",
            "use crate::store::{\n    self,\n    postgres::PostgresStore,\n};",
            "1: grpc::handlers may not use store::postgres",
        ),
        ("store::json", "use super::sqlite::SqliteStore;", "1: store::json may not use store::sqlite"),
        (
            "store::sqlite::commit",
            "use tokio_postgres::Client;",
            "1: store::sqlite::commit may not use the crate tokio_postgres",
        ),
        ("engine", "use runledger_core::domain::Run;", "1: engine may not use the crate runledger_core"),
        ("engine", "fn f() -> tonic::Status {}", "1: engine may not use the crate tonic"),
        ("engine", "fn f(x: tonic_types::X) {}", "1: engine may not use the crate tonic_types"),
        ("grpc", "use crate::app::App;", "1: grpc may not use app"),
        ("main", "use runledger::engine::Engine;", "1: main may not use engine"),
        ("gadgets", "fn f() {}", "1: gadgets has no row in the table of who may use whom"),
    ] {
        assert_eq!(breaches(module, text), [breach], "{module}: {text}");
    }
}

#[test]
fn what_is_allowed_or_only_talked_about_is_no_breach() {
    for (module, text) in [
        ("domain::run", "// use crate::store::Store;\n/* crate::engine::x */ /// [`crate::feed`]\n"),
        (
            "domain::run",
            "const A: &str = \"use crate::store::X; tonic::Status\"; const B: char = '\"'; const C: u8 = b'\\'';",
        ),
        (
            "domain::run",
            "const A: &str = r#\"crate::store::\"x\" // \"#; use super::ids::RunKey; fn f<'a>(x: &'a str) {}",
        ),
        ("domain", "mod tests { use super::*; use super::run::Run; }"),
        ("store::open", "use super::postgres::PostgresStore; use crate::clock::Clock;"),
        ("store::postgres::commit", "use super::sessions::Sessions; use tokio_postgres::Client;"),
        ("grpc::server", "use tonic::transport::Server; use crate::{engine::Engine, feed::Feed};"),
        ("engine", "use crate::domain::{self, Run}; let feed = x.feed; feed::<u8>(); my::tonic::thing();"),
    ] {
        assert_eq!(breaches(module, text), [""; 0], "{module}: {text}");
    }
}

/// The breaches of one file, each with its line.
fn breaches(module: &str, text: &str) -> Vec<String> {
    let own = module.split("::").next().unwrap();
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == own).filter(|_| !module.is_empty()) else {
        // The crate's root declares the modules, and uses none.
        let root = module.is_empty();
        return if root { Vec::new() } else { vec![format!("1: {own} has no row in the table of who may use whom")] };
    };
    let mut breaches = Vec::new();
    for Used { line, path, foreign } in uses(module, text) {
        let first = path.split("::").next().unwrap();
        if foreign {
            let lives_in = |places: &[&str]| places.iter().any(|place| within(module, place));
            let ruled = CRATES.iter().find(|(name, _)| first == *name || first.starts_with(&format!("{name}_")));
            let misplaced = ruled.is_some_and(|(_, places)| !lives_in(places));
            if misplaced {
                breaches.push(format!("{line}: {module} may not use the crate {first}"));
            }
            continue;
        }
        if first != own && MAY_USE.iter().any(|(name, _)| *name == first) && !allowed.contains(&first) {
            breaches.push(format!("{line}: {own} may not use {first}"));
        }
        for (inner, places) in INNER {
            if within(&path, inner) && !places.iter().any(|place| within(module, place)) && module != "store" {
                breaches.push(format!("{line}: {module} may not use {inner}"));
            }
        }
    }
    breaches.dedup();
    breaches
}

#[test]
fn the_core_depends_on_nothing_that_reaches_out() {
    let manifest = include_str!("../../crates/runledger-core/Cargo.toml");
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1).filter(|line| !line.is_empty());
    let named = lines.take_while(|line| !line.starts_with('[')).map(|line| line.split_once(" = ").unwrap().0);
    assert!(named.eq(CORE_CRATES.iter().copied()), "think whether it can reach a store, a clock or a transport");
}

/// Whether a path is a module or inside it.
fn within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// `store/postgres/commit.rs` is `store::postgres::commit`; the crate's root is nothing.
fn module_of(path: &Path) -> String {
    let module = path.with_extension("").to_str().unwrap().replace(std::path::MAIN_SEPARATOR, "::");
    if module == "lib" { String::new() } else { module }
}

/// Every source file of the server and of its core, with its path from the `src` of each.
fn files() -> Vec<(PathBuf, String)> {
    ["src", "crates/runledger-core/src"].into_iter().flat_map(files_of).collect()
}

/// The folders with the sources of every package.
pub(crate) fn packages() -> Vec<String> {
    let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates")).unwrap();
    let crates = crates.map(|entry| format!("crates/{}/src", entry.unwrap().file_name().to_str().unwrap()));
    let mut packages: Vec<String> = crates.collect();
    packages.push("src".to_owned());
    packages.sort();
    packages
}

/// Every source file under a folder of the project, with its path from there.
pub(crate) fn files_of(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut folders = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    assert!(!files.is_empty(), "the sources of {folder} were found");
    files.sort();
    files
}

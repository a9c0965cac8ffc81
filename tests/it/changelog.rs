//! CHANGELOG.md names everything that this release changes in the schema and in the API.
//!
//! The release before this one is asked what it has: its binary how far it migrates, and proto/released.binpb for its
//! API, which must be what that binary serves.

mod surface;

use std::collections::BTreeSet;
use std::fs;

use futures_util::stream;
use prost::Message as _;
use prost_reflect::DescriptorPool;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use runledger::store::migrations::{RELEASE, SQLITE};
use runledger_proto::FILE_DESCRIPTOR_SET;
use tempfile::TempDir;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use self::surface::Surface;
use crate::process::server::{Process, SOON, Server};

/// The API of the release before this one, as `make released-proto` wrote it.
const RELEASED: &[u8] = include_bytes!("../../proto/released.binpb");

#[tokio::test]
async fn every_migration_since_the_last_release_is_in_the_changelog() {
    let directory = TempDir::new().unwrap();
    let store = format!("sqlite:{}", directory.path().join("ledger.db").display());
    let (code, said) = Process::spawn_older(&["migrate", "--store", &store]).exited(SOON).await;
    let at = said.trim().rsplit_once("is at migration ").and_then(|(_, number)| number.parse::<u32>().ok());
    let last = at.unwrap_or_else(|| panic!("{code}: it does not say how far it migrates: {said}"));
    let named = migrations(&changes());
    let missing: Vec<_> = SQLITE.iter().filter(|step| step.number > last && !named.contains(&step.number)).collect();
    assert!(missing.is_empty(), "`Unreleased` names no \"migration {}\": {missing:?}", missing[0].number);
}

#[test]
fn every_change_of_the_api_since_the_last_release_is_in_the_changelog() {
    let (before, now) = (released(), Surface::of(&DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap()));
    let changes = changes();
    let named = code(&changes);
    let differs: BTreeSet<&str> = now.beyond(&before).into_iter().chain(before.beyond(&now)).collect();
    let missing: Vec<_> = differs.into_iter().filter(|name| !named.contains(*name)).collect();
    assert!(missing.is_empty(), "`Unreleased` does not name, in backticks: {missing:?}");
}

/// A file that was forgotten at a release would make every later check one against a release too early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_released_api_is_the_one_that_the_last_release_serves() {
    let server = Server::of(Process::spawn_older(&["serve", "--listen", "127.0.0.1:0", "--store", "memory"])).await;
    server.is_ready().await;
    let mut client = ServerReflectionClient::new(server.wire());
    let packages = DescriptorPool::decode(RELEASED).unwrap();
    let ours = packages.files().filter(|file| file.package_name() == "runledger.v1");
    let asked: Vec<_> = ours.map(|file| MessageRequest::FileByFilename(file.name().to_owned())).collect();
    let asked =
        asked.into_iter().map(|ask| ServerReflectionRequest { host: String::new(), message_request: Some(ask) });
    let mut answers = client.server_reflection_info(stream::iter(asked)).await.unwrap().into_inner();
    let mut files = FileDescriptorSet::decode(RELEASED).unwrap().file;
    files.retain(|file| file.package() != "runledger.v1");
    while let Some(answer) = answers.message().await.unwrap() {
        let MessageResponse::FileDescriptorResponse(found) = answer.message_response.unwrap() else {
            panic!("the last release does not know a file of proto/released.binpb: `make released-proto`")
        };
        files.extend(found.file_descriptor_proto.iter().map(|file| FileDescriptorProto::decode(&**file).unwrap()));
    }
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_set(FileDescriptorSet { file: files }).unwrap();
    let same = Surface::of(&pool) == released();
    assert!(same, "proto/released.binpb is not of the release that upgrades are tested from: `make released-proto`");
}

/// 0.7.0 says of no method how it may be repeated, so that `buf breaking` would refuse every method that says it.
#[test]
fn the_api_is_held_to_the_last_release_without_an_exception_that_is_no_longer_needed() {
    let methods = FileDescriptorSet::decode(RELEASED).unwrap().file.into_iter().flat_map(|file| file.service);
    let mut options = methods.flat_map(|service| service.method).filter_map(|method| method.options);
    let says_levels = options.any(|options| options.idempotency_level.is_some());
    let rules = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/buf.yaml")).unwrap();
    assert_eq!(rules.contains("RPC_SAME_IDEMPOTENCY_LEVEL"), !says_levels, "{rules}");
}

#[test]
fn a_change_is_named_once_with_what_it_brings() {
    let whole = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let surface = |files: &FileDescriptorSet| {
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_set(files.clone()).unwrap();
        Surface::of(&pool)
    };
    let now = surface(&whole);
    let beyond = |change: &dyn Fn(&mut FileDescriptorProto)| {
        let mut before = whole.clone();
        before.file.iter_mut().filter(|file| file.package() == "runledger.v1").for_each(change);
        let before = surface(&before);
        [now.beyond(&before), before.beyond(&now)].map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(beyond(&|_| {}), [vec![], Vec::<String>::new()]);
    // A method, with its request and answer.
    let without_method = beyond(&|file| {
        file.service.iter_mut().for_each(|service| service.method.retain(|method| method.name() != "NoteExported"));
        file.message_type.retain(|message| !message.name().starts_with("NoteExported"));
    });
    assert_eq!(without_method, [vec!["NoteExported".to_owned()], vec![]]);
    // A whole service.
    let without_service = beyond(&|file| file.service.retain(|service| service.name() != "NamespaceService"));
    assert_eq!(without_service, [vec!["NamespaceService".to_owned()], vec![]]);
    // A message that nothing names, as the details of a refusal are.
    let without_detail =
        beyond(&|file| file.message_type.retain(|message| message.name() != "LifecycleTransitionError"));
    assert_eq!(without_detail, [vec!["LifecycleTransitionError".to_owned()], vec![]]);
    // A field, once there and once of another number; a value.
    let of_run = |change: &'static dyn Fn(&mut prost_types::DescriptorProto)| {
        beyond(&|file| file.message_type.iter_mut().filter(|message| message.name() == "Run").for_each(change))
    };
    let without_field = of_run(&|run| run.field.retain(|field| field.name() != "archived_at"));
    assert_eq!(without_field, [vec!["Run.archived_at".to_owned()], vec![]]);
    let moved = of_run(&|run| {
        run.field.iter_mut().filter(|field| field.name() == "archived_at").for_each(|field| field.number = Some(999));
    });
    assert_eq!(moved, [vec!["Run.archived_at".to_owned()], vec!["Run.archived_at".to_owned()]]);
    let without_value = beyond(&|file| {
        file.enum_type.iter_mut().for_each(|of| of.value.retain(|value| value.name() != "RUN_STATUS_FAILED"));
    });
    assert_eq!(without_value, [vec!["RUN_STATUS_FAILED".to_owned()], vec![]]);
}

#[test]
fn migrations_and_code_are_read_as_people_write_them() {
    let text = "Migration 3 and migration 4, then migrations 5 and 7,\n9 to 11 `migrations 20`. The migration\n13. 99";
    assert_eq!(migrations(text).into_iter().collect::<Vec<_>>(), [3, 4, 5, 7, 9, 10, 11, 13, 20]);
    assert_eq!(code("a `b` c `d\n  e` f").into_iter().collect::<Vec<_>>(), ["b", "d e"]);
    assert_eq!(
        section("# x\n## [Unreleased]\na\n### b\n## [1.0.0] - today\nc\n", "Unreleased"),
        Some("\na\n### b\n".into())
    );
    assert_eq!(section("# x\n## [Unreleased]\na\n", "1.0.0"), None);
}

fn released() -> Surface {
    let surface = Surface::of(&DescriptorPool::decode(RELEASED).unwrap());
    assert!(!surface.is_empty(), "proto/released.binpb holds an API");
    surface
}

/// The text about this release: `Unreleased`, and its own section when it has one already, as the commit of a release
/// has.
fn changes() -> String {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/CHANGELOG.md")).unwrap();
    let unreleased = section(&text, "Unreleased").expect("CHANGELOG.md has a section Unreleased");
    unreleased + &section(&text, RELEASE).unwrap_or_default()
}

/// What stands under the heading of a release.
fn section(text: &str, release: &str) -> Option<String> {
    let (_, after) = text.split_once(&format!("\n## [{release}]"))?;
    Some(after.split_once("\n## [").map_or_else(|| after.to_owned(), |(section, _)| format!("{section}\n")))
}

/// The numbers after the word "migration": one, a list, or a range. A full stop ends them.
fn migrations(text: &str) -> BTreeSet<u32> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_word = |word: &str| ["migration", "migrations"].contains(&bare(word).to_lowercase().as_str());
    let after = |index: usize| listed(&words[index + 1..]);
    (0..words.len()).filter(|index| is_word(words[*index])).flat_map(after).collect()
}

/// The numbers with which words begin.
fn listed(words: &[&str]) -> Vec<u32> {
    let (mut numbers, mut is_range) = (Vec::new(), false);
    for word in words {
        match (bare(word).parse::<u32>(), numbers.last()) {
            (Ok(number), Some(&last)) if is_range => numbers.extend(last + 1..=number),
            (Ok(number), Some(_) | None) => numbers.push(number),
            (Err(_), _) if ["and", "to"].contains(word) => {}
            (Err(_), _) => break,
        }
        is_range = *word == "to";
        if word.ends_with('.') {
            break;
        }
    }
    numbers
}

fn bare(word: &str) -> &str {
    word.trim_matches(|sign: char| !sign.is_alphanumeric())
}

/// What stands in backticks, with a line's end as a space.
fn code(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

//! What callers share: docs/limits.md has a row for each call that there is.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use prost_reflect::DescriptorPool;
use runledger_proto::FILE_DESCRIPTOR_SET;

/// The calls that a table's first column names, with what the second one says.
fn told() -> BTreeMap<String, String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/limits.md");
    let page = fs::read_to_string(page).unwrap();
    let table = page.split_once("| call | shares |").expect("the table of what calls share").1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').split_once('|').expect("two columns"));
    let mut told = BTreeMap::new();
    for (calls, shares) in cells {
        for call in calls.split(',').map(|call| call.trim().trim_matches('`')) {
            assert!(told.insert(call.to_owned(), shares.trim().to_owned()).is_none(), "{call} has two rows");
        }
    }
    told
}

#[test]
fn the_page_tells_of_each_call_what_it_shares_and_of_no_other() {
    let mut told = told();
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let shares = told.remove(method.name());
        assert!(
            shares.is_some_and(|shares| !shares.is_empty()),
            "docs/limits.md does not say what {} shares",
            method.name()
        );
    }
    assert!(told.is_empty(), "there is no such call: {told:?}");
}

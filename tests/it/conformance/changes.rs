//! The log of all shards, merged and in pages.

use std::collections::HashSet;

use futures_util::future::{join, join_all};
use runledger::domain::ids::shard_of;
use runledger::domain::steady::PRESENT_MICROS;
use runledger::domain::{Position, Shard};
use runledger::store::{LoggedEvent, PAGE_BYTES_MAX, Store, json};
use serde_json::json;

use super::asking::{apply, ask_all, beginning, home, stored};
use super::fixture::Fixture;
use super::sound::{Whole, advance, pages, sound};
use crate::support::commands::{Asking as _, complete, key, start, update};

/// The place of an event in the merged log.
fn place(logged: &LoggedEvent) -> (runledger::domain::Time, Shard, Position) {
    (logged.event.at, logged.shard, logged.position)
}

/// Forty runs of three events each, over all shards.
async fn busy(store: &dyn Store) {
    for n in 0..40 {
        let id = format!("run-{n}");
        apply(store, start(&id)).await;
        ask_all(store, vec![update(&id).workflow("w"), complete(&id)]).await;
    }
}

pub(crate) async fn an_empty_log_has_heads_at_zero_and_no_changes<F: Fixture>(fixture: F) {
    let store = fixture.store();
    assert_eq!(store.ends().await.unwrap(), beginning(store));
    let page = Whole::of(store.changes(&beginning(store), 10, PAGE_BYTES_MAX).await.unwrap());
    assert_eq!((page.events.len(), page.cut), (0, false));
}

pub(crate) async fn heads_are_the_last_positions<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let mut expected = beginning(store);
    for n in 0..12 {
        let id = format!("run-{n}");
        apply(store, start(&id)).await;
        let shard = home(store, &key(&id));
        expected.set(shard, expected.of(shard) + 1);
        assert_eq!(store.ends().await.unwrap(), expected);
    }
    let page = Whole::of(store.changes(&expected, 10, PAGE_BYTES_MAX).await.unwrap());
    assert_eq!((page.events.len(), page.cut), (0, false), "nothing is above the heads");
}

pub(crate) async fn changes_of_all_shards_are_merged_in_order<F: Fixture>(fixture: F) {
    busy(fixture.store()).await;
    let page = Whole::of(fixture.store().changes(&beginning(fixture.store()), 1000, PAGE_BYTES_MAX).await.unwrap());
    assert_eq!((page.events.len(), page.cut), (120, false));
    assert!(page.events.is_sorted_by_key(place));
    let last = page.events.last().unwrap().event.at;
    // A replica estimates the store's clock.
    let ahead = last.since(page.as_of);
    assert!(ahead <= PRESENT_MICROS, "{last} was committed before the page was read at {}", page.as_of);
    let shards: HashSet<Shard> = page.events.iter().map(|logged| logged.shard).collect();
    assert_eq!(shards.len(), usize::from(fixture.store().ledger().shard_count), "every shard has something");
}

pub(crate) async fn calls_are_shown_in_their_order_when_the_clock_is_set_back<F: Fixture>(fixture: F) {
    let ledger = fixture.store().ledger();
    // One run in each shard, the last shard first: ties would be broken the other way.
    let of = |shard: u16| {
        let in_it = |id: &String| shard_of(ledger.id, ledger.shard_count, &key(id)) == Shard(shard);
        (0..1000).map(|n| format!("run-{n}")).find(in_it)
    };
    let ids: Vec<String> = (0..ledger.shard_count).rev().filter_map(of).collect();
    for id in &ids {
        apply(fixture.store(), start(id)).await;
        fixture.set_the_clock_back().await;
    }
    for id in ids.iter().rev() {
        apply(fixture.store(), complete(id)).await;
    }
    let log = sound(fixture.store()).await.log;
    let shown: Vec<&str> = log.iter().map(|logged| logged.event.key.run_id.as_str()).collect();
    let asked: Vec<&str> = ids.iter().chain(ids.iter().rev()).map(String::as_str).collect();
    assert_eq!(shown, asked);
}

pub(crate) async fn pages_of_any_size_are_the_log_cut_in_pieces<F: Fixture>(fixture: F) {
    busy(fixture.store()).await;
    let whole = pages(fixture.store(), 1000).await;
    assert!(whole.is_sorted_by_key(place));
    for limit in [1, 2, 3, 7, 29, 120] {
        assert_eq!(pages(fixture.store(), limit).await, whole, "limit {limit}");
    }
}

pub(crate) async fn a_page_ends_where_the_first_cut_shard_ends<F: Fixture>(fixture: F) {
    busy(fixture.store()).await;
    let (store, limit) = (fixture.store(), 4);
    let whole = pages(store, 1000).await;
    let mut after = beginning(store);
    loop {
        let page = Whole::of(store.changes(&after, limit, PAGE_BYTES_MAX).await.unwrap());
        let rest: Vec<_> = whole.iter().filter(|logged| logged.position > after[usize::from(logged.shard.0)]).collect();
        // A page ends with the earliest end among the shards that have more than it may show of them. A shard of which
        // it shows the very last may be taken for one that has more.
        let of = |shard: Shard| rest.iter().filter(move |logged| logged.shard == shard);
        let up_to = |least: usize| {
            let cut = (0..store.ledger().shard_count).map(Shard).filter(|shard| of(*shard).count() >= least);
            let end = cut.map(|shard| place(of(shard).nth(limit - 1).unwrap())).min();
            rest.iter().take_while(|logged| end.is_none_or(|end| place(logged) <= end)).count()
        };
        let shown = page.events.len();
        assert!(page.events.iter().eq(rest[..shown].iter().copied()), "the next ones, in order");
        assert!((up_to(limit)..=up_to(limit + 1)).contains(&shown), "{shown} events");
        assert!(page.cut || shown == rest.len());
        advance(&mut after, &page.events);
        if !page.cut {
            break;
        }
    }
    assert_eq!(after, store.ends().await.unwrap());
}

pub(crate) async fn paging_while_writers_write_misses_and_repeats_nothing<F: Fixture>(fixture: F) {
    const WRITERS: usize = 6;
    const RUNS: usize = 12;
    let replica = fixture.replica().await;
    let stores = [fixture.store(), &*replica];
    let writers = join_all((0..WRITERS).map(|writer| async move {
        for n in 0..RUNS {
            let (store, id) = (stores[writer % 2], format!("run-{writer}-{n}"));
            ask_all(store, vec![start(&id), update(&id).workflow("w")]).await;
            apply(store, complete(&id)).await;
        }
    }));
    let reader = async {
        let mut after = beginning(stores[0]);
        let mut read: Vec<LoggedEvent> = Vec::new();
        while read.len() < WRITERS * RUNS * 3 {
            let page = Whole::of(stores[0].changes(&after, 3, PAGE_BYTES_MAX).await.unwrap());
            assert!(page.events.is_sorted_by_key(place));
            // Within a page and across pages: nothing missed, nothing repeated in any shard.
            advance(&mut after, &page.events);
            read.extend(page.events);
        }
        read
    };
    let (_written, mut read) = join(writers, reader).await;
    read.sort_by_key(place);
    assert_eq!(read, sound(stores[0]).await.log);
}

pub(crate) async fn big_events_come_in_pages<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for n in 0..50 {
        apply(store, start(&format!("run-{n}")).metadata(&json!({"text": "x".repeat(60_000), "n": n}))).await;
    }
    let mut after = beginning(store);
    let mut read = Vec::new();
    let mut cuts = 0;
    loop {
        let page = Whole::of(store.changes(&after, 1000, PAGE_BYTES_MAX).await.unwrap());
        let bytes: usize = page.events.iter().map(|logged| json::event(&logged.event).len()).sum();
        assert!(bytes < 2 * PAGE_BYTES_MAX, "a page of {bytes} bytes");
        advance(&mut after, &page.events);
        read.extend(page.events);
        if !page.cut {
            break;
        }
        cuts += 1;
    }
    assert!(cuts >= 2, "3 MB in pages of about a MiB");
    assert!(read.is_sorted_by_key(place));
    assert_eq!(read.len(), 50);
    assert_eq!(stored(store, &key("run-7")).await.metadata.as_map()["n"], json!(7));
}

use chrono::{DateTime, Utc};
use tidegate_model::RunId;

use super::*;

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn lane(name: &str, class: i32) -> LaneKey {
    LaneKey {
        bucket: QuotaBucket::Foreground,
        tenant: tenant(name),
        class,
    }
}

fn row(key: &LaneKey, position: i64, queued: i64, running: i64) -> LaneRow {
    LaneRow {
        of_background: false,
        bucket: key.bucket,
        tenant: key.tenant.clone(),
        class: key.class,
        capability: Capability::chat(),
        head: RunId::new(),
        head_rank: 1,
        head_urgency: 0,
        head_position: position,
        head_created_at: DateTime::<Utc>::UNIX_EPOCH,
        next_created_at: Vec::new(),
        queued: Some(queued),
        running,
        charged: 0,
        pass: None,
    }
}

fn hint(key: &LaneKey, place: (i16, i16)) -> LaneHint {
    LaneHint {
        lane: key.clone(),
        capability: Capability::chat(),
        place,
        created_ms: 5,
    }
}

fn chunk(lanes: Vec<LaneRow>, next: Option<&LaneKey>) -> LaneChunk {
    LaneChunk {
        lanes,
        next: next.cloned(),
    }
}

/// A tier with a foreground cap of 2.
fn share(_: &TenantId) -> Share {
    Share {
        tier: buckets::STANDARD,
        weight: 1,
    }
}

/// What a claim of up to ten runs asks: tenant, class, how many.
fn asked(book: &Book) -> Vec<(String, i32, i32)> {
    plan(book)
        .into_iter()
        .map(|ask| (ask.tenant.to_string(), ask.class, ask.take))
        .collect()
}

fn plan(book: &Book) -> Vec<LaneAsk> {
    let want = Want {
        serves: &Everything,
        runs: 10,
        background: 10,
        fair: true,
    };
    book.plan(want, share)
}

/// R3.8: a reading replaces what it covers and nothing else.
#[test]
fn chunks_replace_what_they_cover() {
    let (a1, a2, b1, c1) = (lane("a", 1), lane("a", 2), lane("b", 1), lane("c", 1));
    let mut book = Book::default();
    let all = [&a1, &a2, &b1, &c1].map(|key| row(key, 1, 1, 0));
    book.read(None, &chunk(all.to_vec(), None), book.learned(), share);
    assert_eq!(book.groups.len(), 3);
    // From behind a/1 up to b/1: a/2 has gone, b has two running.
    book.read(
        Some(&a1),
        &chunk(vec![row(&b1, 7, 1, 2)], Some(&b1)),
        book.learned(),
        share,
    );
    let asks = asked(&book);
    assert_eq!(
        asks,
        [("a".to_owned(), 1, 1), ("c".to_owned(), 1, 1)],
        "b is full, the rest stayed"
    );
    book.read(Some(&b1), &chunk(Vec::new(), None), book.learned(), share);
    assert_eq!(asked(&book), [("a".to_owned(), 1, 1)]);
}

/// R3.8: a run that this instance hears of is planned at once, without a reading.
#[test]
fn hints_are_planned_at_once() {
    let mut book = Book::default();
    let acme = lane("acme", 4);
    assert!(asked(&book).is_empty());
    book.queued(&hint(&acme, (1, 0)));
    book.queued(&hint(&acme, (1, 0)));
    assert_eq!(asked(&book), [("acme".to_owned(), 4, 2)]);
}

/// R3.8: claims start behind what was taken; something that stands before it resets that.
#[test]
fn claims_start_behind_what_was_taken() {
    let acme = lane("acme", 1);
    let mut book = Book::default();
    book.read(
        None,
        &chunk(vec![row(&acme, 100, i64::MAX, 0)], None),
        book.learned(),
        share,
    );
    let from = |book: &Book| plan(book)[0].from;
    let at = |position| Place {
        rank: 1,
        urgency: 0,
        position,
    };
    assert_eq!(from(&book), at(100));
    let lane = book
        .groups
        .get_mut(&group_key(acme.bucket, &acme.tenant))
        .unwrap()
        .lanes
        .get_mut(&1)
        .unwrap();
    lane.from = at(140);
    // A younger run of the same kind stands behind; a woken one before.
    book.queued(&hint(&acme, (1, 0)));
    assert_eq!(from(&book), at(140));
    book.queued(&hint(&acme, AT_THE_HEAD));
    assert_eq!(from(&book), Place::FIRST);
}

/// R3.3, R3.8: a full tenant is asked a few times in case its lock was only held, then left alone until a lease ends.
#[test]
fn full_lanes_rest_until_a_lease_ends() {
    let acme = lane("acme", 1);
    let mut book = Book::default();
    book.read(
        None,
        &chunk(vec![row(&acme, 1, 9, 0)], None),
        book.learned(),
        share,
    );
    let mut looks = 0;
    loop {
        let asks = plan(&book);
        if asks.is_empty() {
            break;
        }
        looks += 1;
        let again = book.took(book.learned, &asks, &[], share);
        assert_eq!(again, looks < MISSES_MAX);
    }
    assert_eq!(looks, MISSES_MAX);
    book.freed(acme.bucket, &acme.tenant, 1);
    assert_eq!(asked(&book), [("acme".to_owned(), 1, 2)]);
}

/// R3.12: a tenant whose runs cost more than was estimated stands behind one whose runs cost less.
#[test]
fn costs_order_the_tenants() {
    let (acme, globex) = (lane("acme", 1), lane("globex", 1));
    let mut book = Book::default();
    let rows = vec![row(&acme, 1, 9, 0), row(&globex, 2, 9, 0)];
    book.read(None, &chunk(rows, None), book.learned(), share);
    assert_eq!(asked(&book)[0].0, "acme");
    book.settle(&acme.tenant, &Capability::chat(), 1_000, 34_000, 1);
    assert_eq!(asked(&book)[0].0, "globex");
    let changes = book.passes().take_pending();
    assert_eq!(changes.len(), 1);
    assert!(changes[0].change > 0);
}

/// R3.8: what one claim is asking for, the next one leaves alone; a bucket with a cap is asked by one claim at a time.
#[test]
fn claims_ask_for_different_runs() {
    let (acme, globex) = (lane("acme", 1), lane("globex", 1));
    let mut uncounted = globex.clone();
    uncounted.bucket = QuotaBucket::Uncounted;
    let mut book = Book::default();
    let rows = vec![row(&acme, 1, 9, 0), row(&uncounted, 2, 13, 0)];
    book.read(None, &chunk(rows, None), book.learned(), share);
    let first = plan(&book);
    let takes: Vec<i32> = first.iter().map(|ask| ask.take).collect();
    assert_eq!(takes, [2, 8], "the cap of acme is 2");
    let known = book.asks(&first);
    let second = asked(&book);
    assert_eq!(second, [("globex".to_owned(), 1, 5)]);
    // Nothing was there after all, and a reading in between does not make it forget what is under way.
    book.read(
        None,
        &chunk(vec![row(&acme, 1, 9, 0)], None),
        book.learned(),
        share,
    );
    assert_eq!(asked(&book), []);
    book.took(known, &first, &[], share);
    book.answered(&first);
    assert_eq!(asked(&book), [("acme".to_owned(), 1, 2)]);
}

/// R3.8: a run that came while a claim was under way is not forgotten when that claim finds nothing.
#[test]
fn what_comes_meanwhile_is_kept() {
    let mut acme = lane("acme", 1);
    acme.bucket = QuotaBucket::Uncounted;
    let mut book = Book::default();
    book.read(
        None,
        &chunk(vec![row(&acme, 1, 1, 0)], None),
        book.learned(),
        share,
    );
    let first = plan(&book);
    let known = book.asks(&first);
    book.queued(&hint(&acme, AT_THE_HEAD));
    assert!(book.took(known, &first, &[], share), "look again");
    book.answered(&first);
    let next = plan(&book);
    assert_eq!(next[0].from, Place::FIRST);
    // And what comes before a claim and is not found is gone until the next reading.
    let known = book.asks(&next);
    assert!(!book.took(known, &next, &[], share));
    book.answered(&next);
    assert_eq!(asked(&book), []);
}

/// R3.8: what is heard of a lane while the lanes are being read, the reading cannot have seen.
#[test]
fn what_is_heard_during_a_reading_is_kept() {
    let (acme, globex) = (lane("acme", 1), lane("globex", 1));
    let mut book = Book::default();
    let first = chunk(vec![row(&acme, 100, i64::MAX, 0)], None);
    book.read(None, &first, book.learned(), share);
    let began = book.learned();
    book.queued(&hint(&globex, (1, 0)));
    book.queued(&hint(&acme, AT_THE_HEAD));
    book.read(None, &first, began, share);
    let mut asks = asked(&book);
    asks.sort_unstable();
    assert_eq!(
        asks,
        [("acme".to_owned(), 1, 2), ("globex".to_owned(), 1, 1)]
    );
    let of_acme = plan(&book)
        .into_iter()
        .find(|ask| ask.tenant == acme.tenant);
    assert_eq!(of_acme.unwrap().from, Place::FIRST);
    // A reading that began later knows better.
    book.read(None, &first, book.learned(), share);
    assert_eq!(asked(&book), [("acme".to_owned(), 1, 2)]);
}

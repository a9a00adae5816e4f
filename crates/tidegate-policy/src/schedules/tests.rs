use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use tidegate_model::schedule::{MissedRuns, Overlap, SkipReason};

use tidegate_model::limits;

use super::*;

mod clock_changes;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn berlin(cron: &str) -> Recurrence {
    Recurrence::parse(cron, "Europe/Berlin").unwrap()
}

fn rules(missed_runs: MissedRuns, overlap: Overlap) -> Rules {
    Rules {
        missed_runs,
        catch_up_window_ms: 24 * 3_600_000,
        overlap,
    }
}

/// R3.14: a time of day is that of its zone, in winter and in summer.
#[test]
fn a_due_time_is_that_of_its_zone() {
    let six = berlin("0 6 * * *");
    assert_eq!(
        six.upcoming(at("2026-03-27T12:00:00Z"), 3),
        [
            at("2026-03-28T05:00:00Z"),
            at("2026-03-29T04:00:00Z"),
            at("2026-03-30T04:00:00Z")
        ]
    );
    let kathmandu = Recurrence::parse("@daily", "Asia/Kathmandu").unwrap();
    assert_eq!(
        kathmandu.after(at("2026-01-01T00:00:00Z")).unwrap(),
        at("2026-01-01T18:15:00Z")
    );
}

/// R3.14: the clocks of Berlin go from 02:00 to 03:00 on 29 March 2026. A fixed time in between fires at the first moment
/// after, once; what repeats goes on in real time.
#[test]
fn a_local_time_that_does_not_exist_fires_once_after_the_gap() {
    let due = berlin("30 2 * * *").upcoming(at("2026-03-28T00:00:00Z"), 3);
    assert_eq!(
        due,
        [
            at("2026-03-28T01:30:00Z"),
            at("2026-03-29T01:00:00Z"),
            at("2026-03-30T00:30:00Z")
        ]
    );
    let quarters = berlin("*/15 * * * *").upcoming(at("2026-03-29T00:30:00Z"), 4);
    assert_eq!(
        quarters,
        [
            at("2026-03-29T00:45:00Z"),
            at("2026-03-29T01:00:00Z"),
            at("2026-03-29T01:15:00Z"),
            at("2026-03-29T01:30:00Z")
        ]
    );
}

/// R3.14: they go from 03:00 back to 02:00 on 25 October 2026. A fixed time that comes twice fires at the first; what
/// repeats fires through both.
#[test]
fn a_local_time_that_comes_twice_fires_once() {
    let due = berlin("30 2 * * *").upcoming(at("2026-10-24T12:00:00Z"), 2);
    assert_eq!(
        due,
        [at("2026-10-25T00:30:00Z"), at("2026-10-26T01:30:00Z")]
    );
    // Also where the search starts between the two.
    let between = berlin("30 2 * * *")
        .after(at("2026-10-25T00:45:00Z"))
        .unwrap();
    assert_eq!(between, at("2026-10-26T01:30:00Z"));
    let halves = berlin("*/30 2 * * *").upcoming(at("2026-10-24T12:00:00Z"), 5);
    assert_eq!(
        halves,
        [
            at("2026-10-25T00:00:00Z"),
            at("2026-10-25T00:30:00Z"),
            at("2026-10-25T01:00:00Z"),
            at("2026-10-25T01:30:00Z"),
            at("2026-10-26T01:00:00Z")
        ]
    );
}

/// Bad input (R3.14): what is refused is named in our words, with the field and what it takes.
#[test]
fn what_cannot_be_read_is_named_by_its_field() {
    for (bad, says) in [
        ("0 0 0 * * *", "it has 6 fields"),
        ("@often", "\"@often\" is no nickname"),
        (
            "60 * * * *",
            "the minute `60` cannot be read: it takes 0 to 59",
        ),
        (
            "0 24 * * *",
            "the hour `24` cannot be read: it takes 0 to 23",
        ),
        ("0 6 32 * *", "the day of month `32`"),
        ("0 6 * 13 *", "the month `13`"),
        ("0 6 * * MONDAY", "the day of week `MONDAY`"),
        ("0 6 * * +MON", "the day of week `+MON`"),
        ("? 6 * * *", "the minute `?`"),
        ("0/10 6 * * *", "the minute `0/10`"),
        ("0 6 5#2 * *", "the day of month `5#2`"),
        ("0 6 * * 15W", "the day of week `15W`"),
    ] {
        let said = Recurrence::parse(bad, "UTC").unwrap_err().to_string();
        assert!(said.starts_with(says), "{bad}: {said}");
        for foreign in ["Pattern", "seconds", "disallowed", "Component"] {
            assert!(!said.contains(foreign), "{bad}: {said}");
        }
    }
    let first = |cron: &str| {
        let recurrence = Recurrence::parse(cron, "UTC").unwrap();
        recurrence.after(at("2026-08-01T12:00:00Z")).unwrap()
    };
    assert_eq!(first("0 6 ? * MON"), at("2026-08-03T06:00:00Z"));
    assert_eq!(first("0 6 15W * *"), at("2026-08-14T06:00:00Z"));
    assert_eq!(first("0 6 l * *"), at("2026-08-31T06:00:00Z"));
    assert_eq!(first("0 6 * * 5#2"), at("2026-08-14T06:00:00Z"));
    assert_eq!(first("0 6 * * 5L"), at("2026-08-28T06:00:00Z"));
}

/// R3.14: what cannot be used is refused with what to write in its place.
#[test]
fn a_bad_expression_or_zone_names_the_remedy() {
    for bad in [
        "",
        "6 o'clock",
        "* * * *",
        "60 * * * *",
        "0 0 0 * * *",
        "* * * * * * *",
        "@often",
    ] {
        let error = Recurrence::parse(bad, "UTC").unwrap_err();
        assert!(error.to_string().contains("five fields"), "{bad}: {error}");
    }
    let long = format!("0 0 * * {}", "1,".repeat(200));
    assert!(Recurrence::parse(&long, "UTC").is_err());
    let error = Recurrence::parse("@daily", "Europe/Berlim").unwrap_err();
    assert!(error.to_string().contains("Europe/Berlin"), "{error}");
    let error = Recurrence::parse("@daily", "zzz").unwrap_err();
    assert!(error.to_string().contains("such as UTC"), "{error}");
    let never = Recurrence::parse("0 0 30 2 *", "UTC").unwrap();
    assert_eq!(
        never.after(at("2026-01-01T00:00:00Z")),
        Err(RecurrenceError::Never)
    );
    assert!(never.upcoming(at("2026-01-01T00:00:00Z"), 5).is_empty());
}

/// R3.14: after three missed hours each rule does what it says, and all go on with the next hour.
#[test]
fn missed_due_times_follow_their_rule() {
    let hourly = berlin("@hourly");
    let (next_due, now) = (at("2026-05-04T09:00:00Z"), at("2026-05-04T11:30:00Z"));
    let hour = |hour: u32| at(&format!("2026-05-04T{hour:02}:00:00Z"));
    for (rule, runs, skipped) in [
        (MissedRuns::Skip, vec![], Some(hour(11))),
        (MissedRuns::RunOnce, vec![hour(11)], Some(hour(10))),
        (MissedRuns::RunAll, vec![hour(9), hour(10), hour(11)], None),
    ] {
        let firing = fire(&hourly, rules(rule, Overlap::Allow), next_due, now, true).unwrap();
        assert_eq!(firing.runs, runs, "{rule}");
        let skipped = skipped.map(|due| (due, SkipReason::Missed));
        assert_eq!(firing.skipped, skipped, "{rule}");
        assert_eq!(firing.next, hour(12), "{rule}");
    }
    // On time is on time by every rule.
    for rule in MissedRuns::ALL {
        let now = hour(9) + TimeDelta::seconds(2);
        let firing = fire(&hourly, rules(*rule, Overlap::Skip), hour(9), now, false).unwrap();
        assert_eq!(firing.runs, [hour(9)], "{rule}");
        assert_eq!(firing.skipped, None, "{rule}");
    }
}

/// R3.14: nothing older than the window is made up for, and at most the hundred latest, in rounds.
#[test]
fn what_is_made_up_for_is_bounded() {
    let minutely = Recurrence::parse("* * * * *", "UTC").unwrap();
    let now = at("2026-05-04T12:00:30Z");
    let mut next_due = at("2025-05-05T00:00:00Z");
    let bound = Rules {
        catch_up_window_ms: limits::CATCH_UP_MAX_MS,
        ..rules(MissedRuns::RunAll, Overlap::Allow)
    };
    let mut runs = Vec::new();
    while next_due <= now {
        let firing = fire(&minutely, bound, next_due, now, true).unwrap();
        assert!(firing.runs.len() <= RUNS_PER_ROUND);
        runs.extend(firing.runs);
        next_due = firing.next;
    }
    assert_eq!(runs.len(), limits::MISSED_RUNS_MAX);
    assert_eq!(runs.last(), Some(&at("2026-05-04T12:00:00Z")));
    assert!(
        runs.windows(2)
            .all(|pair| pair[1] - pair[0] == TimeDelta::minutes(1))
    );
    let short = Rules {
        catch_up_window_ms: 5 * 60_000,
        ..bound
    };
    let firing = fire(&minutely, short, at("2026-05-04T00:00:00Z"), now, true).unwrap();
    assert_eq!(firing.runs.len(), 5);
    let daily = Recurrence::parse("@daily", "UTC").unwrap();
    let firing = fire(&daily, short, at("2026-05-04T00:00:00Z"), now, true).unwrap();
    assert!(firing.runs.is_empty());
    assert_eq!(
        firing.skipped,
        Some((at("2026-05-04T00:00:00Z"), SkipReason::Missed))
    );
}

/// R3.14: an open run keeps the next one away, stands beside it, or gives way to it.
#[test]
fn overlaps_follow_their_rule() {
    let hourly = berlin("@hourly");
    let hour = |hour: u32| at(&format!("2026-05-04T{hour:02}:00:00Z"));
    let now = hour(11) + TimeDelta::seconds(1);
    let overlapped = |due| Some((due, SkipReason::Overlap));
    for (rule, open, missed, runs, replaces, skipped) in [
        (Overlap::Allow, true, false, vec![hour(11)], false, None),
        (
            Overlap::Skip,
            true,
            false,
            vec![],
            false,
            overlapped(hour(11)),
        ),
        (Overlap::Skip, false, false, vec![hour(11)], false, None),
        // Of several due times the runs would overlap each other.
        (
            Overlap::Skip,
            false,
            true,
            vec![hour(9)],
            false,
            overlapped(hour(11)),
        ),
        (Overlap::Replace, true, false, vec![hour(11)], true, None),
        (
            Overlap::Replace,
            false,
            true,
            vec![hour(11)],
            false,
            overlapped(hour(10)),
        ),
    ] {
        let next_due = if missed { hour(9) } else { hour(11) };
        let rules = rules(MissedRuns::RunAll, rule);
        let firing = fire(&hourly, rules, next_due, now, open).unwrap();
        assert_eq!(firing.runs, runs, "{rule} {open} {missed}");
        assert_eq!(firing.replaces, replaces, "{rule} {open} {missed}");
        assert_eq!(firing.skipped, skipped, "{rule} {open} {missed}");
    }
}

proptest! {
    /// R3.14: whatever the expression, the zone and the time since: the next due time is one and lies ahead, no due time
    /// gets two runs, and none a run that is not due.
    #[test]
    fn a_firing_settles_each_due_time_once(
        cron in prop::sample::select(vec![
            "* * * * *", "*/7 * * * *", "30 2 * * *", "0 0 * * 0", "15 1-4 * * *", "0 12 L * *", "@monthly", "5 4 1 1 MON",
        ]),
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]),
        start in 1_700_000_000_i64..1_900_000_000,
        away in 0_i64..3_000_000,
        missed_runs in prop::sample::select(MissedRuns::ALL.to_vec()),
        overlap in prop::sample::select(Overlap::ALL.to_vec()),
        open in any::<bool>(),
    ) {
        let recurrence = Recurrence::parse(cron, zone).unwrap();
        let start = DateTime::from_timestamp(start, 0).unwrap();
        let now = start + TimeDelta::seconds(away);
        let mut next_due = recurrence.after(start).unwrap();
        let mut fired = Vec::new();
        for _ in 0..=limits::MISSED_RUNS_MAX / RUNS_PER_ROUND {
            if next_due > now {
                break;
            }
            let firing = fire(&recurrence, rules(missed_runs, overlap), next_due, now, open).unwrap();
            prop_assert!(firing.next > next_due);
            fired.extend(firing.runs);
            next_due = firing.next;
        }
        prop_assert!(next_due > now);
        prop_assert_eq!(recurrence.after(next_due - TimeDelta::seconds(1)).unwrap(), next_due);
        prop_assert!(fired.windows(2).all(|pair| pair[0] < pair[1]));
        for due in fired {
            prop_assert!(due > start && due <= now);
            prop_assert_eq!(recurrence.after(due - TimeDelta::seconds(1)).unwrap(), due);
        }
    }
}

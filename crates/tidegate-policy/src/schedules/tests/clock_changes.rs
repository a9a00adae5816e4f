//! Clock changes against a reference that looks at every minute.

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Timelike as _, Utc};
use chrono_tz::Tz;
use proptest::prelude::*;

use super::*;

/// Gaps and overlaps of an hour, of half an hour, at midnight, and of a whole day.
const ZONES: [&str; 8] = [
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "America/Havana",
    "Asia/Beirut",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Pacific/Apia",
];

/// R3.14: several times of a day are as fixed as one: none is lost in a gap, none runs twice where an hour comes twice.
#[test]
fn several_fixed_times_of_a_day_are_each_due_once() {
    for (cron, zone, from, due) in [
        (
            "0 2,14 29 3 *",
            "Europe/Berlin",
            "2026-03-01T00:00:00Z",
            ["2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z"],
        ),
        (
            "0 2,14 25 10 *",
            "Europe/Berlin",
            "2026-10-01T00:00:00Z",
            ["2026-10-25T00:00:00Z", "2026-10-25T13:00:00Z"],
        ),
        (
            "0 0,12 6 9 *",
            "America/Santiago",
            "2026-09-01T00:00:00Z",
            ["2026-09-06T04:00:00Z", "2026-09-06T15:00:00Z"],
        ),
        (
            "0,30 2 29 3 *",
            "Europe/Berlin",
            "2026-03-01T00:00:00Z",
            ["2026-03-29T01:00:00Z", "2027-03-29T00:00:00Z"],
        ),
        (
            "0 1-3 29 3 *",
            "Europe/Berlin",
            "2026-03-01T00:00:00Z",
            ["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"],
        ),
    ] {
        let recurrence = Recurrence::parse(cron, zone).unwrap();
        assert_eq!(
            recurrence.upcoming(at(from), 2),
            due.map(at),
            "{cron} {zone}"
        );
    }
}

/// Where the clocks of a zone change from 2005 on: a moment at most a day before they do.
fn changes(zone: Tz) -> Vec<DateTime<Utc>> {
    let offset = |moment: DateTime<Utc>| {
        let local = moment.with_timezone(&zone).naive_local();
        local - moment.naive_utc()
    };
    let start = at("2005-01-01T00:00:00Z");
    (0..25 * 366)
        .map(|day| start + TimeDelta::days(day))
        .filter(|moment| offset(*moment) != offset(*moment + TimeDelta::days(1)))
        .collect()
}

/// A field of minutes or hours.
#[derive(Debug, Clone)]
struct Times {
    text: String,
    values: BTreeSet<u32>,
    repeats: bool,
}

fn times(below: u32) -> impl Strategy<Value = Times> {
    let list = prop::collection::btree_set(0..below, 1..5).prop_map(|values| Times {
        text: values
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(","),
        values,
        repeats: false,
    });
    let range = (0..below, 0_u32..5).prop_map(move |(first, more)| {
        let end = (first + more).min(below - 1);
        Times {
            text: format!("{first}-{end}"),
            values: (first..=end).collect(),
            repeats: false,
        }
    });
    let step = (2_u32..15).prop_map(move |step| Times {
        text: format!("*/{step}"),
        values: (0..below).filter(|value| value % step == 0).collect(),
        repeats: true,
    });
    let all = Just(Times {
        text: "*".to_owned(),
        values: (0..below).collect(),
        repeats: true,
    });
    prop_oneof![3 => list, 2 => range, 1 => step, 1 => all]
}

/// What is due in a stretch of time, minute by minute: what repeats whenever the clock shows it, a fixed time when the
/// clock has first reached it.
fn reference(
    zone: Tz,
    minute: &Times,
    hour: &Times,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
) -> Vec<DateTime<Utc>> {
    let clock = |moment: DateTime<Utc>| moment.with_timezone(&zone).naive_local();
    let named = |local: NaiveDateTime| {
        minute.values.contains(&local.minute()) && hour.values.contains(&local.hour())
    };
    let mut due = Vec::new();
    // A day before the stretch, for what an overlap at its start has shown already.
    let mut moment = from - TimeDelta::days(2);
    let mut latest = clock(moment);
    while moment < to {
        moment += TimeDelta::minutes(1);
        let now = clock(moment);
        let mut hit = (minute.repeats || hour.repeats) && named(now);
        while latest < now {
            latest += TimeDelta::minutes(1);
            hit |= !(minute.repeats || hour.repeats) && named(latest);
        }
        if hit && moment >= from {
            due.push(moment);
        }
    }
    due
}

proptest! {
    /// R3.14: around every kind of clock change, what is due is what a look at every minute finds, forward and backward.
    #[test]
    fn due_times_at_clock_changes_are_those_of_every_minute(
        zone in prop::sample::select(ZONES.to_vec()),
        change in any::<prop::sample::Index>(),
        minute in times(60),
        hour in times(24),
        before in 0_i64..1000,
        after in 0_i64..1000,
    ) {
        let cron = format!("{} {} * * *", minute.text, hour.text);
        let recurrence = Recurrence::parse(&cron, zone).unwrap();
        let zone: Tz = zone.parse().unwrap();
        let changes = changes(zone);
        let change = changes[change.index(changes.len())];
        let (from, to) = (change - TimeDelta::minutes(before), change + TimeDelta::minutes(1440 + after));
        let expected = reference(zone, &minute, &hour, (from, to));
        let start = from - TimeDelta::seconds(1);
        let forward = std::iter::successors(recurrence.after(start).ok(), |due| recurrence.after(*due).ok());
        let forward: Vec<_> = forward.take_while(|due| *due <= to).collect();
        prop_assert_eq!(&forward, &expected, "{} {}", cron, zone);
        let latest = expected.len().saturating_sub(limits::MISSED_RUNS_MAX);
        prop_assert_eq!(recurrence.between(from, to).unwrap(), &expected[latest..], "{} {}", cron, zone);
    }
}

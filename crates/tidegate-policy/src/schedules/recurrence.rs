//! Which moments a cron expression names in a time zone (R3.14).
//!
//! Expressions are parsed and walked through the calendar by a library that does nothing else, and zones are those of
//! the IANA database. What clock changes do to them is decided here, as in Vixie cron. Fixed times of day, which have
//! neither `*` nor a step in minute and hour (`30 2 * * *`, `0 2,14 * * *`), are each due at the first moment at which
//! the local clock has reached them: after a gap that they lie in, and in the first of two hours that are called the
//! same. What repeats within the day (`*/15 * * * *`) goes on in real time: nothing for a local hour that does not exist,
//! twice through one that comes twice.

use std::collections::VecDeque;

use chrono::{DateTime, LocalResult, NaiveDateTime, TimeDelta, TimeZone as _, Utc};
use chrono_tz::{GapInfo, TZ_VARIANTS, Tz};
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use tidegate_model::limits;

/// A time zone is proposed for one that is not known up to this distance.
const NEAREST_MAX: f64 = 0.7;

/// Why a cron expression or a time zone cannot be used; the text says what to write in its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecurrenceError {
    /// The expression cannot be read.
    #[error(
        "{reason}; give five fields (minute, hour, day of month, month, day of week), for example `0 6 * * MON-FRI` for \
         06:00 on working days, or @hourly, @daily, @weekly, @monthly, @yearly"
    )]
    Cron {
        /// What is wrong with it.
        reason: String,
    },
    /// It names a day that never comes.
    #[error("this expression is never due: no such day exists; check day of month against month")]
    Never,
    /// The zone is not in the database.
    #[error("{zone:?} is no IANA time zone{}", nearest(zone))]
    Zone {
        /// What was given.
        zone: String,
    },
}

fn nearest(zone: &str) -> String {
    let near = |known: &Tz| strsim::jaro_winkler(known.name(), zone);
    TZ_VARIANTS
        .iter()
        .max_by(|one, other| near(one).total_cmp(&near(other)))
        .filter(|known| near(known) >= NEAREST_MAX)
        .map_or_else(
            || "; give a name such as UTC or Europe/Berlin".to_owned(),
            |known| format!("; did you mean {}?", known.name()),
        )
}

/// A cron expression in its time zone.
#[derive(Debug, Clone)]
pub struct Recurrence {
    cron: Cron,
    zone: Tz,
    /// Whether it names times of day, and nothing that repeats within one.
    fixed: bool,
}

impl Recurrence {
    /// Reads a cron expression of five fields, or a nickname, and the name of its time zone.
    pub fn parse(cron: &str, zone: &str) -> Result<Self, RecurrenceError> {
        let zone = zone.parse().map_err(|_| RecurrenceError::Zone {
            zone: zone.chars().take(64).collect(),
        })?;
        let fields = fields(cron).map_err(|reason| RecurrenceError::Cron { reason })?;
        let parsed = read(&fields).map_err(|reason| RecurrenceError::Cron { reason })?;
        let repeats = |field: &String| field.contains(['*', '/']);
        Ok(Self {
            cron: parsed,
            zone,
            fixed: !fields.iter().take(2).any(repeats),
        })
    }

    /// The first due time after a moment.
    pub fn after(&self, moment: DateTime<Utc>) -> Result<DateTime<Utc>, RecurrenceError> {
        if self.fixed {
            return self.fixed_after(moment);
        }
        self.cron
            .find_next_occurrence(&moment.with_timezone(&self.zone), false)
            .map(|due| due.with_timezone(&Utc))
            .map_err(|_| RecurrenceError::Never)
    }

    /// The next due times after a moment, at most so many.
    pub fn upcoming(&self, moment: DateTime<Utc>, most: usize) -> Vec<DateTime<Utc>> {
        let next = |from: &DateTime<Utc>| self.after(*from).ok();
        std::iter::successors(next(&moment), next)
            .take(most)
            .collect()
    }

    /// The latest due times from one moment to another, both included, in order; at most [`limits::MISSED_RUNS_MAX`].
    pub(super) fn between(
        &self,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Vec<DateTime<Utc>>, RecurrenceError> {
        let mut latest = VecDeque::new();
        // Due times are whole seconds, so none lies between the two.
        let start = self.start_of(from, to);
        let before = start.checked_sub_signed(TimeDelta::nanoseconds(1));
        let mut due = self.after(before.unwrap_or(start))?;
        while due <= to {
            if latest.len() == limits::MISSED_RUNS_MAX {
                latest.pop_front();
            }
            latest.push_back(due);
            due = self.after(due)?;
        }
        Ok(latest.into())
    }

    /// A moment from which on at least all that count are due: walking a year of minutes to keep the last hundred would
    /// take seconds.
    fn start_of(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> DateTime<Utc> {
        let mut start = to;
        for _ in 0..=limits::MISSED_RUNS_MAX {
            match self.before(start) {
                Some(previous) if previous > from => start = previous,
                _ => return from,
            }
        }
        start
    }

    /// A due time before a moment, and the latest unless the moment lies in an hour that comes the second time.
    fn before(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let local = moment.with_timezone(&self.zone);
        if !self.fixed {
            let due = self.cron.find_previous_occurrence(&local, false).ok()?;
            return Some(due.with_timezone(&Utc));
        }
        let mut named = local.naive_local();
        loop {
            named = self.cron.find_previous_occurrence(&named, false).ok()?;
            // Several times that lie in one gap are due at the same moment, its end.
            let due = reached(self.zone, named)?;
            if due < moment {
                return Some(due);
            }
        }
    }

    fn fixed_after(&self, moment: DateTime<Utc>) -> Result<DateTime<Utc>, RecurrenceError> {
        let mut named = moment.with_timezone(&self.zone).naive_local();
        loop {
            named = self
                .cron
                .find_next_occurrence(&named, false)
                .map_err(|_| RecurrenceError::Never)?;
            // In an hour that comes the second time, what it names was due in the first.
            let due = reached(self.zone, named).ok_or(RecurrenceError::Never)?;
            if due > moment {
                return Ok(due);
            }
        }
    }
}

/// The first moment at which the clock of a zone has reached a local time.
fn reached(zone: Tz, local: NaiveDateTime) -> Option<DateTime<Utc>> {
    match zone.from_local_datetime(&local) {
        LocalResult::Single(moment) | LocalResult::Ambiguous(moment, _) => Some(moment),
        LocalResult::None => GapInfo::new(&local, &zone)?.end,
    }
    .map(|moment| moment.with_timezone(&Utc))
}

/// A field of an expression: what it is called, which numbers it takes, and what else may stand in it.
struct Field {
    name: &'static str,
    takes: &'static str,
    words: &'static [&'static str],
    signs: &'static str,
}

const FIELDS: [Field; 5] = [
    Field {
        name: "minute",
        takes: "0 to 59",
        words: &[],
        signs: "",
    },
    Field {
        name: "hour",
        takes: "0 to 23",
        words: &[],
        signs: "",
    },
    Field {
        name: "day of month",
        takes: "1 to 31, `L` for the last, `15W` for the working day nearest to the 15th",
        words: &[],
        signs: "LW?",
    },
    Field {
        name: "month",
        takes: "1 to 12 or JAN to DEC",
        words: &[
            "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
        ],
        signs: "",
    },
    Field {
        name: "day of week",
        takes: "0 to 7 or SUN to SAT, `5#2` for the second Friday, `5L` for the last",
        words: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
        signs: "L#?",
    },
];

/// The five fields of an expression in capital letters, nicknames written out.
fn fields(cron: &str) -> Result<Vec<String>, String> {
    if cron.chars().count() > limits::CRON_MAX_CHARS {
        return Err(format!(
            "it is longer than {} characters",
            limits::CRON_MAX_CHARS
        ));
    }
    let capital = cron.trim().to_uppercase();
    let written_out = match capital.as_str() {
        "" => return Err("it is empty".to_owned()),
        "@HOURLY" => "0 * * * *",
        "@DAILY" => "0 0 * * *",
        "@WEEKLY" => "0 0 * * SUN",
        "@MONTHLY" => "0 0 1 * *",
        "@YEARLY" | "@ANNUALLY" => "0 0 1 1 *",
        name if name.starts_with('@') => return Err(format!("{cron:?} is no nickname")),
        other => other,
    };
    let fields: Vec<String> = written_out.split_whitespace().map(str::to_owned).collect();
    match fields.len() {
        5 => Ok(fields),
        1 => Err("it has one field".to_owned()),
        count => Err(format!("it has {count} fields")),
    }
}

fn read(fields: &[String]) -> Result<Cron, String> {
    for (field, text) in FIELDS.iter().zip(fields) {
        let words = field
            .words
            .iter()
            .fold(text.clone(), |text, word| text.replace(word, "0"));
        let known = |c: char| c.is_ascii_digit() || "*/,-".contains(c) || field.signs.contains(c);
        if !words.chars().all(known) {
            return Err(unreadable(field, text));
        }
    }
    parse(fields).ok_or_else(|| {
        let alone = |at: usize| {
            let other = |(index, text): (usize, &String)| {
                if index == at {
                    text.clone()
                } else {
                    "*".to_owned()
                }
            };
            fields.iter().enumerate().map(other).collect::<Vec<_>>()
        };
        // The library does not say which field it could not read.
        let wrong = (0..FIELDS.len()).find(|at| parse(&alone(*at)).is_none());
        wrong.map_or_else(
            || "it cannot be read".to_owned(),
            |at| unreadable(&FIELDS[at], &fields[at]),
        )
    })
}

fn parse(fields: &[String]) -> Option<Cron> {
    CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build()
        .parse(&fields.join(" "))
        .ok()
}

fn unreadable(field: &Field, text: &str) -> String {
    let Field { name, takes, .. } = field;
    format!(
        "the {name} `{text}` cannot be read: it takes {takes}, `*`, lists (`a,b`), ranges (`a-b`) and steps (`*/n`, `a-b/n`)"
    )
}

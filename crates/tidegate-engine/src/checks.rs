//! Checks of what administrators write: texts that the database could not hold, pages, cursors.

use std::str::FromStr;

use chrono::{DateTime, Datelike as _, Utc};

use tidegate_model::{
    api::{Page, PageQuery},
    limits,
};

use crate::Error;

/// The longest text that names something for people.
pub(crate) const LABEL_MAX: usize = 200;

/// Refuses a text that is too long or holds control characters (a NUL byte cannot be stored).
pub(crate) fn text(field: &str, text: &str, most: usize) -> Result<(), Error> {
    let length = text.chars().count();
    if length > most {
        return Err(Error::invalid(
            field,
            format!("{field} has {length} characters; at most {most} are allowed"),
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(
            field,
            format!("{field} holds a control character; send plain text"),
        ));
    }
    Ok(())
}

/// As [`text`], and not empty.
pub(crate) fn filled(field: &str, value: &str, most: usize) -> Result<(), Error> {
    if value.trim().is_empty() {
        return Err(Error::invalid(field, format!("{field} must not be empty")));
    }
    text(field, value, most)
}

/// As [`text`], where there is one.
pub(crate) fn label(field: &str, value: Option<&str>) -> Result<(), Error> {
    value.map_or(Ok(()), |value| text(field, value, LABEL_MAX))
}

/// A year that no time to come is in; whether a later time has passed is the database's to say.
const YEAR_MIN: i32 = 2000;

/// Refuses a time that is further away than `most_ms`, or so long ago that the database could not hold it.
pub(crate) fn time(field: &str, time: Option<DateTime<Utc>>, most_ms: i64) -> Result<(), Error> {
    let Some(time) = time else { return Ok(()) };
    if time.year() < YEAR_MIN {
        return Err(Error::invalid(
            field,
            format!("{field} is before the year {YEAR_MIN}; give a time to come"),
        ));
    }
    let latest = crate::clock::now() + chrono::Duration::milliseconds(most_ms);
    if time > latest {
        let days = most_ms / (24 * 3_600_000);
        return Err(Error::invalid(
            field,
            format!(
                "{field} is more than {days} days away; give a time before {}",
                latest.format("%Y-%m-%dT%H:%M:%SZ")
            ),
        ));
    }
    Ok(())
}

/// How many items a page may have.
pub(crate) fn page_size(query: &PageQuery) -> Result<i64, Error> {
    match query.limit.unwrap_or(limits::PAGE_DEFAULT) {
        limit @ 1..=limits::PAGE_MAX => Ok(i64::from(limit)),
        _ => Err(Error::invalid(
            "limit",
            format!("limit must be 1 to {}", limits::PAGE_MAX),
        )),
    }
}

/// Where a page starts.
pub(crate) fn cursor<T: FromStr>(query: &PageQuery) -> Result<Option<T>, Error> {
    query
        .cursor
        .as_deref()
        .map(|cursor| {
            cursor.parse().map_err(|_| {
                Error::invalid(
                    "cursor",
                    "cursor is not one of this list; leave it out to start from the beginning",
                )
            })
        })
        .transpose()
}

/// A page from items that were read with one more than it may have, so that the last page is known to be the last.
pub(crate) fn page<T>(mut items: Vec<T>, size: i64, name: impl Fn(&T) -> String) -> Page<T> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let more = items.len() > size;
    items.truncate(size);
    let next_cursor = items.last().filter(|_| more).map(name);
    Page { items, next_cursor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_the_database_cannot_hold_are_refused_by_name() {
        assert!(text("name", "Ärzte ohne Grenzen", 200).is_ok());
        for bad in ["a\0b", "a\nb", &"x".repeat(201)] {
            let error = text("name", bad, 200).unwrap_err();
            assert_eq!(error.problem().field.as_deref(), Some("name"));
        }
        assert!(filled("command", "  ", 10).is_err());
    }

    #[test]
    fn times_that_cannot_be_meant_are_refused_by_name() {
        let day_ms = 24 * 3_600_000;
        let at = |text: &str| Some(text.parse::<DateTime<Utc>>().unwrap());
        assert!(time("runAt", None, day_ms).is_ok());
        assert!(time("runAt", Some(crate::clock::now()), day_ms).is_ok());
        for absurd in [
            "9999-12-31T23:59:59Z",
            "+262142-12-31T23:59:59Z",
            "1970-01-01T00:00:00Z",
            "-9999-01-01T00:00:00Z",
        ] {
            let error = time("runAt", at(absurd), day_ms).unwrap_err();
            assert_eq!(error.problem().field.as_deref(), Some("runAt"), "{absurd}");
        }
        let far = time("expiresAt", at("9999-01-01T00:00:00Z"), 3_660 * day_ms).unwrap_err();
        let detail = far.problem().detail.unwrap();
        assert!(detail.contains("more than 3660 days away"), "{detail}");
    }

    #[test]
    fn the_last_page_has_no_cursor() {
        let full = page(vec![1, 2, 3], 2, ToString::to_string);
        assert_eq!(
            (full.items, full.next_cursor.as_deref()),
            (vec![1, 2], Some("2"))
        );
        let last = page(vec![3, 4], 2, ToString::to_string);
        assert_eq!((last.items, last.next_cursor), (vec![3, 4], None));
        let query = |limit, cursor: Option<&str>| PageQuery {
            limit,
            cursor: cursor.map(str::to_owned),
        };
        assert!(page_size(&query(Some(0), None)).is_err());
        assert!(page_size(&query(Some(201), None)).is_err());
        assert_eq!(page_size(&query(None, None)).unwrap(), 50);
        assert!(cursor::<i64>(&query(None, Some("x"))).is_err());
    }
}

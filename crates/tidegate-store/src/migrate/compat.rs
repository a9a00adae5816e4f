//! Which servers a database serves (R1.6): decided from what it records, by a pure function.

use semver::Version;

/// What a database records about its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The oldest server that may serve it.
    pub oldest_server: String,
    /// The newest release that ever migrated or served it.
    pub newest_server: String,
    /// The lowest protocol version it allows.
    pub lowest_protocol: i32,
}

/// Whether a server may serve a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Fits,
    /// It may, with a warning: it is exactly one release older than the database.
    OneReleaseOlder,
    /// It may not, and why.
    Refused(String),
}

/// Decides for a server of version `ours`, speaking `protocol`, that found `unknown` migrations in the database.
pub fn decide(ours: &str, protocol: i32, served: &Served, unknown: &[i64]) -> Verdict {
    let Ok(our) = Version::parse(ours) else {
        return Verdict::Refused(format!("this server's own version {ours:?} is not one"));
    };
    let recorded = |text: &str| Version::parse(text).ok();
    let (Some(oldest), Some(newest)) = (
        recorded(&served.oldest_server),
        recorded(&served.newest_server),
    ) else {
        return Verdict::Refused(
            "the versions that the database records cannot be read".to_owned(),
        );
    };
    if our < oldest {
        return Verdict::Refused(format!(
            "it serves servers from {oldest} on, this is {our}; install a newer server"
        ));
    }
    if protocol < served.lowest_protocol {
        return Verdict::Refused(format!(
            "it wants protocol version {} or later, this server speaks {protocol}; install a newer server",
            served.lowest_protocol
        ));
    }
    match releases_between(&our, &newest) {
        0 if unknown.is_empty() => Verdict::Fits,
        0 => Verdict::Refused(format!(
            "it has migrations that this server does not know ({}); install the server that applied them",
            unknown
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        )),
        1 => Verdict::OneReleaseOlder,
        _ => Verdict::Refused(format!(
            "it was migrated by {newest}, more than one release newer than this server ({our}); install {newest}"
        )),
    }
}

/// How many releases `newest` is ahead. A release is a minor version; the first release of the next major version
/// follows the last one of this, wherever that was, so that it counts as one.
fn releases_between(ours: &Version, newest: &Version) -> u64 {
    match newest.major.checked_sub(ours.major) {
        Some(0) => newest.minor.saturating_sub(ours.minor),
        Some(1) => newest.minor.saturating_add(1),
        Some(_) => u64::MAX,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(oldest: &str, newest: &str, protocol: i32) -> Served {
        Served {
            oldest_server: oldest.to_owned(),
            newest_server: newest.to_owned(),
            lowest_protocol: protocol,
        }
    }

    /// R1.6: the same or a newer release fits, one release older is warned.
    #[test]
    fn a_server_may_be_one_release_older() {
        let cases: [(&str, Served, &[i64], Verdict); 5] = [
            ("0.2.3", served("0.1.0", "0.2.0", 1), &[], Verdict::Fits),
            ("0.3.0", served("0.1.0", "0.2.0", 1), &[], Verdict::Fits),
            (
                "0.2.0",
                served("0.1.0", "0.3.1", 1),
                &[7],
                Verdict::OneReleaseOlder,
            ),
            (
                "0.9.0",
                served("0.1.0", "1.0.0", 1),
                &[7],
                Verdict::OneReleaseOlder,
            ),
            ("0.2.0", served("0.1.0", "0.2.9", 1), &[], Verdict::Fits),
        ];
        for (ours, served, unknown, expected) in cases {
            assert_eq!(
                decide(ours, 1, &served, unknown),
                expected,
                "{ours} {served:?}"
            );
        }
    }

    /// R1.6: more than one release older is refused, and so is what the recorded bounds exclude.
    #[test]
    fn a_server_that_is_too_old_is_refused() {
        let refused: [(&str, Served, &[i64], &str); 6] = [
            ("0.2.0", served("0.3.0", "0.3.0", 1), &[], "from 0.3.0 on"),
            (
                "0.2.0",
                served("0.1.0", "0.4.0", 1),
                &[9],
                "more than one release",
            ),
            (
                "0.2.0",
                served("0.1.0", "1.1.0", 1),
                &[9],
                "more than one release",
            ),
            (
                "0.2.0",
                served("0.1.0", "2.0.0", 1),
                &[9],
                "more than one release",
            ),
            (
                "0.2.0",
                served("0.1.0", "0.2.0", 2),
                &[],
                "protocol version 2",
            ),
            (
                "0.2.0",
                served("0.1.0", "0.2.0", 1),
                &[99],
                "does not know (99)",
            ),
        ];
        for (ours, served, unknown, part) in refused {
            let Verdict::Refused(why) = decide(ours, 1, &served, unknown) else {
                panic!("{ours} {served:?} is not refused");
            };
            assert!(why.contains(part), "{why}");
        }
    }
}

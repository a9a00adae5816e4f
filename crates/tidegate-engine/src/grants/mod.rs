//! Signing and checking grants (R9.1): one verb per file. What a grant is and how it is read is `tidegate-grants`.
//!
//! Of the keys one signs and one is published ahead of its time. An instance learns of a key by the configuration bus, as
//! of everything else that is written, and who checks offline by `/.well-known/tidegate-keys`; both have it before anything
//! is signed with it. What is counted and which fence is the newest is the ledger's: a caller hands it in.

mod keys;
mod list;
mod rotate;
mod sign;
mod verify;

use std::time::Duration;

use chrono::TimeDelta;

pub(crate) use keys::{KeySet, ensure_first};
pub use list::{list, published};
pub use rotate::rotate;
pub use sign::sign;
pub use verify::{VerifyError, verify};

/// The longest life of a grant.
pub const LIFE_MAX: TimeDelta = TimeDelta::hours(1);
/// How long a reader may keep the published keys.
pub const PUBLISHED_MAX_AGE: Duration = Duration::from_mins(1);
/// How long an instance that no notification reaches may not know of a change: the largest `TIDEGATE_CONFIG_POLL_MS`.
const HEARD_WITHIN: Duration = Duration::from_mins(1);
/// How long a key is published before it signs.
const PUBLISHED_AHEAD: TimeDelta = TimeDelta::minutes(3);

const _: () = assert!(
    PUBLISHED_AHEAD.num_seconds().unsigned_abs()
        > PUBLISHED_MAX_AGE.as_secs() + HEARD_WITHIN.as_secs()
);

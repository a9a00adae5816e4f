//! Named limits of model calls. What an operator may set stands in [`crate::config`] with these as defaults.

use std::time::Duration;

/// The longest a connection to a provider may take to come up.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for the first piece of an answer, from the moment the request leaves.
pub const FIRST_CONTENT_TIMEOUT: Duration = Duration::from_mins(2);
/// The longest silence between two pieces of an answer. Comments that keep a connection alive are silence.
pub const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// The longest a call may take in all, its tries and waits included.
pub const TOTAL_TIMEOUT: Duration = Duration::from_mins(10);
/// Requests for one call, the first included.
pub const TRIES: u32 = 3;
/// The first backoff between tries; doubles, fully jittered.
pub const BACKOFF_BASE: Duration = Duration::from_millis(500);
/// The longest backoff, still fully jittered.
pub const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// A provider's `Retry-After` above this is handed to the caller instead of being waited for.
pub const RETRY_AFTER_WAITED: Duration = Duration::from_secs(10);
/// The largest answer read from a provider, in bytes.
pub const ANSWER_MAX_BYTES: usize = 16 << 20;
/// The longest line of a stream, in bytes. A line is searched anew with each packet until it ends, so that an endless one
/// would cost time that grows with its square.
pub const LINE_MAX_BYTES: usize = 1 << 20;
/// The largest error body read from a provider, in bytes.
pub const ERROR_BODY_MAX_BYTES: usize = 64 << 10;
/// The longest text of a provider's error that is kept, in characters.
pub const ERROR_TEXT_MAX_CHARS: usize = 300;
/// The most tool calls in one answer.
pub const TOOL_CALLS_MAX: usize = 64;
/// The most tokens of one direction that a provider is believed to have used for one call; above, the use is unknown.
pub const TOKENS_MAX: u64 = 1_000_000_000;

const _: () = assert!(
    IDLE_TIMEOUT.as_millis() < TOTAL_TIMEOUT.as_millis(),
    "a stall ends before the call does"
);
const _: () = assert!(
    FIRST_CONTENT_TIMEOUT.as_millis() < TOTAL_TIMEOUT.as_millis(),
    "a retry has time left"
);
const _: () = assert!(
    CONNECT_TIMEOUT.as_millis() < FIRST_CONTENT_TIMEOUT.as_millis(),
    "connecting is told from answering"
);
const _: () = assert!(
    BACKOFF_BASE.as_millis() < BACKOFF_MAX.as_millis(),
    "a backoff can grow"
);

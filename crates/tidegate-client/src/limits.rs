//! Named limits of the client; what a caller may set has its default here.

use std::time::Duration;

/// A call without a deadline of its own ends after this, all tries and waits included (O-28).
pub const CALL_DEADLINE: Duration = Duration::from_mins(10);
/// The longest one try may take.
pub const TRY_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest a connection may take to come up.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first backoff; doubles, fully jittered.
pub const BACKOFF_BASE: Duration = Duration::from_millis(200);
/// The longest backoff, still fully jittered.
pub const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// A stream without a byte for this long is taken for dead and opened again; the server sends a comment more often.
pub const STREAM_IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// What a claim may take on the wire besides the wait it asks for.
pub const CLAIM_MARGIN: Duration = Duration::from_secs(10);
/// How long a worker's claim waits for work. Shorter than half a usual lease, so that a lease that comes at the end of
/// the wait need not be renewed before work begins (R4.1).
pub const CLAIM_WAIT: Duration = Duration::from_secs(10);
/// How long a claim waits while a slot of bucket `background` may come free.
pub const CLAIM_WAIT_LIMITED: Duration = Duration::from_secs(1);
/// How long a stopping worker waits for the answer of a claim before it hangs up.
pub const CLAIM_HANGUP: Duration = Duration::from_secs(2);
/// Renewals go out at this part of the lease (9 s of 30 s) unless set.
pub const RENEW_PART: f64 = 0.3;
/// An attempt stops this part of the lease before it could expire elsewhere.
pub const FENCE_MARGIN_PART: f64 = 0.05;
/// How long a cancelled or draining attempt may go on.
pub const GRACE: Duration = Duration::from_secs(10);
/// Text deltas of a reply that go into one event at most.
pub const DELTAS_PER_EVENT: usize = 40;
/// The longest a delta waits for company.
pub const DELTA_DELAY: Duration = Duration::from_millis(100);
/// Events that may wait for the writer before the attempt has to wait.
pub const EVENT_QUEUE: usize = 256;
/// The largest append, in bytes of event bodies; well below the server's bound of a request.
pub const APPEND_MAX_BYTES: usize = 512 << 10;
/// The longest detail of a failure, in characters.
pub const FAIL_DETAIL_MAX_CHARS: usize = 2_000;

const _: () = assert!(RENEW_PART * 3.0 < 1.0, "three renewals fit into a lease");
const _: () = assert!(
    APPEND_MAX_BYTES < tidegate_model::limits::REQUEST_MAX_BYTES,
    "an append fits into a request"
);
const _: () = assert!(
    CLAIM_WAIT.as_millis() <= tidegate_model::limits::CLAIM_WAIT_MAX_MS as u128,
    "the server accepts the wait"
);

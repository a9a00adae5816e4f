//! Named limits of the built-in executor.

use std::time::Duration;

/// Child processes of tool servers on one instance, unless set.
pub const PROCESSES: usize = 16;
/// How long a tool server may take until it can be called: the handshake, then its list of tools.
pub const MOUNT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long after the start of a server turns still wait for it; later ones do without.
pub const OFFER_WAIT: Duration = Duration::from_secs(3);
/// How long a connection to a tool server may take to open.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects of one call that are followed.
pub const REDIRECTS: usize = 3;
/// The largest answer of an HTTP tool that is read unless its description says otherwise, in bytes.
pub const HTTP_ANSWER_BYTES: u32 = 1 << 20;
/// How much of an HTTP error is read, in bytes.
pub const ERROR_BODY_BYTES: usize = 2 << 10;
/// The first pause after a tool server ended.
pub const RESTART_BASE: Duration = Duration::from_secs(1);
/// The longest one.
pub const RESTART_MAX: Duration = Duration::from_mins(1);
/// A server that lived this long is started again as if it had never ended.
pub const RESTART_FORGIVEN: Duration = Duration::from_mins(2);
/// How long a server may take to leave after its input was closed.
pub const LEAVE_GRACE: Duration = Duration::from_secs(1);
/// A server whose calls time out so many times in a row is started anew.
pub const STRIKES: u32 = 3;
/// The longest a tool call may take unless its server says otherwise; progress does not prolong it (O-26).
pub const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// The longest line of a tool server, in bytes; longer ones are dropped unread.
pub const LINE_MAX_BYTES: usize = 8 << 20;
/// The most tools of one server.
pub const TOOLS_MAX: usize = 256;
/// The longest description of a tool that a model is shown, in characters.
pub const DESCRIPTION_MAX_CHARS: usize = 4_000;
/// The largest schema of a tool's arguments, in bytes.
pub const SCHEMA_MAX_BYTES: usize = 64 << 10;
/// The largest answer of a tool that a model is shown, in bytes.
pub const TOOL_TEXT_MAX_BYTES: usize = 32 << 10;
/// All answers of tools in one attempt, in bytes.
pub const TOOL_TEXT_TOTAL_BYTES: usize = 384 << 10;
/// Tool calls of one answer that run at once.
pub const TOOL_CALLS_AT_ONCE: usize = 4;
/// The largest text of one answer that is kept, in bytes.
pub const ANSWER_MAX_BYTES: usize = 256 << 10;
/// Messages of a conversation that a model is shown.
pub const CONTEXT_MESSAGES: u32 = 200;
/// Steps of a turn unless set.
pub const STEPS: u32 = 16;
/// Bytes of text that are taken for one token where a provider names no figures.
pub const BYTES_PER_TOKEN: u64 = 4;

const _: () = assert!(
    TOOL_TEXT_TOTAL_BYTES + ANSWER_MAX_BYTES < tidegate_model::limits::REQUEST_MAX_BYTES,
    "the messages of a turn fit into its completion"
);
const _: () = assert!(
    TOOL_TEXT_MAX_BYTES < TOOL_TEXT_TOTAL_BYTES,
    "one answer fits into all"
);

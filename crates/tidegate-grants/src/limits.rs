//! How large a token may be. Each bound holds before anything is verified, so that a stranger's token costs little.

/// The longest token as text, in bytes: it has to fit into a header.
pub const TOKEN_MAX_BYTES: usize = 8 << 10;
/// The most blocks: the one that was signed by Tidegate, and those that narrow it.
pub const BLOCKS_MAX: usize = 16;
/// The most resources of one grant.
pub const GRANTS_MAX: usize = 64;
/// The most symbols of one block: the names and the resources.
pub const SYMBOLS_MAX: usize = 2 * GRANTS_MAX;
/// How long a call lease may live: the exposure of points that check offline (R9.1).
pub const CALL_LEASE_MAX_SECONDS: i64 = 60;

const _: () = assert!(GRANTS_MAX <= u16::MAX as usize);
const _: () = assert!(SYMBOLS_MAX > GRANTS_MAX + 16);

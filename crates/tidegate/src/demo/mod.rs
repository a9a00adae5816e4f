//! `tidegate demo`: two real server processes over one private database, agent turns of two tenants, a run that waits and
//! says why, a run that outlives `kill -9` of the process that worked on it.
//!
//! Nothing is acted: every step looks at what the API answers and fails where it did not happen.

mod narrator;
mod process;
mod stage;
mod story;

pub use narrator::Narrator;
pub use stage::Stage;
pub use story::tell;

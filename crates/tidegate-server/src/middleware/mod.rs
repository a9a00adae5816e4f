//! What every request passes, from the outside in: an id, the access log and metrics, the writing of problems, the
//! catching of panics, and (for routes) the gate.

pub mod access_log;
pub mod gate;
pub mod panics;
pub mod request_id;

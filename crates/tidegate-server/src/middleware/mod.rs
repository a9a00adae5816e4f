//! What every request passes, from the outside in: the reading of what nobody read, an id, the access log and metrics,
//! the writing of problems, the catching of panics, and (for routes) the deadline and the gate.

pub mod access_log;
pub mod deadline;
pub mod gate;
pub mod panics;
pub mod repeats;
pub mod request_id;
pub mod rest_of_body;

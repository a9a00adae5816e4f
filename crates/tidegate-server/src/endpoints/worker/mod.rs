//! The worker protocol.

pub mod append_events;
pub mod claim_runs;
pub mod complete_run;
pub mod fail_run;
pub mod leave_pool;
pub mod read_context;
pub mod record_intent;
pub mod record_outcome;
pub mod register_worker;
pub mod release_run;
pub mod renew_leases;
pub mod submit_child;
pub mod wait_run;
pub mod worker_heartbeat;

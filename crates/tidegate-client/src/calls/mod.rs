//! One method per endpoint, grouped as the contract is. The worker protocol stands in [`crate::worker_api`].

mod administration;
mod admissions;
mod catalogue;
mod conversations;
mod grants;
mod me;
mod pools;
mod probes;
mod runs;
mod schedules;

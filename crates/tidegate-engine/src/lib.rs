//! The use cases of Tidegate: one file per verb, each a function of the engine, the caller and the wire types.
//!
//! Nothing here knows HTTP or contains SQL. A use case reads what it needs, lets `tidegate-policy` decide, and has
//! `tidegate-store` apply the decision in one transaction.
//!
//! Invariants: no function that acts for an attempt takes a run id without its fence; the tenant of a caller comes from
//! its key; what is remembered in memory is either immutable or dropped by the config bus.

pub mod admissions;
pub mod auth;
pub mod cache;
pub mod catalog;
mod checks;
pub mod claims;
pub mod clock;
pub mod cluster;
mod combine;
pub mod config_bus;
pub mod context;
pub mod conversations;
pub mod digests;
pub mod error;
pub mod events;
pub mod grants;
pub mod instances;
pub mod keys;
pub mod lanes;
pub mod leases;
pub mod loops;
pub mod me;
pub mod ops;
pub mod platform;
pub mod pools;
pub mod principal;
pub mod ready;
pub mod redis_link;
pub mod repeats;
pub mod retention;
pub mod runs;
pub mod schedules;
pub mod secrets;
pub mod settings;
mod start;
pub mod tenants;
pub mod trouble;
pub mod vitals;
pub mod worker;

pub use context::{Engine, EngineParts};
pub use error::{Error, Refusal};
pub use principal::Principal;
pub use start::StartError;

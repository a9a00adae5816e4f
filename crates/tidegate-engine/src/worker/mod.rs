//! The worker protocol (R4): what an attempt may do, each write under its fence.

pub mod children;
pub mod claim;
pub mod close;
pub mod context;
pub mod effects;
pub mod events;
pub mod held;
pub mod register;
pub mod renew;
pub mod wait;

pub use close::{complete, fail, release};

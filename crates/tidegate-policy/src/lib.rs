//! Every decision of Tidegate as a pure function of its inputs.
//!
//! No I/O, no runtime, no clock, no randomness that was not handed in: a decision can be replayed from its inputs, and
//! the simulator runs the same code as the server. Applying a decision is `tidegate-store`'s.
//!
//! Invariants: whatever a statement decides has its function here, and a test lets both decide the same random states;
//! no function panics on any input; arithmetic is checked or saturating.

pub mod buckets;
pub mod delegation;
pub mod egress;
pub mod eligibility;
pub mod estimates;
pub mod fairness;
pub mod grants;
pub mod ledger;
pub mod limiter;
pub mod reasons;
pub mod retry;
pub mod schedules;
pub mod tiers;
pub mod tool_names;
pub mod tool_requests;
pub mod vitals;
pub mod waitgraph;

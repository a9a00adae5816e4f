//! Schedules of runs (R3.14).

pub mod delete;
pub mod fire;
pub mod get;
pub mod list;
pub mod pause;
pub mod put;
mod view;

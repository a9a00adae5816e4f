//! Schedules of a tenant.

pub mod delete_schedule;
pub mod get_schedule;
pub mod list_schedules;
pub mod pause_schedule;
pub mod put_schedule;
pub mod resume_schedule;

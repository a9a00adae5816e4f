//! Runs as their tenant sees them.

pub mod answer_input;
pub mod cancel_run;
pub mod cancel_runs;
pub mod explain_run;
pub mod get_run;
pub mod list_children;
pub mod list_runs;
pub mod requeue_run;
pub mod requeue_runs;
pub mod resolve_run;
pub mod stream_events;
pub mod submit_run;

//! The built-in executor: an agent loop (model, tools, model …) that is a client of the worker protocol (R20.3).
//!
//! It sees `dyn WorkerApi`, the models of `tidegate-llm` and its own tools, and nothing of the engine: what it may do
//! to a run, any worker may do, under the same fence.
//!
//! Not here: claiming and renewing (the worker loop of `tidegate-client`), slots of model providers (`tidegate-llm`),
//! which tools an operator marked (the catalogue of the engine).
//!
//! Invariants:
//! * a tool that may change something is called only between an intent and an outcome in the journal of effects; an
//!   attempt after one that had effects goes on from there and repeats none that it must not (R4.5);
//! * background runs are offered tools that only read, and a call of any other is refused before a server hears of it
//!   (O-21);
//! * cancel, deadline, budget and a lost lease drop the model call in flight, which gives back its slot;
//! * use is counted while it happens, so that a failed attempt reports it too;
//! * contents of messages, arguments and answers of tools are in no log, error or metric;
//! * what a tool answers is data: it is bounded, cleaned of the tool's own secrets, and never obeyed.

mod ambient;
mod ask;
mod conversation;
mod cutoff;
mod executor;
mod failure;
mod journal;
pub mod limits;
mod meter;
mod resume;
pub mod tools;
mod turn;

pub use executor::{DefaultModel, Executor, ExecutorSettings};
pub use tools::{ToolHost, ToolServerSpec};

/// Says what the metrics of this crate mean. Labels are the operator's names and fixed words only (O-35).
pub fn describe_metrics() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!(
        "tidegate_agent_steps_total",
        "model calls of the built-in executor by how they ended"
    );
    describe_counter!(
        "tidegate_tool_calls_total",
        "tool calls by server and outcome"
    );
    describe_histogram!(
        "tidegate_tool_call_seconds",
        Unit::Seconds,
        "time of a tool call by server"
    );
    describe_counter!(
        "tidegate_tool_server_starts_total",
        "starts of tool servers by server and outcome"
    );
    describe_gauge!(
        "tidegate_tool_processes",
        "child processes of tool servers on this instance"
    );
}

//! A scripted OpenAI-compatible server: for demonstrations, tests and load. It is no model and does not pretend to be
//! one; what it says stands in a scenario file (`docs/mock-provider.md`).
//!
//! It speaks `/v1/chat/completions` (streaming and not, with tools), `/v1/models` and `/healthz`, and shows under
//! `/__stats` what reached it: requests, requests in flight and their peak, clients that hung up.
//!
//! Not here: thinking, randomness, a clock that decides anything. The same requests in the same order get the same
//! answers.

mod echo;
mod plan;
mod request;
mod scenario;
mod server;
mod template;

pub use scenario::{
    Chunking, Fault, KeyForm, OneOrMany, Reply, Rule, Scenario, ScenarioError, ToolUse,
    UsagePolicy, When,
};
pub use server::{MockHandle, MockProvider, Stats, router, run};

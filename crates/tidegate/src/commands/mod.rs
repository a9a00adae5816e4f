//! One file per command.

pub mod completions;
pub mod config;
pub mod conversation;
pub mod demo;
pub mod dev;
pub mod doctor;
pub mod key;
pub mod me;
pub mod migrate;
pub mod mock_provider;
pub mod model;
pub mod model_source;
pub mod openapi;
pub mod operations;
pub mod page;
pub mod pool;
pub mod provider;
pub mod recover;
pub mod repeat;
pub mod run;
pub mod schedule;
pub mod secret_input;
pub mod secrets;
pub mod serve;
pub mod tenant;
pub mod tool;

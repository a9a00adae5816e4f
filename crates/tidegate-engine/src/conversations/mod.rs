//! Conversations, their messages and turns.

pub mod create;
pub mod list;
pub mod messages;
pub mod turn;

//! Conversations and their turns.

pub mod create_conversation;
pub mod list_messages;
pub mod submit_turn;

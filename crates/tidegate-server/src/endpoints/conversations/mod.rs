//! Conversations and their turns.

pub mod create_conversation;
pub mod get_conversation;
pub mod list_conversations;
pub mod list_messages;
pub mod submit_turn;

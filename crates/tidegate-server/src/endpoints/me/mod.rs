//! What a key may ask about itself.

pub mod get_me;
pub mod get_my_limits;
pub mod get_my_usage;

//! What blocks the lanes: causes from facts, and the loop that keeps them (R3.9).

pub(crate) mod causes;
pub mod observe;

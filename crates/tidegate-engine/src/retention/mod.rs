//! What is kept of ended runs, and for how long (R24.3).

pub mod prune;

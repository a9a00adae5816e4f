//! tidegate-engine

pub mod settings;

//! tidegate-engine

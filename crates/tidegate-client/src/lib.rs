//! tidegate-client

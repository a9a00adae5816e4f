//! tidegate-agent

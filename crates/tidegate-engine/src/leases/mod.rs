//! What any instance does for the leases of all: takeover, stops, wakes of parked runs, ends of what waited too long.

pub mod sweep;

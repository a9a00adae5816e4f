//! Admissions (R7, R10).

pub mod admit;
pub mod end_phase;
pub mod explain_admission;
pub mod get_admission;
pub mod release_admission;
pub mod renew_admission;
pub mod verify_grant;

//! Runs as they come in. What becomes of them is the business of `attempts`.

pub mod classes;
pub mod submit;

pub use submit::{NewRun, Place, Submitted, Turn};

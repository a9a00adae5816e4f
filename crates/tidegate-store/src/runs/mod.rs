//! Runs as they come in. What becomes of them is the business of `attempts`.

pub mod child;
pub mod classes;
pub mod submit;
pub mod submit_many;

pub use child::{NewChild, SubmittedChild};
pub use submit::{Begun, FirstTurn, NewRun, Place, Submitted, Turn};
pub use submit_many::Submission;

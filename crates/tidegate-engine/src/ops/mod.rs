//! What operators read.

mod audit;
mod instances;
mod recovery;
mod revisions;

pub use audit::audit;
pub use instances::instances;
pub use recovery::recovery;
pub use revisions::revisions;

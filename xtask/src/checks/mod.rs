//! One module per rule of the house. Each is a function from the tree to findings and can be tested on a few lines.

pub mod citations;
pub mod codes;
pub mod docs;
pub mod licences;
pub mod purity;
pub mod ranks;
pub mod sizes;
pub mod statements;
pub mod tests;
pub mod words;

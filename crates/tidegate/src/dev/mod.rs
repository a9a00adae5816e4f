//! What `tidegate dev` and `tidegate demo` share: the directory with database, key and profile, and what is put into a
//! new database.

pub mod checkout;
pub mod home;
pub mod seed;

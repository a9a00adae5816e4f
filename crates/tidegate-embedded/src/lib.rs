//! A private PostgreSQL for `tidegate dev`, for `xtask` and for the test kit (R1.2).
//!
//! [`Cluster::start`] makes a database cluster from the PostgreSQL binaries that the machine
//! already has, starts it for this process alone and keeps its data between runs. Nothing is
//! downloaded, nothing outside the given directory is touched, and a PostgreSQL service that
//! runs on the machine is left alone.
//!
//! Not done here: migrations and everything else about the contents of a database (that is
//! `tidegate-store`), and production operation (`tidegate serve` is given `CONFIG_DB_URL`).
//!
//! Invariants:
//! * one owner per directory: a file lock is held from before the first look at the directory
//!   until PostgreSQL has ended, and a crashed owner gives it back by dying;
//! * PostgreSQL ends with its owner, also after `kill -9` (see [`tied`]); where the machine
//!   cannot promise that, the next start stops what was left over;
//! * PostgreSQL never runs as root; it drops to an account that has a passwd entry;
//! * a half-made cluster is never mistaken for a whole one: it is made aside and renamed;
//! * only the owner gets in: the socket directory is private, and TCP, where it is asked for,
//!   listens on loopback and wants a password.
//!
//! Layout of a cluster directory (see [`layout`]): `data/` (PostgreSQL's own), `run/` (socket),
//! `log/postgres.log`, `password`, `lock`, `tidegate-cluster.json`.

mod account;
mod binaries;
mod cluster;
mod error;
mod initialise;
pub mod layout;
mod options;
mod strays;
mod supervisor;
pub mod tied;
mod wait;

pub use account::Account;
pub use binaries::{Binaries, MIN_MAJOR, Search, site_packages};
pub use cluster::Cluster;
pub use error::EmbeddedError;
pub use layout::default_data_dir;
pub use options::{Durability, Listen, Options};

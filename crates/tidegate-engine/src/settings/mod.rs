//! Settings: one table from which the struct, its defaults, the loader, the flags of `tidegate serve`, the output of
//! `tidegate config` and `docs/configuration.md` are made (R1.4).
//!
//! Sources, weakest first: defaults, the file (TOML), the environment, flags. A name that nobody knows is an error that
//! names the nearest one; a bad value is an error that names where it stood, what was found (never a secret) and what is
//! allowed; values that contradict one another are refused by name. All errors are reported at once.
//!
//! Not done here: what needs the database (is this the right key?) and what is kept in it (tenants, providers, models).
//!
//! Invariants: a secret is a `SecretString` from the moment it is read and has no flag, because flags are visible in
//! the list of processes; an empty environment variable counts as not set.

mod error;
mod features;
mod load;
mod relations;
mod report;
mod rule;
mod setting;
mod table;
mod value;

pub use error::{SettingProblem, SettingsError};
pub use features::{FEATURES, Feature, features};
pub use load::{Loaded, Sources, load};
pub use report::{Row, markdown};
pub use rule::Rule;
pub use setting::{Setting, Source, Takes};
pub use table::{Settings, table};
pub use tidegate_policy::egress::IpRange;
pub use value::{Language, LogFormat, Roles};

//! Shapes on the wire, shared by server, clients and command line. JSON in camelCase; times RFC 3339 UTC; durations
//! end in `Ms`; requests refuse unknown fields, answers may grow.

pub mod admissions;
pub mod catalog;
pub mod conversations;
pub mod effects;
pub mod grant_keys;
pub mod keys;
pub mod operations;
pub mod pools;
pub mod problem;
pub mod registrations;
pub mod runs;
pub mod schedules;
pub mod tenants;
pub mod tools;
pub mod tree;
pub mod worker;

pub use admissions::*;
pub use catalog::*;
pub use conversations::*;
pub use effects::*;
pub use grant_keys::*;
pub use keys::*;
pub use operations::*;
pub use pools::*;
pub use problem::*;
pub use registrations::*;
pub use runs::*;
pub use schedules::*;
pub use tenants::*;
pub use tools::*;
pub use tree::*;
pub use worker::*;

use serde::{Deserialize, Serialize};

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// What was asked for, in the list's order.
    pub items: Vec<T>,
    /// Pass it as `cursor` to read on; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Which page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PageQuery {
    /// At most this many items (1 to 200; 50 unless given).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the page before ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

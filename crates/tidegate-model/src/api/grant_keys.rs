//! Keys that sign grants (R9.1).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::contracts::PublishedGrantKey;

crate::text_enum! {
    /// What a key of grants does.
    pub enum GrantKeyState: "grant key state" {
        /// Published ahead of its time; signs nothing.
        Next = "next",
        /// Will sign from `notBefore` on.
        Starting = "starting",
        /// Signs.
        Active = "active",
        /// Signs no more, or will not for long; what it has signed counts until `retireAt`.
        Retiring = "retiring",
    }
}

/// A key of grants, as its operator sees it. The private half is never shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GrantKeyView {
    /// What is published of it.
    #[serde(flatten)]
    pub published: PublishedGrantKey,
    /// What it does.
    pub state: GrantKeyState,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// Every key of grants that is not retired, by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GrantKeyList {
    /// The keys.
    pub items: Vec<GrantKeyView>,
}

/// The published keys of grants, by number. What was signed by any other key is no grant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PublishedGrantKeys {
    /// The keys.
    pub keys: Vec<PublishedGrantKey>,
}

//! Model providers and models, as an administrator keeps them.

use serde::{Deserialize, Serialize};

use crate::{ids::CatalogName, text_enum};

text_enum! {
    /// How a provider is spoken to.
    pub enum ProviderKind: "provider kind" {
        /// Any endpoint with OpenAI's shapes.
        OpenAiCompatible = "openai_compatible",
    }
}

/// `PUT /v1/admin/providers/{name}`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutProvider {
    /// How it is spoken to.
    pub kind: ProviderKind,
    /// The address up to and including `/v1`.
    pub base_url: String,
    /// Sealed at rest, never shown again. Absent keeps the one that is stored; an empty text removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Calls at once per instance; the deployment's default unless given (R13.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Calls per minute per instance; unlimited unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u32>,
    /// Waiting calls per class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queue: Option<u32>,
    /// The longest wait for a slot, in milliseconds, at most an hour; 0 switches the foreground's bound off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<u64>,
}

impl std::fmt::Debug for PutProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PutProvider")
            .field("kind", &self.kind)
            .field("base_url", &self.base_url)
            .field("api_key", &self.api_key.as_ref().map(|_| "redacted"))
            .finish_non_exhaustive()
    }
}

/// A provider without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProviderView {
    /// Its name.
    pub name: CatalogName,
    /// How it is spoken to.
    pub kind: ProviderKind,
    /// Its address.
    pub base_url: String,
    /// Whether a key is stored, and whether it can be opened.
    pub api_key: SecretState,
    /// Calls at once per instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Calls per minute per instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u32>,
    /// Waiting calls per class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queue: Option<u32>,
    /// The longest wait for a slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<u64>,
}

text_enum! {
    /// What is known of a sealed secret.
    pub enum SecretState: "secret state" {
        /// None is stored.
        Absent = "absent",
        /// Stored and readable.
        Sealed = "sealed",
        /// Stored, but neither the current nor the previous key opens it.
        Unreadable = "unreadable",
    }
}

/// `PUT /v1/admin/models/{name}`: a name that agents ask for, and who serves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutModel {
    /// A provider of the catalogue.
    pub provider: CatalogName,
    /// The provider's own name of the model.
    pub upstream_model: String,
    /// Used by the built-in executor where a capability names no model.
    #[serde(default)]
    pub default: bool,
}

/// A model of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ModelView {
    /// Its name.
    pub name: CatalogName,
    /// Who serves it.
    pub provider: CatalogName,
    /// The provider's own name.
    pub upstream_model: String,
    /// Whether it is the default.
    pub default: bool,
}

//! What the ledger counts (R7.3): the name of a resource says what takes of it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::names::ToolName;
use crate::{
    PoolId, TenantId,
    ids::{CatalogName, InvalidId},
    text_enum,
    text_form::text_form,
};

text_enum! {
    /// What a resource is, the first part of its name.
    pub enum ResourceKind: "resource kind" {
        /// `pool/<pool>`: slots of a pool; whatever is admitted to it takes one.
        Pool = "pool",
        /// `sandbox/<pool>`: sandboxes of a pool; what asks for a sandbox takes one.
        Sandbox = "sandbox",
        /// `model/<name>`: slots of a model in the catalogue; taken by who names it under `resources`.
        Model = "model",
        /// `tool/<domain>/<name>`: permits of a tool; what needs the tool takes its `toolSlots`.
        Tool = "tool",
        /// `tenant/<tenant>/slots` or `tenant/<tenant>/tokens`: what a tenant may have admitted at once; whatever it has
        /// admitted takes one slot, and the tokens that it estimates.
        Tenant = "tenant",
        /// `shared/<name>`: anything else; taken by who names it under `resources`.
        Shared = "shared",
    }
}

/// What of a tenant is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantMeasure {
    /// Admissions at once.
    Slots,
    /// Estimated tokens of what is admitted at once.
    Tokens,
}

impl TenantMeasure {
    /// The last part of the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::Tokens => "tokens",
        }
    }
}

/// The name of a resource, for example `pool/builtin` or `tool/web/search`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceName(String);

impl ResourceName {
    /// The text form, stored and sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Slots of a pool.
    pub fn pool(pool: &PoolId) -> Self {
        Self(format!("pool/{pool}"))
    }

    /// Sandboxes of a pool.
    pub fn sandbox(pool: &PoolId) -> Self {
        Self(format!("sandbox/{pool}"))
    }

    /// Permits of a tool.
    pub fn tool(tool: &ToolName) -> Self {
        Self(format!("tool/{tool}"))
    }

    /// What a tenant may have admitted at once.
    pub fn tenant(tenant: &TenantId, measure: TenantMeasure) -> Self {
        Self(format!("tenant/{tenant}/{}", measure.as_str()))
    }

    /// What it is.
    pub fn kind(&self) -> ResourceKind {
        let kind = self.0.split('/').next().and_then(|kind| kind.parse().ok());
        kind.unwrap_or(ResourceKind::Shared)
    }

    /// Whose it is, where it belongs to a tenant.
    pub fn owner(&self) -> Option<&str> {
        self.0.strip_prefix("tenant/")?.split('/').next()
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ResourceName {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let fits =
            text.split_once('/')
                .is_some_and(|(kind, rest)| match kind.parse::<ResourceKind>() {
                    Ok(ResourceKind::Pool | ResourceKind::Sandbox) => {
                        rest.parse::<PoolId>().is_ok()
                    }
                    Ok(ResourceKind::Model | ResourceKind::Shared) => {
                        rest.parse::<CatalogName>().is_ok()
                    }
                    Ok(ResourceKind::Tool) => rest.parse::<ToolName>().is_ok(),
                    Ok(ResourceKind::Tenant) => {
                        rest.split_once('/').is_some_and(|(tenant, what)| {
                            tenant.parse::<TenantId>().is_ok() && matches!(what, "slots" | "tokens")
                        })
                    }
                    Err(_) => false,
                });
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId {
                kind: "resource",
                expected: "pool/POOL, sandbox/POOL, model/MODEL, tool/DOMAIN/NAME, tenant/TENANT/slots, \
                           tenant/TENANT/tokens or shared/NAME (for example pool/builtin)",
            })
        }
    }
}

text_form!(
    ResourceName,
    "^(pool|sandbox|model|tool|tenant|shared)/[A-Za-z0-9._/-]{1,201}$"
);

/// So much of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceNeed {
    /// Which.
    pub resource: ResourceName,
    /// How much, in the resource's own unit; at least 1.
    pub amount: i64,
}

/// What it is expected to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Estimates {
    /// Tokens, over all its model calls; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<i64>,
    /// Calls of each of its tools at once; 1 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_slots: Option<i64>,
    /// How long it takes, in milliseconds; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
}

impl Estimates {
    /// The greatest of each.
    pub const MAX: i64 = 1_000_000_000_000;

    /// The first one that is out of bounds.
    pub fn out_of_bounds(&self) -> Option<&'static str> {
        let all = [
            ("tokens", self.tokens),
            ("toolSlots", self.tool_slots),
            ("durationMs", self.duration_ms),
        ];
        let wrong =
            |value: Option<i64>| value.is_some_and(|value| !(1..=Self::MAX).contains(&value));
        all.into_iter()
            .find(|(_, value)| wrong(*value))
            .map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bad input: a name that is of no kind names nothing.
    #[test]
    fn a_resource_says_what_it_is() {
        for good in [
            "pool/builtin",
            "sandbox/gpu-1",
            "model/default",
            "tool/web/search",
            "tenant/acme/slots",
            "tenant/acme/tokens",
            "shared/licence.cad",
        ] {
            let name: ResourceName = good.parse().unwrap();
            assert_eq!(name.to_string(), good);
            assert!(good.starts_with(name.kind().as_str()), "{good}");
        }
        for bad in [
            "",
            "pool",
            "pool/",
            "pool/A",
            "pool/a/b",
            "tool/search",
            "tenant/acme",
            "tenant/acme/money",
            "tenant/Acme/slots",
            "gpu/1",
            "shared/a b",
        ] {
            assert!(bad.parse::<ResourceName>().is_err(), "{bad}");
        }
        let own: ResourceName = "tenant/acme/slots".parse().unwrap();
        assert_eq!(own.owner(), Some("acme"));
    }
}

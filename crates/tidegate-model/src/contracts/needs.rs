//! `TaskRequirements.v1`: what a run needs of the pool that serves it (R6.1).

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    names::{
        Label, Modality, Region, ResourceScope, RuntimeName, Sandbox, ToolName, Version, Versions,
    },
    resource::{Estimates, ResourceNeed},
};
use crate::{Capability, TenantId, digest::Digest, strict};

/// What a run needs besides its capability. All of it has to be met; what is not named is not asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Needs {
    /// The classes of the data in its input; a pool has to have each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_labels: Vec<Label>,
    /// The version of its input; the pool has to understand it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_schema: Option<Version>,
    /// The version of the result that its caller reads; the pool has to give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Version>,
    /// Tools that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolNeed>,
    /// Runtimes that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<RuntimeNeed>,
    /// What it has to read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_scopes: Vec<ResourceScope>,
    /// Where it may run: no region of the pool may be another one. Anywhere unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_regions: Vec<Region>,
    /// The weakest sandbox it may run in.
    #[serde(default, skip_serializing_if = "Sandbox::is_none")]
    pub sandbox: Sandbox,
    /// What it needs of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelNeed>,
    /// What it is expected to use; part of what is reserved for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimates: Option<Estimates>,
    /// Resources that it takes beside those that follow from its pool, its tools and its tenant. Each has to be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceNeed>,
}

/// A tool in a range of versions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolNeed {
    /// Its name, `domain/name`.
    pub name: ToolName,
    /// Which versions will do.
    pub versions: Versions,
    /// Its argument schema has to be this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_digest: Option<Digest>,
}

/// A runtime in a range of versions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuntimeNeed {
    /// Its name.
    pub name: RuntimeName,
    /// Which versions will do.
    pub versions: Versions,
}

/// What is needed of models.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelNeed {
    /// A context of at least so many tokens.
    #[serde(default)]
    pub context_tokens: i64,
    /// What they have to take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modalities: Vec<Modality>,
}

impl Needs {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same needs in the one order that their digest is made of; what is named twice is named once.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        fn set<T: Ord>(items: &mut Vec<T>) {
            items.sort();
            items.dedup();
        }
        set(&mut self.input_labels);
        set(&mut self.resource_scopes);
        set(&mut self.allowed_regions);
        self.tools.sort_by(|a, b| {
            (&a.name, a.versions.to_string(), &a.schema_digest).cmp(&(
                &b.name,
                b.versions.to_string(),
                &b.schema_digest,
            ))
        });
        self.tools.dedup();
        self.runtimes.sort_by(|a, b| {
            (&a.name, a.versions.to_string()).cmp(&(&b.name, b.versions.to_string()))
        });
        self.runtimes.dedup();
        if let Some(model) = &mut self.model {
            set(&mut model.modalities);
        }
        self.estimates = self.estimates.filter(|some| *some != Estimates::default());
        self.resources.sort_by(|a, b| a.resource.cmp(&b.resource));
        self
    }
}

/// What a run needs (R6.1). Requirements are stored once per digest, tenant included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "Map<String, Value>")]
pub struct TaskRequirements {
    /// Always `TaskRequirements.v1`.
    pub contract: RequirementsContract,
    /// The trusted tenant, put in by the server.
    pub tenant: TenantId,
    /// What the pool must offer.
    pub capability: Capability,
    /// What else it must have.
    #[serde(flatten)]
    pub needs: Needs,
}

impl TaskRequirements {
    /// Requirements of the first version.
    pub fn new(tenant: TenantId, capability: Capability, needs: Needs) -> Self {
        Self {
            contract: RequirementsContract::V1,
            tenant,
            capability,
            needs: needs.in_order(),
        }
    }
}

// A reader with `flatten` would buffer the needs and read them less strictly than everything else.
impl TryFrom<Map<String, Value>> for TaskRequirements {
    type Error = String;

    fn try_from(mut members: Map<String, Value>) -> Result<Self, String> {
        fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
            strict::from_value(value).map_err(|error| error.to_string())
        }
        let mut own = |name: &str| {
            let value = members.remove(name);
            value.ok_or_else(|| format!("missing field `{name}`"))
        };
        Ok(Self {
            contract: read(own("contract")?)?,
            tenant: read(own("tenant")?)?,
            capability: read(own("capability")?)?,
            needs: read(members.into())?,
        })
    }
}

crate::text_enum! {
    /// The version of a requirement.
    pub enum RequirementsContract: "contract version" {
        /// The first version.
        V1 = "TaskRequirements.v1",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::digest::canonical_digest;

    fn requirements(needs: serde_json::Value) -> TaskRequirements {
        TaskRequirements::new(
            "acme".parse().unwrap(),
            "ocr".parse().unwrap(),
            serde_json::from_value(needs).unwrap(),
        )
    }

    /// R6.1: one digest for one meaning, whatever the order.
    #[test]
    fn equal_needs_have_one_digest() {
        let one = requirements(json!({
            "inputLabels": ["pii", "internal"], "allowedRegions": ["eu-2", "eu-1"],
            "tools": [{"name": "web/search", "versions": "^2"}, {"name": "fs/read", "versions": "*"}],
        }));
        let other = requirements(json!({
            "allowedRegions": ["eu-1", "eu-2", "eu-1"], "inputLabels": ["internal", "pii"],
            "tools": [{"name": "fs/read", "versions": "*"}, {"name": "web/search", "versions": "^2"}],
        }));
        assert_eq!(
            canonical_digest(&one).unwrap(),
            canonical_digest(&other).unwrap()
        );
        let digest = |of: &str| format!("sha256:{}", of.repeat(64));
        let pinned = |digests: [&str; 4]| {
            let tool = |of| json!({"name": "fs/read", "versions": "*", "schemaDigest": digest(of)});
            requirements(json!({"tools": digests.map(tool)}))
        };
        assert_eq!(pinned(["a", "b", "a", "a"]), pinned(["b", "a", "b", "b"]));
        let plain = requirements(json!({}));
        assert_ne!(
            canonical_digest(&one).unwrap(),
            canonical_digest(&plain).unwrap()
        );
        let written =
            json!({"contract": "TaskRequirements.v1", "tenant": "acme", "capability": "ocr"});
        assert_eq!(serde_json::to_value(&plain).unwrap(), written);
    }

    /// R6.2: a requirement of another shape is not read as if it said less.
    #[test]
    fn an_unknown_field_is_refused() {
        let mut written = serde_json::to_value(requirements(json!({"sandbox": "vm"}))).unwrap();
        assert!(serde_json::from_value::<TaskRequirements>(written.clone()).is_ok());
        written["gpu"] = json!(true);
        assert!(serde_json::from_value::<TaskRequirements>(written).is_err());
        let listed = json!({"contract": "TaskRequirements.v1", "tenant": "acme", "capability": "ocr",
            "tools": [["web/search", "*"]]});
        assert!(strict::from_value::<TaskRequirements>(listed).is_err());
        assert!(serde_json::from_value::<Needs>(json!({"tenant": "globex"})).is_err());
    }
}

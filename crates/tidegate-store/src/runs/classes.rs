//! Requirement classes: a small number for each digest of requirements, tenant included.

use tidegate_model::{contracts::TaskRequirements, digest::Digest};

use crate::{Error, TenantStore};

impl TenantStore {
    /// The class of some requirements; made where it is new. Never changes, so callers remember it.
    pub async fn requirement_class(
        &self,
        requirements: &TaskRequirements,
        digest: &Digest,
    ) -> Result<i32, Error> {
        let body = serde_json::to_value(requirements).map_err(|_| Error::Corrupt {
            what: "requirements",
        })?;
        // Two statements: the second one sees what another session has committed in between.
        let made = sqlx::query_scalar!(
            r#"INSERT INTO requirement_classes (tenant, digest, capability, requirements)
               VALUES ($1, $2, $3, $4) ON CONFLICT (tenant, digest) DO NOTHING RETURNING class"#,
            self.key(),
            digest.as_bytes().as_slice(),
            requirements.capability.as_str(),
            body,
        )
        .fetch_optional(self.pool())
        .await?;
        if let Some(class) = made {
            return Ok(class);
        }
        Ok(sqlx::query_scalar!(
            "SELECT class FROM requirement_classes WHERE tenant = $1 AND digest = $2",
            self.key(),
            digest.as_bytes().as_slice(),
        )
        .fetch_one(self.pool())
        .await?)
    }
}

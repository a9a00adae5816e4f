//! Requirement classes: a small number for each digest of requirements, tenant included.

use tidegate_model::{contracts::TaskRequirements, digest::Digest};

use crate::{Error, TenantStore};

impl TenantStore {
    /// The class of some requirements; made where it is new. Never changes, so callers remember it. Descendants of
    /// background roots have classes of their own (R3.6).
    pub async fn requirement_class(
        &self,
        requirements: &TaskRequirements,
        digest: &Digest,
        of_background: bool,
    ) -> Result<i32, Error> {
        let body = serde_json::to_value(requirements).map_err(|_| Error::Corrupt {
            what: "requirements",
        })?;
        // Two statements: the second one sees what another session has committed in between.
        let made = sqlx::query_scalar!(
            r#"INSERT INTO requirement_classes (tenant, digest, capability, requirements, of_background)
               VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant, digest, of_background) DO NOTHING RETURNING class"#,
            self.key(),
            digest.as_bytes().as_slice(),
            requirements.capability.as_str(),
            body,
            of_background,
        )
        .fetch_optional(self.pool())
        .await?;
        if let Some(class) = made {
            return Ok(class);
        }
        Ok(sqlx::query_scalar!(
            "SELECT class FROM requirement_classes WHERE tenant = $1 AND digest = $2 AND of_background = $3",
            self.key(),
            digest.as_bytes().as_slice(),
            of_background,
        )
        .fetch_one(self.pool())
        .await?)
    }
}

//! Requirement classes: a small number for each digest of requirements, tenant included.

use tidegate_model::{contracts::TaskRequirements, digest::Digest, strict};

use crate::{Error, Fleet, TenantStore};

/// The most different requirements of one tenant: each is a lane that every instance looks at.
pub const CLASSES_PER_TENANT_MAX: i64 = 10_000;

impl TenantStore {
    /// The class of some requirements; made where it is new. Never changes, so callers remember it. Descendants of
    /// background roots have classes of their own (R3.6). `None` where the tenant has as many as it may.
    pub async fn requirement_class(
        &self,
        requirements: &TaskRequirements,
        digest: &Digest,
        of_background: bool,
    ) -> Result<Option<i32>, Error> {
        let body = serde_json::to_value(requirements).map_err(|_| Error::Corrupt {
            what: "requirements",
        })?;
        // Two statements: the second one sees what another session has committed in between.
        let made = sqlx::query_scalar!(
            r#"INSERT INTO requirement_classes (tenant, digest, capability, requirements, of_background)
               SELECT $1, $2, $3, $4, $5
               WHERE (SELECT count(*) FROM requirement_classes k WHERE k.tenant = $1) < $6::bigint
               ON CONFLICT (tenant, digest, of_background) DO NOTHING RETURNING class"#,
            self.key(),
            digest.as_bytes().as_slice(),
            requirements.capability.as_str(),
            body,
            of_background,
            CLASSES_PER_TENANT_MAX,
        )
        .fetch_optional(self.pool())
        .await?;
        if made.is_some() {
            return Ok(made);
        }
        Ok(sqlx::query_scalar!(
            "SELECT class FROM requirement_classes WHERE tenant = $1 AND digest = $2 AND of_background = $3",
            self.key(),
            digest.as_bytes().as_slice(),
            of_background,
        )
        .fetch_optional(self.pool())
        .await?)
    }
}

impl Fleet {
    /// The requirements of some classes; `None` for those of a contract that this release does not know (R6.2).
    pub async fn requirements(
        &self,
        classes: &[i32],
    ) -> Result<Vec<(i32, Option<TaskRequirements>)>, Error> {
        let rows = sqlx::query!(
            "SELECT class, requirements FROM requirement_classes WHERE class = ANY ($1)",
            classes,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| (row.class, strict::from_value(row.requirements).ok()))
            .collect())
    }
}

//! Attempts that have ended, looked up by what their holder still knows of them.

use tidegate_model::{Code, Fence, PoolId, RunId, TenantId, run::AttemptOutcome};

use crate::{Error, Fleet, error::stored};

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedAttempt {
    /// Whose run it was of.
    pub tenant: TenantId,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// Why, where it did not succeed.
    pub code: Option<Code>,
    /// Whether its run has ended, then or since.
    pub run_ended: bool,
}

impl Fleet {
    /// The ended attempt of a run with a fence, where it was one of the pool.
    ///
    /// A holder names no tenant, and attempts are found by theirs: this asks once per tenant, by the key, and is meant for
    /// writes that are about to be refused.
    pub async fn ended_attempt(
        &self,
        pool: &PoolId,
        run: RunId,
        fence: Fence,
    ) -> Result<Option<EndedAttempt>, Error> {
        let row = sqlx::query!(
            r#"SELECT t.tenant AS "tenant!", a.outcome AS "outcome!", a.code,
                      EXISTS (SELECT FROM run_ends e WHERE e.tenant = t.tenant AND e.run_id = $1) AS "run_ended!"
               FROM tenants t CROSS JOIN LATERAL (
                   SELECT outcome, code FROM run_attempts
                   WHERE tenant = t.tenant AND run_id = $1 AND fence_generation = $2 AND fence_number = $3
                     AND pool = $4
                   LIMIT 1) a
               LIMIT 1"#,
            run.as_uuid(),
            fence.generation,
            fence.number,
            pool.as_str(),
        )
        .fetch_optional(self.pool())
        .await?;
        row.map(|row| {
            Ok(EndedAttempt {
                tenant: stored(&row.tenant, "run_attempts.tenant")?,
                outcome: stored(&row.outcome, "run_attempts.outcome")?,
                code: row
                    .code
                    .map(|code| stored(&code, "run_attempts.code"))
                    .transpose()?,
                run_ended: row.run_ended,
            })
        })
        .transpose()
    }
}

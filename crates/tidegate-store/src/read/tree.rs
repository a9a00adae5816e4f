//! Children and descendants of runs, and what people answered.

use chrono::{DateTime, Utc};
use serde_json::Value;
use tidegate_model::{
    RunId,
    api::{AnswerInput, Ask, InputView},
    limits::CHILD_RESULTS_MAX_BYTES,
    strict,
};

use crate::{
    Error, Fleet, TenantStore,
    attempts::{HeldLease, bucket_number},
};

/// The most descendants that are read; a tree holds no more.
const DESCENDANTS_MAX: i64 = 1_000;

/// A descendant's place in its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kin {
    /// The run.
    pub run_id: RunId,
    /// Its parent.
    pub parent_run_id: RunId,
    /// How deep it is below the root of its tree.
    pub depth: i16,
    /// Its name within the parent.
    pub key: String,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
}

/// The result of a child, where it fits.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildResult {
    /// The child.
    pub run_id: RunId,
    /// What it gave back; `None` where it did not fit.
    pub result: Option<Value>,
}

impl TenantStore {
    /// A run's descendants, each after its parent, oldest first; only its children unless `deep`.
    pub async fn descendants(&self, run: RunId, deep: bool) -> Result<Vec<Kin>, Error> {
        let rows = sqlx::query!(
            r#"WITH RECURSIVE below AS (
                SELECT c.run_id, c.parent_run_id, c.depth, c.child_key, c.created_at FROM agent_runs c
                WHERE c.tenant = $1 AND c.parent_run_id = $2
                UNION ALL
                SELECT c.run_id, c.parent_run_id, c.depth, c.child_key, c.created_at FROM below b
                JOIN agent_runs c ON c.tenant = $1 AND c.parent_run_id = b.run_id
                WHERE $3
            )
            SELECT run_id AS "run_id!", parent_run_id AS "parent_run_id!", depth AS "depth!", child_key AS "key!",
                   created_at AS "created_at!"
            FROM below ORDER BY depth, created_at, run_id LIMIT $4"#,
            self.key(),
            run.as_uuid(),
            deep,
            DESCENDANTS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Kin {
                run_id: RunId::from_uuid(row.run_id),
                parent_run_id: RunId::from_uuid(row.parent_run_id),
                depth: row.depth,
                key: row.key,
                created_at: row.created_at,
            })
            .collect())
    }

    /// The results of those of some runs that succeeded: in the order given, as many as fit into one answer, and the
    /// first one in any case.
    pub async fn results(&self, runs: &[RunId]) -> Result<Vec<ChildResult>, Error> {
        let ids: Vec<uuid::Uuid> = runs.iter().map(|run| run.as_uuid()).collect();
        let rows = sqlx::query!(
            r#"WITH sized AS (
                SELECT e.run_id, g.ord,
                       sum(octet_length(e.result::text)) OVER (ORDER BY g.ord) <= $3 OR g.ord = 1 AS fits
                FROM unnest($2::uuid[]) WITH ORDINALITY AS g(run_id, ord)
                JOIN run_ends e ON e.tenant = $1 AND e.run_id = g.run_id AND e.state = 'succeeded'
            )
            SELECT s.run_id AS "run_id!", CASE WHEN s.fits THEN (SELECT e.result FROM run_ends e
                WHERE e.tenant = $1 AND e.run_id = s.run_id) END AS result
            FROM sized s ORDER BY s.ord"#,
            self.key(),
            &ids,
            CHILD_RESULTS_MAX_BYTES,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| ChildResult {
                run_id: RunId::from_uuid(row.run_id),
                result: row.result,
            })
            .collect())
    }

    /// What people answered to a run, oldest first.
    pub async fn inputs(&self, run: RunId) -> Result<Vec<InputView>, Error> {
        let rows = sqlx::query!(
            r#"SELECT ask_no, ask, answer, answered_at, user_name FROM run_inputs
               WHERE tenant = $1 AND run_id = $2 ORDER BY ask_no"#,
            self.key(),
            run.as_uuid(),
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                let corrupt = |_| Error::Corrupt { what: "run_inputs" };
                let ask: Ask = strict::from_value(row.ask).map_err(corrupt)?;
                let answer: AnswerInput = strict::from_value(row.answer).map_err(corrupt)?;
                Ok(InputView {
                    ask_no: row.ask_no,
                    ask,
                    answer,
                    answered_at: row.answered_at,
                    user: row.user_name,
                })
            })
            .collect()
    }
}

impl Fleet {
    /// The children of a leased run that have not ended, or that ended after its attempt began: what the holder may not
    /// have heard of yet. With `named` those of these that are its children.
    pub async fn awaitable(
        &self,
        lease: &HeldLease,
        named: Option<&[RunId]>,
    ) -> Result<Vec<RunId>, Error> {
        let named: Option<Vec<uuid::Uuid>> =
            named.map(|runs| runs.iter().map(|run| run.as_uuid()).collect());
        Ok(sqlx::query_scalar!(
            r#"SELECT c.run_id FROM agent_runs c
               JOIN run_leases l ON l.scope = c.scope AND l.bucket = $1 AND l.tenant = c.tenant
                AND l.run_id = c.parent_run_id
               LEFT JOIN run_ends e ON e.tenant = c.tenant AND e.run_id = c.run_id
               WHERE c.tenant = $2 AND c.parent_run_id = $3
                 AND CASE WHEN $4::uuid[] IS NULL THEN e.run_id IS NULL OR e.ended_at > l.started_at
                          ELSE c.run_id = ANY ($4) END
               ORDER BY c.run_id"#,
            bucket_number(lease.key.bucket),
            lease.key.tenant.as_str(),
            lease.key.run_id.as_uuid(),
            named.as_deref(),
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(RunId::from_uuid)
        .collect())
    }
}

//! Queue rows of given runs. The narrow queue has no index by run, so that every claim and submission pays for one index
//! less; they are looked for in their lanes.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use tidegate_model::RunId;
use uuid::Uuid;

use super::runs::RunRow;
use crate::{Error, TenantStore, attempts::bucket_number};

/// How many of the latest runs of a lane are looked through before the whole lane is.
const LATELY: i64 = 128;

pub(super) struct QueueRow {
    run_id: Uuid,
    pub queued_at: DateTime<Utc>,
    pub rank: i16,
    pub urgency: i16,
    pub position: i64,
    pub attempts: i32,
    pub spent_tokens: i64,
    pub spent_ms: i64,
}

impl TenantStore {
    /// The queue rows of runs. Most that are asked for were submitted lately and stand at the end of their lane; the rest
    /// is looked for in the whole lane.
    pub(super) async fn queued(
        &self,
        runs: &HashMap<RunId, RunRow>,
    ) -> Result<HashMap<RunId, QueueRow>, Error> {
        let mut found = self.queued_lately(runs).await?;
        let rest: Vec<&RunRow> = runs
            .values()
            .filter(|run| !found.contains_key(&run.run_id))
            .collect();
        if !rest.is_empty() {
            found.extend(self.queued_anywhere(&rest).await?);
        }
        Ok(found)
    }

    async fn queued_lately(
        &self,
        runs: &HashMap<RunId, RunRow>,
    ) -> Result<HashMap<RunId, QueueRow>, Error> {
        let lanes = Lanes::of(runs.values());
        let ids: Vec<Uuid> = runs.keys().map(|run| run.as_uuid()).collect();
        let rows = sqlx::query_as!(
            QueueRow,
            r#"SELECT q.run_id AS "run_id!", q.queued_at AS "queued_at!", q.rank AS "rank!", q.urgency AS "urgency!",
                      q.position AS "position!", q.attempts AS "attempts!", q.spent_tokens AS "spent_tokens!",
                      q.spent_ms AS "spent_ms!"
               FROM unnest($2::text[], $3::smallint[], $4::integer[], $5::smallint[]) AS l(scope, bucket, class, urgency)
               CROSS JOIN LATERAL (
                   SELECT * FROM run_queue q
                   WHERE q.scope = l.scope AND q.bucket = l.bucket AND q.tenant = $1 AND q.class = l.class
                     AND q.rank = 1 AND q.urgency = l.urgency
                   ORDER BY q.position DESC LIMIT $7) q
               WHERE q.run_id = ANY ($6)"#,
            self.key(),
            &lanes.scopes,
            &lanes.buckets,
            &lanes.classes,
            &lanes.urgencies,
            &ids,
            LATELY,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(by_run(rows))
    }

    async fn queued_anywhere(&self, runs: &[&RunRow]) -> Result<HashMap<RunId, QueueRow>, Error> {
        let lanes = Lanes::of(runs.iter().copied());
        let ids: Vec<Uuid> = runs.iter().map(|run| run.run_id.as_uuid()).collect();
        let rows = sqlx::query_as!(
            QueueRow,
            r#"SELECT q.run_id AS "run_id!", q.queued_at AS "queued_at!", q.rank AS "rank!", q.urgency AS "urgency!",
                      q.position AS "position!", q.attempts AS "attempts!", q.spent_tokens AS "spent_tokens!",
                      q.spent_ms AS "spent_ms!"
               FROM unnest($2::text[], $3::smallint[], $4::integer[], $5::smallint[]) AS l(scope, bucket, class, urgency)
               CROSS JOIN LATERAL (
                   SELECT * FROM run_queue q
                   WHERE q.scope = l.scope AND q.bucket = l.bucket AND q.tenant = $1 AND q.class = l.class
                     AND q.rank IN (0, 1) AND q.urgency = l.urgency AND q.run_id = ANY ($6)) q"#,
            self.key(),
            &lanes.scopes,
            &lanes.buckets,
            &lanes.classes,
            &lanes.urgencies,
            &ids,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(by_run(rows))
    }
}

fn by_run(rows: Vec<QueueRow>) -> HashMap<RunId, QueueRow> {
    rows.into_iter()
        .map(|row| (RunId::from_uuid(row.run_id), row))
        .collect()
}

/// The lanes of some runs, with the urgency at which they stand there, each once.
#[derive(Default)]
struct Lanes {
    scopes: Vec<String>,
    buckets: Vec<i16>,
    classes: Vec<i32>,
    urgencies: Vec<i16>,
}

impl Lanes {
    fn of<'a>(runs: impl Iterator<Item = &'a RunRow>) -> Self {
        let mut lanes: Vec<(&str, i16, i32, i16)> = runs
            .map(|run| {
                (
                    run.scope.as_str(),
                    bucket_number(run.lane.bucket),
                    run.lane.class,
                    run.priority.saturating_neg(),
                )
            })
            .collect();
        lanes.sort_unstable();
        lanes.dedup();
        let mut columns = Self::default();
        for (scope, bucket, class, urgency) in lanes {
            columns.scopes.push(scope.to_owned());
            columns.buckets.push(bucket);
            columns.classes.push(class);
            columns.urgencies.push(urgency);
        }
        columns
    }
}

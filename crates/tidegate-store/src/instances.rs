//! Server processes by their own heartbeat (R1.9, R4.1, R17.2).

use serde_json::Value;
use tidegate_model::{InstanceId, api::InstanceView};

use crate::{Error, Store};

/// What an instance says of itself at each heartbeat.
#[derive(Debug, Clone, PartialEq)]
pub struct Heartbeat {
    /// The process.
    pub instance: InstanceId,
    /// Its version.
    pub version: String,
    /// `chat`, `admin`.
    pub roles: Vec<String>,
    /// Whether it takes no new work.
    pub draining: bool,
    /// The revision it serves.
    pub revision: i64,
    /// Its wall clock against the database's.
    pub clock_skew_ms: i64,
    /// Runs it may execute at once.
    pub concurrency: i32,
    /// Of them of bucket `background`.
    pub background_concurrency: i32,
    /// Whether notifications reach it.
    pub listening: bool,
    /// Slots that workers of other pools offer by waiting in a claim: `{"pool": slots}`.
    pub waiting_claims: Value,
    /// Ids of the keys it can open secrets with (R1.8).
    pub key_ids: Vec<String>,
}

/// What a beat tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beaten {
    /// The database's clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// Whether the instance serves a revision that is not noted yet as served by all.
    pub ahead: bool,
    /// The key that secrets are sealed with now.
    pub key_in_force: Option<String>,
}

/// A live instance that could not go on after a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithoutKey {
    /// The process.
    pub instance: InstanceId,
    /// Its version.
    pub version: String,
}

/// Rows of instances that were not seen for this long are removed by the others.
const FORGET_AFTER_HOURS: f64 = 24.0;

impl Store {
    /// Writes the heartbeat. What runs is counted from the leases, not from what the process believes.
    pub async fn beat(&self, beat: &Heartbeat) -> Result<Beaten, Error> {
        Ok(sqlx::query_as!(
            Beaten,
            r#"INSERT INTO instances AS i (instance_id, version, roles, draining, revision, clock_skew_ms, concurrency,
                 background_concurrency, listening, waiting_claims, key_ids, running, running_background)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
                    count(l.run_id)::integer, (count(l.run_id) FILTER (WHERE l.bucket = 1))::integer
             FROM (SELECT) one LEFT JOIN run_leases l ON l.instance_id = $1
             ON CONFLICT (instance_id) DO UPDATE SET
                 seen_at = clock_timestamp(), draining = excluded.draining, clock_skew_ms = excluded.clock_skew_ms,
                 revision_since = CASE WHEN i.revision = excluded.revision THEN i.revision_since
                                       ELSE clock_timestamp() END,
                 revision = excluded.revision, listening = excluded.listening,
                 waiting_claims = excluded.waiting_claims, key_ids = excluded.key_ids, running = excluded.running,
                 running_background = excluded.running_background
             RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS "now_ms!",
                 $5 > coalesce((SELECT max(f.revision) FROM config_in_force f), 0) AS "ahead!",
                 (SELECT c.key_check_id FROM cluster c) AS key_in_force"#,
            beat.instance.as_uuid(),
            beat.version,
            &beat.roles,
            beat.draining,
            beat.revision,
            beat.clock_skew_ms,
            beat.concurrency,
            beat.background_concurrency,
            beat.listening,
            beat.waiting_claims,
            &beat.key_ids,
        )
        .fetch_one(self.pool())
        .await?)
    }

    /// Removes an instance that has stopped.
    pub async fn leave(&self, instance: InstanceId) -> Result<(), Error> {
        sqlx::query!(
            "DELETE FROM instances WHERE instance_id = $1",
            instance.as_uuid()
        )
        .execute(self.pool())
        .await?;
        Ok(())
    }

    /// Removes instances that were not seen for a day.
    pub async fn forget_instances(&self) -> Result<u64, Error> {
        let done = sqlx::query!(
            "DELETE FROM instances WHERE seen_at < clock_timestamp() - $1 * interval '1 hour'",
            FORGET_AFTER_HOURS,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }

    /// Every instance; `alive` where it was seen within `dead_after_ms`.
    pub async fn list_instances(&self, dead_after_ms: i64) -> Result<Vec<InstanceView>, Error> {
        let rows = sqlx::query!(
            r#"SELECT instance_id, version, roles, started_at, seen_at, draining, revision, revision_since,
                      clock_skew_ms, concurrency, background_concurrency, listening, alive AS "alive!",
                      -- What a process said of itself holds while it lives; of one that is gone only leases count.
                      CASE WHEN alive THEN running ELSE
                          (SELECT count(*) FROM run_leases l WHERE l.instance_id = i.instance_id)::integer
                      END AS "running!"
               FROM instances i CROSS JOIN LATERAL
                    (SELECT seen_at > clock_timestamp() - $1::bigint * interval '1 millisecond' AS alive) seen
               ORDER BY started_at, instance_id"#,
            dead_after_ms,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| InstanceView {
                instance_id: InstanceId::from_uuid(row.instance_id),
                version: row.version,
                roles: row.roles,
                started_at: row.started_at,
                seen_at: row.seen_at,
                alive: row.alive,
                draining: row.draining,
                revision: row.revision,
                revision_since: row.revision_since,
                clock_skew_ms: row.clock_skew_ms,
                concurrency: row.concurrency,
                background_concurrency: row.background_concurrency,
                running: row.running,
                listening: row.listening && row.alive,
            })
            .collect())
    }

    /// Instances that were seen within `dead_after_ms` and do not have the key. One of a release that did not say which
    /// keys it has counts as without.
    pub async fn instances_without_key(
        &self,
        key_id: &str,
        dead_after_ms: i64,
    ) -> Result<Vec<WithoutKey>, Error> {
        let rows = sqlx::query!(
            "SELECT instance_id, version FROM instances
             WHERE seen_at > clock_timestamp() - $2::bigint * interval '1 millisecond' AND $1 <> ALL (key_ids)
             ORDER BY started_at, instance_id",
            key_id,
            dead_after_ms,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| WithoutKey {
                instance: InstanceId::from_uuid(row.instance_id),
                version: row.version,
            })
            .collect())
    }

    /// A short write, for readiness (R21.4): `false` where the instance has no row yet.
    pub async fn probe_write(&self, instance: InstanceId) -> Result<bool, Error> {
        let done = sqlx::query!(
            "UPDATE instances SET seen_at = clock_timestamp() WHERE instance_id = $1",
            instance.as_uuid(),
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected() == 1)
    }
}

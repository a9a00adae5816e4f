//! Event streams: one read for all streams of an instance, and what bounds a stream (R4.6).

use chrono::{DateTime, Utc};
use tidegate_model::{RunId, TenantId, api::RunEvent, event::EventKind};
use uuid::Uuid;

use crate::{Error, Fleet, TenantStore, error::stored};

/// A stream and the last event that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamPosition {
    /// Whose run.
    pub tenant: TenantId,
    /// The run.
    pub run_id: RunId,
    /// The number of the last event that is known; 0 for none.
    pub after: i64,
}

/// What there is of a run's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamBounds {
    /// The first event kept; `None` where none is.
    pub first: Option<i64>,
    /// The last event written; 0 for none.
    pub last: i64,
    /// Whether the run is over, so that nothing follows the last one.
    pub ended: bool,
}

struct Row {
    tenant: String,
    run_id: Uuid,
    seq: i64,
    at: DateTime<Utc>,
    kind: String,
    body: serde_json::Value,
}

impl Row {
    fn event(self) -> Result<RunEvent, Error> {
        let kind: EventKind = stored(&self.kind, "run_events.kind")?;
        Ok(RunEvent {
            seq: self.seq,
            at: self.at,
            kind,
            body: self.body,
        })
    }
}

impl TenantStore {
    /// What there is of a run's events; `None` where the tenant has no such run.
    pub async fn event_bounds(&self, run: RunId) -> Result<Option<StreamBounds>, Error> {
        let row = sqlx::query!(
            r#"SELECT (SELECT e.seq FROM run_events e WHERE e.tenant = r.tenant AND e.run_id = r.run_id
                       ORDER BY e.seq LIMIT 1) AS first,
                      (SELECT e.seq FROM run_events e WHERE e.tenant = r.tenant AND e.run_id = r.run_id
                       ORDER BY e.seq DESC LIMIT 1) AS last,
                      (SELECT e.next_seq - 1 FROM run_ends e
                       WHERE e.tenant = r.tenant AND e.run_id = r.run_id) AS end_seq
               FROM agent_runs r WHERE r.tenant = $1 AND r.run_id = $2"#,
            self.key(),
            run.as_uuid(),
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(|row| StreamBounds {
            first: row.first,
            last: row.last.or(row.end_seq).unwrap_or(0),
            ended: row.end_seq.is_some(),
        }))
    }

    /// Events of a run after a number, in order, at most `limit`.
    pub async fn events_after(
        &self,
        run: RunId,
        after: i64,
        limit: i64,
    ) -> Result<Vec<RunEvent>, Error> {
        sqlx::query_as!(
            Row,
            r#"SELECT e.tenant, e.run_id, e.seq, e.at, e.kind, e.body FROM run_events e
               WHERE e.tenant = $1 AND e.run_id = $2 AND e.seq > $3 ORDER BY e.seq LIMIT $4"#,
            self.key(),
            run.as_uuid(),
            after,
            limit,
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(Row::event)
        .collect()
    }
}

impl Fleet {
    /// Events of many runs after their positions, by run and in order, at most `limit` of each.
    ///
    /// One statement for all: 0.004 ms per stream with nothing new, where a statement each costs 0.05 to 0.1 ms.
    pub async fn events_after(
        &self,
        streams: &[StreamPosition],
        limit: i64,
    ) -> Result<Vec<(TenantId, RunId, RunEvent)>, Error> {
        let tenants: Vec<String> = streams
            .iter()
            .map(|stream| stream.tenant.as_str().to_owned())
            .collect();
        let runs: Vec<Uuid> = streams.iter().map(|s| s.run_id.as_uuid()).collect();
        let after: Vec<i64> = streams.iter().map(|s| s.after).collect();
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT e.tenant AS "tenant!", e.run_id AS "run_id!", e.seq AS "seq!", e.at AS "at!", e.kind AS "kind!",
                      e.body AS "body!"
               FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS s(tenant, run_id, after)
               CROSS JOIN LATERAL (
                   SELECT e.* FROM run_events e
                   WHERE e.tenant = s.tenant AND e.run_id = s.run_id AND e.seq > s.after
                   ORDER BY e.seq LIMIT $4) e"#,
            &tenants,
            &runs,
            &after,
            limit,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                let tenant = stored(&row.tenant, "run_events.tenant")?;
                Ok((tenant, RunId::from_uuid(row.run_id), row.event()?))
            })
            .collect()
    }
}

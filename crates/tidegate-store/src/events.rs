//! Events that the holder of a lease appends (R4.2, R4.6).

use serde_json::Value;
use tidegate_model::event::EventKind;

use crate::{
    Error, Fleet,
    attempts::{HeldLease, bucket_number},
};

/// How an append ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// All are written; some may have been before.
    Written,
    /// The fence is not that of an open lease.
    LeaseLost,
    /// An event of this number was written before with another content.
    Differs {
        /// Its number.
        seq: i64,
    },
    /// The first number is not the next one; this one is.
    Gap {
        /// The number that comes next.
        next: i64,
    },
}

impl Fleet {
    /// Appends events that their holder numbered from `first` without gaps. The lease is held by a key-share lock, so that
    /// a renewal passes and a takeover comes before or after all of them. The same events sent twice are written once.
    ///
    /// Whether the attempt was told to stop is not asked, unlike for its intents: events change nothing outside, and those
    /// of the grace are of what began before the holder heard of the stop (the tail of an answer, what it cost, the outcome
    /// of a call). Refusing them would leave gaps in the numbers, lose what readers and the bill need most, and end a
    /// holder's tidy stop as a failure. Closing the attempt is what ends its events.
    pub async fn append_events(
        &self,
        scope: &str,
        lease: &HeldLease,
        first: i64,
        events: &[(EventKind, Value)],
    ) -> Result<Appended, Error> {
        let kinds: Vec<String> = events
            .iter()
            .map(|(kind, _)| kind.as_str().to_owned())
            .collect();
        let bodies: Vec<Value> = events.iter().map(|(_, body)| body.clone()).collect();
        let row = sqlx::query!(
            r#"WITH held AS MATERIALIZED (
                SELECT l.tenant, l.run_id FROM run_leases l, cluster c
                WHERE l.scope = $1 AND l.bucket = $2 AND l.tenant = $3 AND l.run_id = $4
                  AND l.fence_generation = $5 AND l.fence_number = $6 AND l.fence_generation = c.generation
                  AND l.lease_until > clock_timestamp()
                FOR KEY SHARE OF l
            ), last AS MATERIALIZED (
                SELECT h.tenant, h.run_id, (SELECT max(e.seq) FROM run_events e
                    WHERE e.tenant = h.tenant AND e.run_id = h.run_id) AS seq
                FROM held h
            ), differs AS MATERIALIZED (
                SELECT min(e.seq) AS seq
                FROM held h CROSS JOIN unnest($8::text[], $9::jsonb[]) WITH ORDINALITY AS g(kind, body, ord)
                JOIN run_events e ON e.tenant = h.tenant AND e.run_id = h.run_id AND e.seq = $7::bigint + g.ord - 1
                WHERE e.kind <> g.kind OR e.body <> g.body
            ), written AS (
                INSERT INTO run_events (tenant, run_id, seq, kind, body)
                SELECT l.tenant, l.run_id, $7::bigint + g.ord - 1, g.kind, g.body
                FROM last l, unnest($8::text[], $9::jsonb[]) WITH ORDINALITY AS g(kind, body, ord)
                WHERE l.seq >= $7::bigint - 1 AND (SELECT seq FROM differs) IS NULL
                ON CONFLICT (tenant, run_id, seq) DO NOTHING
            )
            SELECT (SELECT count(*) FROM held) AS "held!", (SELECT seq FROM last) AS last,
                   (SELECT seq FROM differs) AS differs"#,
            scope,
            bucket_number(lease.key.bucket),
            lease.key.tenant.as_str(),
            lease.key.run_id.as_uuid(),
            lease.fence.generation,
            lease.fence.number,
            first,
            &kinds,
            &bodies,
        )
        .fetch_one(self.pool())
        .await?;
        if let Some(seq) = row.differs {
            return Ok(Appended::Differs { seq });
        }
        Ok(match row.last {
            _ if row.held == 0 => Appended::LeaseLost,
            Some(last) if last >= first - 1 => Appended::Written,
            last => Appended::Gap {
                next: last.unwrap_or(0) + 1,
            },
        })
    }

    /// Whether a lease is open under its fence.
    pub async fn is_held(&self, scope: &str, lease: &HeldLease) -> Result<bool, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM run_leases l, cluster c
                WHERE l.scope = $1 AND l.bucket = $2 AND l.tenant = $3 AND l.run_id = $4
                  AND l.fence_generation = $5 AND l.fence_number = $6 AND l.fence_generation = c.generation
                  AND l.lease_until > clock_timestamp()) AS "held!""#,
            scope,
            bucket_number(lease.key.bucket),
            lease.key.tenant.as_str(),
            lease.key.run_id.as_uuid(),
            lease.fence.generation,
            lease.fence.number,
        )
        .fetch_one(self.pool())
        .await?)
    }
}

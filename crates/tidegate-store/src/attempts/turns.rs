//! The conversation's side of a turn's end: its messages, and the turn that stands next (R3.7).

use std::collections::HashMap;

use serde_json::Value;
use sqlx::PgConnection;
use tidegate_model::Capability;
use uuid::Uuid;

use super::bucket_of;
use crate::{Error, error::stored, lanes::LaneKey};

/// A turn that has just ended in this transaction, whose conversation is locked.
#[derive(Debug, Clone)]
pub(super) struct EndedTurn {
    pub tenant: String,
    pub conversation: Uuid,
    pub run_id: Uuid,
    /// Role and content, in order.
    pub messages: Vec<(&'static str, Value)>,
}

/// A turn that has come into the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedTurn {
    /// Its lane.
    pub lane: LaneKey,
    /// What it asks for.
    pub capability: Capability,
}

/// Locks the conversations of some runs, in the order of their ids, before any row of a run is locked.
pub(crate) async fn lock_conversations(
    tx: &mut PgConnection,
    conversations: &[(String, Uuid)],
) -> Result<(), Error> {
    if conversations.is_empty() {
        return Ok(());
    }
    let mut sorted = conversations.to_vec();
    sorted.sort();
    sorted.dedup();
    let (tenants, ids): (Vec<String>, Vec<Uuid>) = sorted.into_iter().unzip();
    sqlx::query!(
        r#"SELECT c.conversation_id FROM conversations c
           JOIN unnest($1::text[], $2::uuid[]) AS k(tenant, conversation_id) USING (tenant, conversation_id)
           ORDER BY c.tenant, c.conversation_id FOR UPDATE OF c"#,
        &tenants,
        &ids,
    )
    .fetch_all(tx)
    .await?;
    Ok(())
}

/// Writes the turns' messages and lets the next turn of each conversation into the queue; answers these by the run whose
/// end let them in.
pub(super) async fn end_turns(
    tx: &mut PgConnection,
    turns: &[EndedTurn],
    queue_max_age_ms: i64,
) -> Result<HashMap<Uuid, QueuedTurn>, Error> {
    if turns.is_empty() {
        return Ok(HashMap::new());
    }
    append_messages(tx, turns).await?;
    let tenants: Vec<String> = turns.iter().map(|t| t.tenant.clone()).collect();
    let conversations: Vec<Uuid> = turns.iter().map(|t| t.conversation).collect();
    let runs: Vec<Uuid> = turns.iter().map(|t| t.run_id).collect();
    sqlx::query!(
        r#"WITH ended AS (
            -- A turn that was parked behind another one ends without having been the active one.
            SELECT c.tenant, c.conversation_id, e.run_id AS ended_run
            FROM unnest($1::text[], $2::uuid[], $3::uuid[]) AS e(tenant, conversation_id, run_id)
            JOIN conversations c ON c.tenant = e.tenant AND c.conversation_id = e.conversation_id
             AND c.active_run = e.run_id
        ), next AS MATERIALIZED (
            SELECT e.tenant, e.conversation_id, e.ended_run, p.run_id
            FROM ended e LEFT JOIN LATERAL (
                SELECT p.run_id FROM run_parked p
                WHERE p.tenant = e.tenant AND p.conversation_id = e.conversation_id AND p.why = 'conversation_busy'
                ORDER BY p.turn_no LIMIT 1) p ON true
        ), moved AS (
            DELETE FROM run_parked p USING next n WHERE p.tenant = n.tenant AND p.run_id = n.run_id RETURNING p.*
        ), queued AS (
            INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, attempts, fence_number,
                leases_lost, spent_tokens, spent_ms, next_seq, expires_at)
            SELECT m.scope, m.bucket, m.tenant, m.class, 0, m.urgency, m.run_id, m.attempts, m.fence_number,
                m.leases_lost, m.spent_tokens, m.spent_ms, m.next_seq,
                least(a.deadline, clock_timestamp() + $4::bigint * interval '1 millisecond')
            FROM moved m JOIN agent_runs a ON a.tenant = m.tenant AND a.run_id = m.run_id
        ), active AS (
            UPDATE conversations c SET active_run = n.run_id FROM next n
            WHERE c.tenant = n.tenant AND c.conversation_id = n.conversation_id
        )
        SELECT n.ended_run AS "ended_run!", m.bucket, m.tenant, m.class, a.capability
        FROM moved m JOIN next n ON n.run_id = m.run_id
        JOIN agent_runs a ON a.tenant = m.tenant AND a.run_id = m.run_id"#,
        &tenants,
        &conversations,
        &runs,
        queue_max_age_ms,
    )
    .fetch_all(tx)
    .await?
    .into_iter()
    .map(|row| {
        let lane = LaneKey {
            bucket: bucket_of(row.bucket)?,
            tenant: stored(&row.tenant, "run_parked.tenant")?,
            class: row.class,
        };
        let capability = stored(&row.capability, "agent_runs.capability")?;
        Ok((row.ended_run, QueuedTurn { lane, capability }))
    })
    .collect()
}

/// Writes messages of turns, in order; their conversations are locked.
pub(super) async fn append_messages(
    tx: &mut PgConnection,
    turns: &[EndedTurn],
) -> Result<(), Error> {
    let mut tenants = Vec::new();
    let mut conversations = Vec::new();
    let mut runs = Vec::new();
    let mut roles = Vec::new();
    let mut contents = Vec::new();
    for turn in turns {
        for (role, content) in &turn.messages {
            tenants.push(turn.tenant.clone());
            conversations.push(turn.conversation);
            runs.push(turn.run_id);
            roles.push((*role).to_owned());
            contents.push(content.clone());
        }
    }
    if roles.is_empty() {
        return Ok(());
    }
    let expected = roles.len() as u64;
    let done = sqlx::query!(
        r#"WITH given AS (
            SELECT g.*, row_number() OVER (PARTITION BY g.tenant, g.conversation_id ORDER BY g.ord) - 1 AS offset_in
            FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::jsonb[])
                WITH ORDINALITY AS g(tenant, conversation_id, run_id, role, content, ord)
        ), counts AS (
            SELECT tenant, conversation_id, count(*) AS added FROM given GROUP BY tenant, conversation_id
        ), numbered AS (
            UPDATE conversations c SET next_message = c.next_message + n.added FROM counts n
            WHERE c.tenant = n.tenant AND c.conversation_id = n.conversation_id
            RETURNING c.tenant, c.conversation_id, c.next_message - n.added AS first
        )
        INSERT INTO messages (tenant, conversation_id, seq, turn_no, role, content, run_id)
        SELECT g.tenant, g.conversation_id, n.first + g.offset_in, a.turn_no, g.role, g.content, g.run_id
        FROM given g JOIN numbered n USING (tenant, conversation_id)
        JOIN agent_runs a ON a.tenant = g.tenant AND a.run_id = g.run_id"#,
        &tenants,
        &conversations,
        &runs,
        &roles,
        &contents,
    )
    .execute(tx)
    .await?
    .rows_affected();
    if done == expected {
        Ok(())
    } else {
        Err(Error::RowCount {
            statement: "append messages",
            expected,
            changed: done,
        })
    }
}

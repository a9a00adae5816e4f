//! Lists of a tenant's runs, newest first.
//!
//! Each state is looked for where its rows are, so that a list of what is queued does not walk what has ended. The list
//! names candidates; [`TenantStore::runs`] then reads them, and one that has moved on meanwhile shows where it is now.

use tidegate_model::{Capability, ConversationId, RunId, ids::ScheduleName, run::RunState};
use uuid::Uuid;

use crate::{Error, TenantStore};

/// What to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Only runs in this state.
    pub state: Option<RunState>,
    /// Only runs that ask for this.
    pub capability: Option<Capability>,
    /// Only turns of this conversation.
    pub conversation_id: Option<ConversationId>,
    /// Only runs of this schedule.
    pub schedule: Option<ScheduleName>,
    /// Only dead letters: failed runs whose attempts were exhausted.
    pub dead_letters: bool,
    /// Only runs older than this one.
    pub before: Option<RunId>,
    /// At most this many.
    pub limit: i64,
}

/// The filter as statements bind it.
struct Bound<'a> {
    capability: Option<&'a str>,
    conversation: Option<Uuid>,
    before: Option<Uuid>,
    limit: i64,
    schedule: Option<&'a str>,
}

impl TenantStore {
    /// Ids of the tenant's runs that the filter names, newest first.
    pub async fn list_runs(&self, filter: &ListFilter) -> Result<Vec<RunId>, Error> {
        let bound = Bound {
            capability: filter.capability.as_ref().map(Capability::as_str),
            conversation: filter.conversation_id.map(ConversationId::as_uuid),
            before: filter.before.map(RunId::as_uuid),
            limit: filter.limit,
            schedule: filter.schedule.as_ref().map(ScheduleName::as_str),
        };
        let ids = match filter.state {
            _ if filter.dead_letters => match filter.state {
                None | Some(RunState::Failed) => self.dead_letters(&bound).await?,
                Some(_) => Vec::new(),
            },
            None => self.all(&bound).await?,
            Some(RunState::Queued) => self.waiting_to_start(&bound).await?,
            Some(RunState::Running) => self.leased(&bound).await?,
            Some(state @ (RunState::Waiting | RunState::Review)) => {
                self.parked_as(&bound, state).await?
            }
            Some(
                state @ (RunState::Succeeded
                | RunState::Failed
                | RunState::Cancelled
                | RunState::Expired),
            ) => self.ended_as(&bound, state).await?,
        };
        Ok(ids.into_iter().map(RunId::from_uuid).collect())
    }

    async fn all(&self, bound: &Bound<'_>) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM agent_runs r
               WHERE r.tenant = $1 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($6::text IS NULL OR r.schedule = $6) AND ($4::uuid IS NULL OR r.run_id < $4)
               ORDER BY r.run_id DESC LIMIT $5"#,
            self.key(),
            bound.capability,
            bound.conversation,
            bound.before,
            bound.limit,
            bound.schedule,
        )
        .fetch_all(self.pool())
        .await?)
    }

    async fn waiting_to_start(&self, bound: &Bound<'_>) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"WITH RECURSIVE scopes AS (
                (SELECT q.scope FROM run_queue q ORDER BY q.scope LIMIT 1)
                UNION ALL
                (SELECT n.scope FROM scopes s CROSS JOIN LATERAL (
                    SELECT q.scope FROM run_queue q WHERE q.scope > s.scope ORDER BY q.scope LIMIT 1) n)
            ), waiting AS (
                SELECT q.run_id FROM scopes s, run_queue q
                WHERE q.scope = s.scope AND q.bucket IN (0, 1, 2) AND q.tenant = $1
                UNION ALL
                SELECT p.run_id FROM run_parked p
                WHERE p.tenant = $1 AND p.why IN ('conversation_busy', 'scheduled', 'retry_backoff')
            )
            SELECT w.run_id AS "run_id!" FROM waiting w JOIN agent_runs r ON r.tenant = $1 AND r.run_id = w.run_id
            WHERE ($2::text IS NULL OR r.capability = $2) AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($6::text IS NULL OR r.schedule = $6)
              AND ($4::uuid IS NULL OR r.run_id < $4)
            ORDER BY w.run_id DESC LIMIT $5"#,
            self.key(),
            bound.capability,
            bound.conversation,
            bound.before,
            bound.limit,
            bound.schedule,
        )
        .fetch_all(self.pool())
        .await?)
    }

    async fn leased(&self, bound: &Bound<'_>) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM run_leases l JOIN agent_runs r ON r.tenant = l.tenant AND r.run_id = l.run_id
               WHERE l.tenant = $1 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($6::text IS NULL OR r.schedule = $6) AND ($4::uuid IS NULL OR r.run_id < $4)
               ORDER BY r.run_id DESC LIMIT $5"#,
            self.key(),
            bound.capability,
            bound.conversation,
            bound.before,
            bound.limit,
            bound.schedule,
        )
        .fetch_all(self.pool())
        .await?)
    }

    async fn parked_as(&self, bound: &Bound<'_>, state: RunState) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM run_parked p JOIN agent_runs r ON r.tenant = p.tenant AND r.run_id = p.run_id
               WHERE p.tenant = $1 AND p.why = $6 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($7::text IS NULL OR r.schedule = $7) AND ($4::uuid IS NULL OR r.run_id < $4)
               ORDER BY r.run_id DESC LIMIT $5"#,
            self.key(),
            bound.capability,
            bound.conversation,
            bound.before,
            bound.limit,
            state.as_str(),
            bound.schedule,
        )
        .fetch_all(self.pool())
        .await?)
    }

    async fn ended_as(&self, bound: &Bound<'_>, state: RunState) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM run_ends e JOIN agent_runs r ON r.tenant = e.tenant AND r.run_id = e.run_id
               WHERE e.tenant = $1 AND e.state = $6 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($7::text IS NULL OR r.schedule = $7) AND ($4::uuid IS NULL OR e.run_id < $4)
               ORDER BY e.run_id DESC LIMIT $5"#,
            self.key(),
            bound.capability,
            bound.conversation,
            bound.before,
            bound.limit,
            state.as_str(),
            bound.schedule,
        )
        .fetch_all(self.pool())
        .await?)
    }

    async fn dead_letters(&self, bound: &Bound<'_>) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM run_ends e JOIN agent_runs r ON r.tenant = e.tenant AND r.run_id = e.run_id
               WHERE e.tenant = $1 AND e.state = 'failed' AND e.code = 'ATTEMPTS_EXHAUSTED'
                 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($6::text IS NULL OR r.schedule = $6) AND ($4::uuid IS NULL OR e.run_id < $4)
               ORDER BY e.run_id DESC LIMIT $5"#,
            self.key(),
            bound.capability,
            bound.conversation,
            bound.before,
            bound.limit,
            bound.schedule,
        )
        .fetch_all(self.pool())
        .await?)
    }
}

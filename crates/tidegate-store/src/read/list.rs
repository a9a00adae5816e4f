//! Lists of a tenant's runs, newest first.
//!
//! Each state is looked for where its rows are, so that a list of what is queued does not walk what has ended. The list
//! names candidates; [`TenantStore::runs`] then reads them, and one that has moved on meanwhile shows where it is now.

use sqlx::PgConnection;
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
#[derive(Clone)]
struct Bound {
    tenant: String,
    capability: Option<String>,
    conversation: Option<Uuid>,
    before: Option<Uuid>,
    limit: i64,
    schedule: Option<String>,
}

impl TenantStore {
    /// Ids of the tenant's runs that the filter names, newest first.
    pub async fn list_runs(&self, filter: &ListFilter) -> Result<Vec<RunId>, Error> {
        let bound = Bound {
            tenant: self.key().to_owned(),
            capability: filter
                .capability
                .as_ref()
                .map(|capability| capability.as_str().to_owned()),
            conversation: filter.conversation_id.map(ConversationId::as_uuid),
            before: filter.before.map(RunId::as_uuid),
            limit: filter.limit,
            schedule: filter
                .schedule
                .as_ref()
                .map(|schedule| schedule.as_str().to_owned()),
        };
        let (state, dead_letters) = (filter.state, filter.dead_letters);
        let ids = self
            .store()
            .planned_read("list_runs", move |tx| {
                let bound = bound.clone();
                Box::pin(async move { list(tx, &bound, state, dead_letters).await })
            })
            .await?;
        Ok(ids.into_iter().map(RunId::from_uuid).collect())
    }
}

async fn list(
    tx: &mut PgConnection,
    bound: &Bound,
    state: Option<RunState>,
    dead_letters: bool,
) -> Result<Vec<Uuid>, Error> {
    match state {
        _ if dead_letters => match state {
            None | Some(RunState::Failed) => bound.dead_letters(tx).await,
            Some(_) => Ok(Vec::new()),
        },
        None => bound.all(tx).await,
        Some(RunState::Queued) => bound.waiting_to_start(tx).await,
        Some(RunState::Running) => bound.leased(tx).await,
        Some(state @ (RunState::Waiting | RunState::Review)) => bound.parked_as(tx, state).await,
        Some(
            state @ (RunState::Succeeded
            | RunState::Failed
            | RunState::Cancelled
            | RunState::Expired),
        ) => bound.ended_as(tx, state).await,
    }
}

impl Bound {
    async fn all(&self, tx: &mut PgConnection) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM agent_runs r
               WHERE r.tenant = $1 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($6::text IS NULL OR r.schedule = $6) AND ($4::uuid IS NULL OR r.run_id < $4)
               ORDER BY r.run_id DESC LIMIT $5"#,
            self.tenant,
            self.capability,
            self.conversation,
            self.before,
            self.limit,
            self.schedule,
        )
        .fetch_all(tx)
        .await?)
    }

    async fn waiting_to_start(&self, tx: &mut PgConnection) -> Result<Vec<Uuid>, Error> {
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
            self.tenant,
            self.capability,
            self.conversation,
            self.before,
            self.limit,
            self.schedule,
        )
        .fetch_all(tx)
        .await?)
    }

    async fn leased(&self, tx: &mut PgConnection) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM run_leases l JOIN agent_runs r ON r.tenant = l.tenant AND r.run_id = l.run_id
               WHERE l.tenant = $1 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($6::text IS NULL OR r.schedule = $6) AND ($4::uuid IS NULL OR r.run_id < $4)
               ORDER BY r.run_id DESC LIMIT $5"#,
            self.tenant,
            self.capability,
            self.conversation,
            self.before,
            self.limit,
            self.schedule,
        )
        .fetch_all(tx)
        .await?)
    }

    async fn parked_as(&self, tx: &mut PgConnection, state: RunState) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM run_parked p JOIN agent_runs r ON r.tenant = p.tenant AND r.run_id = p.run_id
               WHERE p.tenant = $1 AND p.why = $6 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($7::text IS NULL OR r.schedule = $7) AND ($4::uuid IS NULL OR r.run_id < $4)
               ORDER BY r.run_id DESC LIMIT $5"#,
            self.tenant,
            self.capability,
            self.conversation,
            self.before,
            self.limit,
            state.as_str(),
            self.schedule,
        )
        .fetch_all(tx)
        .await?)
    }

    async fn ended_as(&self, tx: &mut PgConnection, state: RunState) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM run_ends e JOIN agent_runs r ON r.tenant = e.tenant AND r.run_id = e.run_id
               WHERE e.tenant = $1 AND e.state = $6 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($7::text IS NULL OR r.schedule = $7) AND ($4::uuid IS NULL OR e.run_id < $4)
               ORDER BY e.run_id DESC LIMIT $5"#,
            self.tenant,
            self.capability,
            self.conversation,
            self.before,
            self.limit,
            state.as_str(),
            self.schedule,
        )
        .fetch_all(tx)
        .await?)
    }

    async fn dead_letters(&self, tx: &mut PgConnection) -> Result<Vec<Uuid>, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT r.run_id FROM run_ends e JOIN agent_runs r ON r.tenant = e.tenant AND r.run_id = e.run_id
               WHERE e.tenant = $1 AND e.state = 'failed' AND e.code = 'ATTEMPTS_EXHAUSTED'
                 AND ($2::text IS NULL OR r.capability = $2)
                 AND ($3::uuid IS NULL OR r.conversation_id = $3)
                 AND ($6::text IS NULL OR r.schedule = $6) AND ($4::uuid IS NULL OR e.run_id < $4)
               ORDER BY e.run_id DESC LIMIT $5"#,
            self.tenant,
            self.capability,
            self.conversation,
            self.before,
            self.limit,
            self.schedule,
        )
        .fetch_all(tx)
        .await?)
    }
}

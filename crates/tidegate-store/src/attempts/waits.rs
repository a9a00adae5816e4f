//! Waits of runs (R3.13, R3.15): what is written when one begins, and the one way in which one is over.

use std::{borrow::Cow, collections::HashSet};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use tidegate_model::{
    KeyId, RunId,
    api::{AnswerInput, Ask},
    run::{WaitMode, WaitOn},
    strict,
};
use tidegate_policy::waitgraph::check_answer;
use uuid::Uuid;

use crate::{Error, Fleet, Intent, TenantStore, repeats::Outcome, written::Written};

/// What a run is to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// What it waits on.
    pub on: WaitOn,
    /// How many of the children must end.
    pub mode: WaitMode,
    /// The awaited children; only for a wait on children, and then at least one.
    pub runs: Vec<RunId>,
    /// The question; only for a wait on a person.
    pub ask: Option<Ask>,
    /// It is over at this time, whatever came.
    pub until: Option<DateTime<Utc>>,
}

impl Wait {
    /// What the closing statement takes apart into columns.
    pub(super) fn columns(&self) -> Value {
        let mut columns = Map::new();
        columns.insert("on".to_owned(), json!(self.on));
        if self.on == WaitOn::Children {
            let runs: Vec<Uuid> = self.runs.iter().map(|run| run.as_uuid()).collect();
            columns.insert("mode".to_owned(), json!(self.mode));
            columns.insert("runs".to_owned(), json!(runs));
        }
        if let Some(ask) = &self.ask {
            columns.insert("ask".to_owned(), json!(ask));
        }
        if let Some(until) = self.until {
            columns.insert("until".to_owned(), json!(until));
        }
        columns.into()
    }

    /// The body of the event that says so.
    pub(super) fn event(&self, attempt: i32, ask_no: i64) -> Value {
        let mut body = json!({"attempt": attempt, "on": self.on});
        if self.on == WaitOn::Children {
            body["mode"] = json!(self.mode);
            body["runs"] = json!(self.runs);
        }
        if let Some(ask) = &self.ask {
            body["ask"] = json!(ask);
            body["askNo"] = json!(ask_no);
        }
        if let Some(until) = self.until {
            body["until"] = json!(until);
        }
        body
    }
}

/// Waiting runs to wake, with the bodies of the events that say why.
#[derive(Default)]
pub(super) struct Wakes {
    tenants: Vec<String>,
    runs: Vec<Uuid>,
    bodies: Vec<Value>,
}

impl Wakes {
    pub(super) fn push(&mut self, tenant: String, run: Uuid, body: Value) {
        self.tenants.push(tenant);
        self.runs.push(run);
        self.bodies.push(body);
    }
}

/// Queues waiting runs at the head of their tenant; answers those that still waited. Each wait is over once.
pub(super) async fn wake(
    tx: &mut PgConnection,
    wakes: &Wakes,
    queue_max_age_ms: i64,
) -> Result<HashSet<RunId>, Error> {
    if wakes.runs.is_empty() {
        return Ok(HashSet::new());
    }
    let woken = sqlx::query_scalar!(
        r#"WITH given AS (
            SELECT * FROM unnest($1::text[], $2::uuid[], $3::jsonb[]) AS g(tenant, run_id, body)
        ), woken AS (
            DELETE FROM run_parked p USING given g
            WHERE p.tenant = g.tenant AND p.run_id = g.run_id AND p.why = 'waiting'
            RETURNING p.*, g.body
        ), moved AS MATERIALIZED (
            SELECT w.*, a.deadline, clock.now,
                   (SELECT coalesce(max(e.seq), 0) + 1 FROM run_events e
                    WHERE e.tenant = w.tenant AND e.run_id = w.run_id) AS seq
            FROM woken w JOIN agent_runs a ON a.tenant = w.tenant AND a.run_id = w.run_id
            CROSS JOIN (SELECT clock_timestamp() AS now) clock
        ), queued AS (
            INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, attempts, fence_number,
                leases_lost, spent_tokens, spent_ms, next_seq, queued_at, expires_at)
            SELECT scope, bucket, tenant, class, 0, urgency, run_id, attempts, fence_number, leases_lost, spent_tokens,
                spent_ms, seq + 1, now, least(deadline, now + $4::bigint * interval '1 millisecond')
            FROM moved
        ), told AS (
            INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
            SELECT tenant, run_id, seq, now, 'run.woken', body FROM moved
        )
        SELECT run_id AS "run_id!" FROM moved"#,
        &wakes.tenants,
        &wakes.runs,
        &wakes.bodies,
        queue_max_age_ms,
    )
    .fetch_all(tx)
    .await?;
    Ok(woken.into_iter().map(RunId::from_uuid).collect())
}

impl Fleet {
    /// Wakes runs whose time has come; answers how many.
    pub async fn wake_waits_due(
        &self,
        scope: &str,
        queue_max_age_ms: i64,
        limit: i64,
    ) -> Result<u64, Error> {
        let scope = scope.to_owned();
        self.store()
            .transaction("wake_waits_due", move |tx| {
                let scope = scope.clone();
                Box::pin(async move {
                    let due = sqlx::query!(
                        r#"SELECT tenant, run_id FROM run_parked
                           WHERE due <= clock_timestamp() AND why = 'waiting' AND scope = $1
                           ORDER BY due LIMIT $2 FOR UPDATE SKIP LOCKED"#,
                        scope,
                        limit,
                    )
                    .fetch_all(&mut *tx)
                    .await?;
                    let mut wakes = Wakes::default();
                    for row in due {
                        wakes.push(row.tenant, row.run_id, json!({"by": WaitOn::Time}));
                    }
                    Ok(wake(tx, &wakes, queue_max_age_ms).await?.len() as u64)
                })
            })
            .await
    }
}

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answered {
    /// The run is queued with it.
    Taken,
    /// The same answer to the same question was given before.
    Repeated,
    /// The question was answered otherwise before.
    Differs,
    /// The run waits for no person, or for the answer to another question.
    NotAsked,
    /// It does not fit the question.
    Unfit {
        /// The field at fault.
        field: Cow<'static, str>,
        /// What to send.
        detail: String,
    },
}

impl Outcome for Answered {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Taken | Self::Repeated)
    }
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answerer {
    /// The key.
    pub key: KeyId,
    /// The user it stands for.
    pub user: Option<String>,
}

impl TenantStore {
    /// Answers what a run waits to be told, and queues it (R3.15). Of two answers one is taken.
    pub async fn answer_input(
        &self,
        run: RunId,
        answer: AnswerInput,
        by: Answerer,
        queue_max_age_ms: i64,
        intent: Option<&Intent>,
    ) -> Result<Answered, Error> {
        let tenant = self.key().to_owned();
        let answered = self
            .store()
            .once("answer_input", intent, move |tx| {
                let (tenant, answer, by) = (tenant.clone(), answer.clone(), by.clone());
                Box::pin(async move {
                    let answered =
                        answer_input(tx, &tenant, run, &answer, &by, queue_max_age_ms).await?;
                    Ok(Written::unchanged(answered))
                })
            })
            .await?;
        Ok(answered.value)
    }
}

async fn answer_input(
    tx: &mut PgConnection,
    tenant: &str,
    run: RunId,
    answer: &AnswerInput,
    by: &Answerer,
    queue_max_age_ms: i64,
) -> Result<Answered, Error> {
    let asked = sqlx::query!(
        r#"SELECT fence_number AS ask_no, wait_ask AS "ask!" FROM run_parked
           WHERE tenant = $1 AND run_id = $2 AND waits_on = 'input' FOR UPDATE"#,
        tenant,
        run.as_uuid(),
    )
    .fetch_optional(&mut *tx)
    .await?
    .filter(|asked| answer.ask_no.is_none_or(|no| no == asked.ask_no));
    let said = AnswerInput {
        ask_no: None,
        ..answer.clone()
    };
    let said = serde_json::to_value(said).map_err(|_| Error::Corrupt { what: "an answer" })?;
    let Some(asked) = asked else {
        return earlier(tx, tenant, run, answer.ask_no, &said).await;
    };
    let ask: Ask = strict::from_value(asked.ask.clone()).map_err(|_| Error::Corrupt {
        what: "run_parked.wait_ask",
    })?;
    if let Err((field, detail)) = check_answer(&ask, answer) {
        return Ok(Answered::Unfit {
            field: field.into(),
            detail,
        });
    }
    sqlx::query!(
        r#"INSERT INTO run_inputs (tenant, run_id, ask_no, ask, answer, answered_by, user_name)
           VALUES ($1, $2, $3, $4, $5, $6, $7)"#,
        tenant,
        run.as_uuid(),
        asked.ask_no,
        asked.ask,
        said,
        by.key.as_uuid(),
        by.user,
    )
    .execute(&mut *tx)
    .await?;
    let mut wakes = Wakes::default();
    wakes.push(
        tenant.to_owned(),
        run.as_uuid(),
        json!({"by": WaitOn::Input, "askNo": asked.ask_no}),
    );
    wake(tx, &wakes, queue_max_age_ms).await?;
    Ok(Answered::Taken)
}

async fn earlier(
    tx: &mut PgConnection,
    tenant: &str,
    run: RunId,
    ask_no: Option<i64>,
    said: &Value,
) -> Result<Answered, Error> {
    let answer = sqlx::query_scalar!(
        "SELECT answer FROM run_inputs WHERE tenant = $1 AND run_id = $2 AND ask_no = $3",
        tenant,
        run.as_uuid(),
        ask_no,
    )
    .fetch_optional(tx)
    .await?;
    Ok(match answer {
        None => Answered::NotAsked,
        Some(answer) if answer == *said => Answered::Repeated,
        Some(_) => Answered::Differs,
    })
}

//! Writes that a caller may send again under a key (R3.1).
//!
//! What a write answers is kept beside its key in the transaction of the write itself: a repeat is answered the same, and
//! nobody is told "done" about what was rolled back (O-33). A refusal keeps nothing, so that the same request may be sent
//! again once its cause is gone. Nothing secret is kept.
//!
//! Submissions of runs do not come here: their key stands in the row of the run, which costs the hot path nothing.
//!
//! Lock order: the key comes before everything else.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use sqlx::PgConnection;
use tidegate_model::{RunId, TenantId, strict};

use crate::{Error, Fleet, Store, transaction::TransactionFuture, written::Written};

/// What a caller means to do once, however often it is sent.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Whose key it is; none for a key of the platform.
    pub owner: Option<TenantId>,
    /// The caller's key.
    pub key: String,
    /// Method and path of the route.
    pub route: String,
    /// Keyed digest of all that was asked.
    pub digest: [u8; 32],
    replayed: Arc<AtomicBool>,
}

impl Intent {
    /// An intent that is not yet known to be a repeat.
    pub fn new(owner: Option<TenantId>, key: String, route: String, digest: [u8; 32]) -> Self {
        Self {
            owner,
            key,
            route,
            digest,
            replayed: Arc::default(),
        }
    }

    /// Whether what was answered is an earlier answer. All clones know it.
    pub fn is_replayed(&self) -> bool {
        self.replayed.load(Ordering::Acquire)
    }

    fn note_replayed(&self) {
        self.replayed.store(true, Ordering::Release);
    }

    fn owner_text(&self) -> &str {
        self.owner.as_ref().map_or("", TenantId::as_str)
    }
}

impl PartialEq for Intent {
    fn eq(&self, other: &Self) -> bool {
        (&self.owner, &self.key, &self.route, &self.digest)
            == (&other.owner, &other.key, &other.route, &other.digest)
    }
}

impl Eq for Intent {}

/// What a write answers, as it can be kept and answered again.
pub trait Outcome: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Whether nothing was done; a refusal is not kept.
    fn is_refusal(&self) -> bool {
        false
    }

    /// Whose content it holds, where the key is not the tenant's own.
    fn tenant(&self) -> Option<&TenantId> {
        None
    }
}

impl<T: Outcome> Outcome for Option<T> {
    fn is_refusal(&self) -> bool {
        self.as_ref().is_none_or(Outcome::is_refusal)
    }

    fn tenant(&self) -> Option<&TenantId> {
        self.as_ref().and_then(Outcome::tenant)
    }
}

impl Outcome for Vec<RunId> {
    fn is_refusal(&self) -> bool {
        self.is_empty()
    }
}

/// What is known of a key.
struct Kept {
    answer: Value,
    finished: bool,
}

impl Store {
    /// Runs a named transaction once per intent: the first time `body` runs and what it answers is kept with it, later
    /// the same is answered without it. Others with the same key wait for the one that is under way.
    pub(crate) async fn once<T, F>(
        &self,
        name: &'static str,
        intent: Option<&Intent>,
        body: F,
    ) -> Result<Written<T>, Error>
    where
        T: Outcome,
        F: for<'t> Fn(&'t mut PgConnection) -> TransactionFuture<'t, Written<T>>
            + Send
            + Sync
            + 'static,
    {
        let Some(intent) = intent.cloned() else {
            return self.transaction(name, body).await;
        };
        let body = Arc::new(body);
        self.transaction(name, move |tx| {
            let (intent, body) = (intent.clone(), Arc::clone(&body));
            Box::pin(async move {
                if let Some(kept) = locked(tx, &intent).await? {
                    intent.note_replayed();
                    return Ok(Written::unchanged(restored(kept.answer)?));
                }
                let written = (*body)(&mut *tx).await?;
                if !written.value.is_refusal() {
                    keep(tx, &intent, &written.value, written.value.tenant(), true).await?;
                }
                fail::fail_point!("once_before_commit", |_| Err(Error::injected()));
                Ok(written)
            })
        })
        .await
    }
}

/// Takes the key, and answers what is known of it.
async fn locked(tx: &mut PgConnection, intent: &Intent) -> Result<Option<Kept>, Error> {
    // A statement of its own: the next one's snapshot must be newer than the lock. An owner has no slash.
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended('tidegate idempotency ' || $1, 0))",
        format!("{}/{}", intent.owner_text(), intent.key),
    )
    .execute(&mut *tx)
    .await?;
    look(tx, intent).await
}

async fn look(connection: &mut PgConnection, intent: &Intent) -> Result<Option<Kept>, Error> {
    let known = sqlx::query!(
        r#"SELECT route AS "route!", request_digest AS "request_digest!", answer AS "answer!", finished AS "finished!"
           FROM idempotency_records WHERE owner = $1 AND idempotency_key = $2
           UNION ALL
           SELECT 'POST /v1/runs', request_digest, 'null', true
           FROM agent_runs WHERE tenant = $1 AND idempotency_key = $2"#,
        intent.owner_text(),
        intent.key,
    )
    .fetch_optional(connection)
    .await?;
    match known {
        None => Ok(None),
        Some(row) if row.route == intent.route && row.request_digest == intent.digest => {
            Ok(Some(Kept {
                answer: row.answer,
                finished: row.finished,
            }))
        }
        Some(_) => Err(Error::IdempotencyConflict),
    }
}

async fn keep<T: Serialize>(
    tx: &mut PgConnection,
    intent: &Intent,
    answer: &T,
    tenant: Option<&TenantId>,
    finished: bool,
) -> Result<(), Error> {
    let answer = serde_json::to_value(answer).map_err(|_| unreadable())?;
    sqlx::query!(
        "INSERT INTO idempotency_records (owner, idempotency_key, tenant, route, request_digest, answer, finished)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (owner, idempotency_key) DO UPDATE SET answer = $6, finished = $7",
        intent.owner_text(),
        intent.key,
        intent.owner.as_ref().or(tenant).map(TenantId::as_str),
        intent.route,
        intent.digest.as_slice(),
        answer,
        finished,
    )
    .execute(tx)
    .await?;
    Ok(())
}

fn restored<T: DeserializeOwned>(answer: Value) -> Result<T, Error> {
    strict::from_value(answer).map_err(|_| unreadable())
}

const fn unreadable() -> Error {
    Error::Corrupt {
        what: "idempotency_records.answer",
    }
}

/// How far a write in several transactions has come. Each step is written with its effect, so that a repeat goes on where
/// the last one was cut off, and many at once do each step once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Progress {
    /// Runs that were changed.
    pub changed: u64,
    /// Running ones that were told.
    pub requested: u64,
    /// Where the next step begins.
    pub cursor: Option<String>,
    /// Whether there is none.
    pub finished: bool,
}

/// One step of such a write.
#[derive(Debug, Clone)]
pub struct Step {
    /// The intent, where there is one to keep the progress by.
    pub intent: Option<Intent>,
    /// The progress that the step builds on.
    pub before: Progress,
    /// Where the step after it begins; none for the last.
    pub next: Option<String>,
}

impl Step {
    /// Takes the key. The progress as it is now where another has done this step; none where it is to be done here.
    pub(crate) async fn overtaken(&self, tx: &mut PgConnection) -> Result<Option<Progress>, Error> {
        let Some(intent) = &self.intent else {
            return Ok(None);
        };
        let now = match locked(tx, intent).await? {
            Some(kept) => restored(kept.answer)?,
            None => Progress::default(),
        };
        Ok((now != self.before).then_some(now))
    }

    /// Writes the step's effect into the progress.
    pub(crate) async fn done(
        &self,
        tx: &mut PgConnection,
        changed: u64,
        requested: u64,
    ) -> Result<Progress, Error> {
        let progress = Progress {
            changed: self.before.changed + changed,
            requested: self.before.requested + requested,
            cursor: self.next.clone(),
            finished: self.next.is_none(),
        };
        if let Some(intent) = &self.intent {
            keep(tx, intent, &progress, None, progress.finished).await?;
        }
        Ok(progress)
    }
}

impl crate::TenantStore {
    /// How far a write in steps has come; its beginning where it is new.
    pub async fn progress(&self, intent: Option<&Intent>) -> Result<Progress, Error> {
        let Some(intent) = intent else {
            return Ok(Progress::default());
        };
        let mut connection = self.pool().acquire().await?;
        match look(&mut connection, intent).await? {
            Some(kept) => {
                if kept.finished {
                    intent.note_replayed();
                }
                restored(kept.answer)
            }
            None => Ok(Progress::default()),
        }
    }
}

impl Fleet {
    /// Forgets up to `limit` keys that are older than `keep_ms`; answers how many.
    pub async fn forget_repeats(&self, keep_ms: i64, limit: i64) -> Result<u64, Error> {
        let done = sqlx::query!(
            "DELETE FROM idempotency_records WHERE (owner, idempotency_key) IN (
                 SELECT owner, idempotency_key FROM idempotency_records
                 WHERE created_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
                 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            keep_ms,
            limit,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }
}

//! An administrative write: the change, its audit row and its config revision, in one transaction (R2.5, R17.1).
//!
//! The revision's number is taken under a lock that is held to the commit, so that a reader who has seen `n` has seen
//! all below `n`. A sequence would not do: a number taken first may be committed last, and a reader that has moved past
//! it would miss the change for ever.
//!
//! Lock order: the row that changes, then [`record`].

use serde_json::Value;
use sqlx::PgConnection;
use tidegate_model::{ConfigKind, TenantId};

use crate::{
    Error, Store,
    repeats::{Intent, Outcome},
    transaction::TransactionFuture,
};

/// Who writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// A key id, or `cli:` and the operating system's user, or `system`.
    pub actor: String,
    /// The request, where there is one.
    pub request_id: Option<String>,
    /// What makes a repeat of the request harmless, where it carries a key.
    pub intent: Option<Intent>,
}

impl Author {
    /// The server itself.
    pub fn system() -> Self {
        Self {
            actor: "system".to_owned(),
            request_id: None,
            intent: None,
        }
    }

    /// Whether what was answered is an earlier answer of the same write.
    pub fn is_repeat(&self) -> bool {
        self.intent.as_ref().is_some_and(Intent::is_replayed)
    }

    /// Somebody with access to the database who works from a shell.
    pub fn shell(user: &str) -> Self {
        Self {
            actor: format!("cli:{user}"),
            request_id: None,
            intent: None,
        }
    }
}

/// A change that is committed, with its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written<T> {
    /// What the write answers.
    pub value: T,
    /// Its number in the log; `None` where nothing had to change.
    pub revision: Option<i64>,
}

impl<T> Written<T> {
    /// A write that found everything as it should be.
    pub const fn unchanged(value: T) -> Self {
        Self {
            value,
            revision: None,
        }
    }
}

impl Store {
    /// Runs an administrative write in a named transaction, once where its author's request carries a key.
    pub(crate) async fn write<T, F>(
        &self,
        name: &'static str,
        author: &Author,
        body: F,
    ) -> Result<Written<T>, Error>
    where
        T: Outcome,
        F: for<'t> Fn(&'t mut PgConnection, Author) -> TransactionFuture<'t, Written<T>>
            + Send
            + Sync
            + 'static,
    {
        let author = author.clone();
        let intent = author.intent.clone();
        self.once(name, intent.as_ref(), move |tx| body(tx, author.clone()))
            .await
    }
}

/// What is recorded of a write. Secrets must be redacted before they come here.
#[derive(Debug, Clone)]
pub(crate) struct Record<'a> {
    pub author: &'a Author,
    pub kind: ConfigKind,
    /// For example `tenant.suspend`.
    pub action: &'static str,
    pub subject: &'a str,
    pub tenant: Option<&'a TenantId>,
    pub before: Value,
    pub after: Value,
}

/// What stands in the audit log of a write that changes no configuration. No contents of a tenant's work.
#[derive(Debug, Clone)]
pub(crate) struct Audited<'a> {
    pub author: &'a Author,
    /// For example `run.resolve`.
    pub action: &'static str,
    pub subject: &'a str,
    pub tenant: Option<&'a TenantId>,
    pub before: Value,
    pub after: Value,
}

/// Appends the audit row alone.
pub(crate) async fn append_audit(
    tx: &mut PgConnection,
    audited: &Audited<'_>,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO audit_log (actor, tenant, action, subject, before, after, request_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        audited.author.actor,
        audited.tenant.map(TenantId::as_str),
        audited.action,
        audited.subject,
        audited.before,
        audited.after,
        audited.author.request_id,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Appends the audit row and the revision; the last statement of an administrative transaction.
pub(crate) async fn record(tx: &mut PgConnection, record: Record<'_>) -> Result<i64, Error> {
    let tenant = record.tenant.map(TenantId::as_str);
    append_audit(
        tx,
        &Audited {
            author: record.author,
            action: record.action,
            subject: record.subject,
            tenant: record.tenant,
            before: record.before,
            after: record.after,
        },
    )
    .await?;
    // A statement of its own: the next one's snapshot must be newer than the lock.
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended('tidegate config_revisions', 0))")
        .execute(&mut *tx)
        .await?;
    let revision = sqlx::query_scalar!(
        r#"INSERT INTO config_revisions (revision, kind, subject, tenant)
           SELECT coalesce(max(revision), 0) + 1, $1, $2, $3 FROM config_revisions
           RETURNING revision"#,
        record.kind.as_str(),
        record.subject,
        tenant,
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(revision)
}

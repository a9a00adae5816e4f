//! Model providers.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{ConfigKind, api::ProviderKind, ids::CatalogName};

use super::{Delete, Entry, Sealed, SecretChange, log};
use crate::{
    Error, Store,
    error::stored,
    repeats::Outcome,
    written::{Author, Written},
};

/// A provider as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredProvider {
    /// Its name.
    pub name: CatalogName,
    /// How it is spoken to.
    pub kind: ProviderKind,
    /// Its address.
    pub base_url: String,
    /// Its key.
    #[serde(skip)]
    pub secret: Option<Sealed>,
    /// Calls at once per instance.
    pub max_in_flight: Option<i32>,
    /// Calls per minute per instance.
    pub rpm: Option<i32>,
    /// Waiting calls per class.
    pub max_queue: Option<i32>,
    /// The longest wait for a slot.
    pub queue_timeout_ms: Option<i64>,
}

impl StoredProvider {
    fn audited(&self, secret: &'static str) -> Value {
        json!({
            "kind": self.kind, "baseUrl": self.base_url, "apiKey": secret, "maxInFlight": self.max_in_flight,
            "rpm": self.rpm, "maxQueue": self.max_queue, "queueTimeoutMs": self.queue_timeout_ms,
        })
    }
}

impl Outcome for StoredProvider {}

struct Row {
    name: String,
    kind: String,
    base_url: String,
    sealed: Option<Vec<u8>>,
    sealed_key: Option<String>,
    max_in_flight: Option<i32>,
    rpm: Option<i32>,
    max_queue: Option<i32>,
    queue_timeout_ms: Option<i64>,
}

impl Row {
    fn provider(self) -> Result<StoredProvider, Error> {
        Ok(StoredProvider {
            name: stored(&self.name, "providers.name")?,
            kind: stored(&self.kind, "providers.kind")?,
            base_url: self.base_url,
            secret: self
                .sealed
                .zip(self.sealed_key)
                .map(|(envelope, key_id)| Sealed { envelope, key_id }),
            max_in_flight: self.max_in_flight,
            rpm: self.rpm,
            max_queue: self.max_queue,
            queue_timeout_ms: self.queue_timeout_ms,
        })
    }
}

const fn has(secret: bool) -> &'static str {
    if secret { "sealed" } else { "absent" }
}

impl Store {
    /// Every provider by name.
    pub async fn list_providers(&self) -> Result<Vec<StoredProvider>, Error> {
        let rows = sqlx::query_as!(
            Row,
            "SELECT name, kind, base_url, sealed, sealed_key, max_in_flight, rpm, max_queue, queue_timeout_ms
             FROM providers ORDER BY name"
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Row::provider).collect()
    }

    /// Makes or replaces a provider; `provider.secret` is ignored, `secret` says what becomes of it.
    pub async fn put_provider(
        &self,
        provider: StoredProvider,
        secret: SecretChange,
        author: &Author,
    ) -> Result<Written<StoredProvider>, Error> {
        let mut written = self
            .write("provider.put", author, move |tx, author| {
                let (provider, secret) = (provider.clone(), secret.clone());
                Box::pin(async move { put(tx, &provider, &secret, &author).await })
            })
            .await?;
        if author.is_repeat() {
            // Secrets are not kept with answers: the one that is stored now.
            let now = self.list_providers().await?;
            let now = now.into_iter().find(|now| now.name == written.value.name);
            written.value.secret = now.and_then(|now| now.secret);
        }
        Ok(written)
    }

    /// Deletes a provider that no model uses.
    pub async fn delete_provider(
        &self,
        name: &CatalogName,
        author: &Author,
    ) -> Result<Written<Delete>, Error> {
        let name = name.clone();
        self.write("provider.delete", author, move |tx, author| {
            let name = name.clone();
            Box::pin(async move { delete(tx, &name, &author).await })
        })
        .await
    }
}

async fn lock(tx: &mut PgConnection, name: &CatalogName) -> Result<Option<StoredProvider>, Error> {
    sqlx::query_as!(
        Row,
        "SELECT name, kind, base_url, sealed, sealed_key, max_in_flight, rpm, max_queue, queue_timeout_ms
         FROM providers WHERE name = $1 FOR UPDATE",
        name.as_str(),
    )
    .fetch_optional(tx)
    .await?
    .map(Row::provider)
    .transpose()
}

async fn put(
    tx: &mut PgConnection,
    provider: &StoredProvider,
    secret: &SecretChange,
    author: &Author,
) -> Result<Written<StoredProvider>, Error> {
    let before = lock(tx, &provider.name).await?;
    let (keep, sealed, sealed_key) = secret.parts();
    let row = sqlx::query_as!(
        Row,
        "INSERT INTO providers AS p (name, kind, base_url, sealed, sealed_key, max_in_flight, rpm, max_queue,
                                     queue_timeout_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (name) DO UPDATE SET
             kind = $2, base_url = $3, max_in_flight = $6, rpm = $7, max_queue = $8, queue_timeout_ms = $9,
             sealed = CASE WHEN $10 THEN p.sealed ELSE $4 END,
             sealed_key = CASE WHEN $10 THEN p.sealed_key ELSE $5 END, updated_at = clock_timestamp()
         RETURNING name, kind, base_url, sealed, sealed_key, max_in_flight, rpm, max_queue, queue_timeout_ms",
        provider.name.as_str(),
        provider.kind.as_str(),
        provider.base_url,
        sealed,
        sealed_key,
        provider.max_in_flight,
        provider.rpm,
        provider.max_queue,
        provider.queue_timeout_ms,
        keep,
    )
    .fetch_one(&mut *tx)
    .await?;
    let after = row.provider()?;
    let revision = log(
        tx,
        author,
        Entry {
            kind: ConfigKind::Provider,
            action: "provider.put",
            name: &provider.name,
            before: before
                .as_ref()
                .map_or(Value::Null, |p| p.audited(has(p.secret.is_some()))),
            after: after.audited(secret.audited()),
        },
    )
    .await?;
    Ok(Written {
        value: after,
        revision: Some(revision),
    })
}

async fn delete(
    tx: &mut PgConnection,
    name: &CatalogName,
    author: &Author,
) -> Result<Written<Delete>, Error> {
    let Some(before) = lock(tx, name).await? else {
        return Ok(Written::unchanged(Delete::NotFound));
    };
    let models = sqlx::query_scalar!(
        "SELECT name FROM models WHERE provider = $1 ORDER BY name",
        name.as_str()
    )
    .fetch_all(&mut *tx)
    .await?;
    if !models.is_empty() {
        return Ok(Written::unchanged(Delete::Used(models)));
    }
    sqlx::query!("DELETE FROM providers WHERE name = $1", name.as_str())
        .execute(&mut *tx)
        .await?;
    let revision = log(
        tx,
        author,
        Entry {
            kind: ConfigKind::Provider,
            action: "provider.delete",
            name,
            before: before.audited(has(before.secret.is_some())),
            after: Value::Null,
        },
    )
    .await?;
    Ok(Written {
        value: Delete::Deleted,
        revision: Some(revision),
    })
}

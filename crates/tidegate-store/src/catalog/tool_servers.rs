//! Tool servers. How they are reached is plain, the values of their environment or headers are one sealed JSON object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{
    ConfigKind, TenantId,
    api::{SideEffectLevel, ToolMount, ToolTransportView},
    ids::CatalogName,
    strict,
};

use super::{Delete, Entry, Sealed, SecretChange, log};
use crate::{
    Error, Store,
    error::stored,
    repeats::Outcome,
    written::{Author, Written},
};

/// A tool server as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredToolServer {
    /// Its name.
    pub name: CatalogName,
    /// How it is reached.
    pub transport: ToolTransportView,
    /// The values of its environment or headers.
    #[serde(skip)]
    pub secret: Option<Sealed>,
    /// The operator's marks.
    pub tools: BTreeMap<String, SideEffectLevel>,
    /// Which tools are mounted, and as what.
    pub mount: ToolMount,
    /// Only these tenants.
    pub tenants: Option<Vec<TenantId>>,
    /// The longest a call may take.
    pub call_timeout_ms: i64,
    /// The longest a call may go without a sign of progress.
    pub idle_timeout_ms: i64,
}

impl StoredToolServer {
    fn audited(&self) -> Value {
        json!({
            "transport": self.transport, "tools": self.tools, "mount": self.mount, "tenants": self.tenants,
            "callTimeoutMs": self.call_timeout_ms, "idleTimeoutMs": self.idle_timeout_ms,
        })
    }
}

impl Outcome for StoredToolServer {}

struct Row {
    name: String,
    transport: Value,
    sealed: Option<Vec<u8>>,
    sealed_key: Option<String>,
    tools: Value,
    mount: Value,
    tenants: Option<Vec<String>>,
    call_timeout_ms: i64,
    idle_timeout_ms: i64,
}

impl Row {
    fn server(self) -> Result<StoredToolServer, Error> {
        Ok(StoredToolServer {
            name: stored(&self.name, "tool_servers.name")?,
            transport: json_column(self.transport, "tool_servers.transport")?,
            secret: self
                .sealed
                .zip(self.sealed_key)
                .map(|(envelope, key_id)| Sealed { envelope, key_id }),
            tools: json_column(self.tools, "tool_servers.tools")?,
            mount: json_column(self.mount, "tool_servers.mount")?,
            tenants: self
                .tenants
                .map(|tenants| {
                    tenants
                        .iter()
                        .map(|tenant| stored(tenant, "tool_servers.tenants"))
                        .collect()
                })
                .transpose()?,
            call_timeout_ms: self.call_timeout_ms,
            idle_timeout_ms: self.idle_timeout_ms,
        })
    }
}

fn json_column<T: DeserializeOwned>(value: Value, what: &'static str) -> Result<T, Error> {
    strict::from_value(value).map_err(|_| Error::Corrupt { what })
}

impl Store {
    /// Every tool server by name.
    pub async fn list_tool_servers(&self) -> Result<Vec<StoredToolServer>, Error> {
        let rows = sqlx::query_as!(
            Row,
            "SELECT name, transport, sealed, sealed_key, tools, mount, tenants, call_timeout_ms, idle_timeout_ms
             FROM tool_servers ORDER BY name"
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Row::server).collect()
    }

    /// Makes or replaces a tool server, its environment included.
    pub async fn put_tool_server(
        &self,
        server: StoredToolServer,
        author: &Author,
    ) -> Result<Written<StoredToolServer>, Error> {
        let mut written = self
            .write("tool_server.put", author, move |tx, author| {
                let server = server.clone();
                Box::pin(async move { put(tx, &server, &author).await })
            })
            .await?;
        if author.is_repeat() {
            // Secrets are not kept with answers: the one that is stored now.
            let now = self.list_tool_servers().await?;
            let now = now.into_iter().find(|now| now.name == written.value.name);
            written.value.secret = now.and_then(|now| now.secret);
        }
        Ok(written)
    }

    /// Deletes a tool server.
    pub async fn delete_tool_server(
        &self,
        name: &CatalogName,
        author: &Author,
    ) -> Result<Written<Delete>, Error> {
        let name = name.clone();
        self.write("tool_server.delete", author, move |tx, author| {
            let name = name.clone();
            Box::pin(async move { delete(tx, &name, &author).await })
        })
        .await
    }
}

async fn lock(
    tx: &mut PgConnection,
    name: &CatalogName,
) -> Result<Option<StoredToolServer>, Error> {
    sqlx::query_as!(
        Row,
        "SELECT name, transport, sealed, sealed_key, tools, mount, tenants, call_timeout_ms, idle_timeout_ms
         FROM tool_servers WHERE name = $1 FOR UPDATE",
        name.as_str(),
    )
    .fetch_optional(tx)
    .await?
    .map(Row::server)
    .transpose()
}

async fn put(
    tx: &mut PgConnection,
    server: &StoredToolServer,
    author: &Author,
) -> Result<Written<StoredToolServer>, Error> {
    let before = lock(tx, &server.name).await?;
    let secret = server
        .secret
        .clone()
        .map_or(SecretChange::Remove, SecretChange::Set);
    let (_, sealed, sealed_key) = secret.parts();
    let tenants: Option<Vec<String>> = server
        .tenants
        .as_ref()
        .map(|tenants| tenants.iter().map(ToString::to_string).collect());
    sqlx::query!(
        "INSERT INTO tool_servers (name, transport, sealed, sealed_key, tools, mount, tenants, call_timeout_ms, idle_timeout_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (name) DO UPDATE SET transport = $2, sealed = $3, sealed_key = $4, tools = $5, mount = $6,
             tenants = $7, call_timeout_ms = $8, idle_timeout_ms = $9, updated_at = clock_timestamp()",
        server.name.as_str(),
        json!(server.transport),
        sealed,
        sealed_key,
        json!(server.tools),
        json!(server.mount),
        tenants.as_deref(),
        server.call_timeout_ms,
        server.idle_timeout_ms,
    )
    .execute(&mut *tx)
    .await?;
    let revision = log(
        tx,
        author,
        Entry {
            kind: ConfigKind::ToolServer,
            action: "tool_server.put",
            name: &server.name,
            before: before
                .as_ref()
                .map_or(Value::Null, StoredToolServer::audited),
            after: server.audited(),
        },
    )
    .await?;
    Ok(Written {
        value: server.clone(),
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
    sqlx::query!("DELETE FROM tool_servers WHERE name = $1", name.as_str())
        .execute(&mut *tx)
        .await?;
    let revision = log(
        tx,
        author,
        Entry {
            kind: ConfigKind::ToolServer,
            action: "tool_server.delete",
            name,
            before: before.audited(),
            after: Value::Null,
        },
    )
    .await?;
    Ok(Written {
        value: Delete::Deleted,
        revision: Some(revision),
    })
}

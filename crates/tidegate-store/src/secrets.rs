//! Sealed rows, whatever their table: for rotation (R1.8), for counting what is left per key, and for `doctor`.
//!
//! A table with secrets has the columns `name`, `sealed` and `sealed_key`; a test walks the schema and demands that
//! each such table stands in [`SealedTable`].

use crate::{Error, Store, catalog::Sealed, written::Author};

/// A table with a sealed column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedTable {
    /// API keys of model providers.
    Providers,
    /// Environments of tool servers.
    ToolServers,
    /// Private halves of keys that sign grants.
    GrantKeys,
}

impl SealedTable {
    /// Every table with a sealed column; the row of `cluster` is apart.
    pub const ALL: [Self; 3] = [Self::GrantKeys, Self::Providers, Self::ToolServers];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Providers => "providers",
            Self::ToolServers => "tool_servers",
            Self::GrantKeys => "grant_keys",
        }
    }
}

/// A sealed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedRow {
    /// Its table.
    pub table: SealedTable,
    /// Its key.
    pub name: String,
    /// What is sealed.
    pub sealed: Sealed,
}

/// How many rows a key has closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCount {
    /// The key.
    pub key_id: String,
    /// Its rows.
    pub rows: i64,
}

impl Store {
    /// Rows of a table that another key than `key_id` has closed, after `after`, by name.
    pub async fn sealed_otherwise(
        &self,
        table: SealedTable,
        key_id: &str,
        after: &str,
        limit: i64,
    ) -> Result<Vec<SealedRow>, Error> {
        struct Row {
            name: String,
            envelope: Vec<u8>,
            key_id: String,
        }
        let rows =
            match table {
                SealedTable::Providers => sqlx::query_as!(
                    Row,
                    r#"SELECT name, sealed AS "envelope!", sealed_key AS "key_id!" FROM providers
                       WHERE sealed_key <> $1 AND name > $2 ORDER BY name LIMIT $3"#,
                    key_id,
                    after,
                    limit,
                )
                .fetch_all(self.pool())
                .await?,
                SealedTable::ToolServers => sqlx::query_as!(
                    Row,
                    r#"SELECT name, sealed AS "envelope!", sealed_key AS "key_id!" FROM tool_servers
                       WHERE sealed_key <> $1 AND name > $2 ORDER BY name LIMIT $3"#,
                    key_id,
                    after,
                    limit,
                )
                .fetch_all(self.pool())
                .await?,
                SealedTable::GrantKeys => sqlx::query_as!(
                    Row,
                    r#"SELECT name, sealed AS "envelope!", sealed_key AS "key_id!" FROM grant_keys
                       WHERE sealed_key <> $1 AND name > $2 ORDER BY name LIMIT $3"#,
                    key_id,
                    after,
                    limit,
                )
                .fetch_all(self.pool())
                .await?,
            };
        Ok(rows
            .into_iter()
            .map(|row| SealedRow {
                table,
                name: row.name,
                sealed: Sealed {
                    envelope: row.envelope,
                    key_id: row.key_id,
                },
            })
            .collect())
    }

    /// Replaces an envelope by another one of the same content; `false` where somebody wrote the row in between.
    pub async fn reseal(&self, row: &SealedRow, with: &Sealed) -> Result<bool, Error> {
        let done = match row.table {
            SealedTable::Providers => {
                sqlx::query!(
                    "UPDATE providers SET sealed = $3, sealed_key = $4 WHERE name = $1 AND sealed = $2",
                    row.name,
                    row.sealed.envelope,
                    with.envelope,
                    with.key_id,
                )
                .execute(self.pool())
                .await?
            }
            SealedTable::ToolServers => {
                sqlx::query!(
                    "UPDATE tool_servers SET sealed = $3, sealed_key = $4 WHERE name = $1 AND sealed = $2",
                    row.name,
                    row.sealed.envelope,
                    with.envelope,
                    with.key_id,
                )
                .execute(self.pool())
                .await?
            }
            SealedTable::GrantKeys => {
                sqlx::query!(
                    "UPDATE grant_keys SET sealed = $3, sealed_key = $4 WHERE name = $1 AND sealed = $2",
                    row.name,
                    row.sealed.envelope,
                    with.envelope,
                    with.key_id,
                )
                .execute(self.pool())
                .await?
            }
        };
        Ok(done.rows_affected() == 1)
    }

    /// How many rows each key has closed.
    pub async fn sealed_counts(&self) -> Result<Vec<KeyCount>, Error> {
        let rows = sqlx::query_as!(
            KeyCount,
            r#"SELECT key_id AS "key_id!", count(*) AS "rows!" FROM (
                   SELECT sealed_key AS key_id FROM providers UNION ALL
                   SELECT sealed_key FROM tool_servers UNION ALL
                   SELECT sealed_key FROM grant_keys UNION ALL
                   SELECT key_check_id FROM cluster UNION ALL
                   SELECT digest_key_id FROM cluster) s
               WHERE key_id IS NOT NULL GROUP BY key_id ORDER BY key_id"#
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows)
    }

    /// Tables with sealed columns, from the schema.
    pub async fn sealed_tables(&self) -> Result<Vec<String>, Error> {
        let tables = sqlx::query_scalar!(
            r#"SELECT c.relname::text AS "table!" FROM pg_class c
               JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'sealed_key' AND NOT a.attisdropped
               WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace ORDER BY 1"#
        )
        .fetch_all(self.pool())
        .await?;
        Ok(tables)
    }

    /// Records that a rotation ran, with what it did.
    pub async fn record_rotation(
        &self,
        key_id: &str,
        resealed: u64,
        author: &Author,
    ) -> Result<i64, Error> {
        let (key_id, author) = (key_id.to_owned(), author.clone());
        self.transaction("secrets.rotate", move |tx| {
            let (key_id, author) = (key_id.clone(), author.clone());
            Box::pin(async move {
                crate::written::record(
                    tx,
                    crate::written::Record {
                        author: &author,
                        kind: tidegate_model::ConfigKind::Cluster,
                        action: "secrets.rotate",
                        subject: &key_id,
                        tenant: None,
                        before: serde_json::Value::Null,
                        after: serde_json::json!({"resealed": resealed}),
                    },
                )
                .await
            })
        })
        .await
    }
}

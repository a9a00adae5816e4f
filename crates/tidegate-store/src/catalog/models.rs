//! Models: a name that agents ask for, and who serves it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{ConfigKind, ids::CatalogName};

use super::{Delete, Entry, log};
use crate::{
    Error, Store,
    error::stored,
    repeats::Outcome,
    written::{Author, Written},
};

/// A model as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredModel {
    /// Its name.
    pub name: CatalogName,
    /// Who serves it.
    pub provider: CatalogName,
    /// The provider's own name.
    pub upstream_model: String,
    /// Whether it is the default.
    pub is_default: bool,
}

impl StoredModel {
    fn audited(&self) -> Value {
        json!({"provider": self.provider, "upstreamModel": self.upstream_model, "default": self.is_default})
    }
}

/// What came of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutModel {
    /// It is stored.
    Stored(StoredModel),
    /// There is no such provider.
    NoProvider,
}

impl Outcome for PutModel {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Stored(_))
    }
}

struct Row {
    name: String,
    provider: String,
    upstream_model: String,
    is_default: bool,
}

impl Row {
    fn model(self) -> Result<StoredModel, Error> {
        Ok(StoredModel {
            name: stored(&self.name, "models.name")?,
            provider: stored(&self.provider, "models.provider")?,
            upstream_model: self.upstream_model,
            is_default: self.is_default,
        })
    }
}

impl Store {
    /// Every model by name.
    pub async fn list_models(&self) -> Result<Vec<StoredModel>, Error> {
        let rows = sqlx::query_as!(
            Row,
            "SELECT name, provider, upstream_model, is_default FROM models ORDER BY name"
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Row::model).collect()
    }

    /// Makes or replaces a model; a new default takes the mark from the old one.
    pub async fn put_model(
        &self,
        model: StoredModel,
        author: &Author,
    ) -> Result<Written<PutModel>, Error> {
        self.write("model.put", author, move |tx, author| {
            let model = model.clone();
            Box::pin(async move { put(tx, &model, &author).await })
        })
        .await
    }

    /// Deletes a model.
    pub async fn delete_model(
        &self,
        name: &CatalogName,
        author: &Author,
    ) -> Result<Written<Delete>, Error> {
        let name = name.clone();
        self.write("model.delete", author, move |tx, author| {
            let name = name.clone();
            Box::pin(async move { delete(tx, &name, &author).await })
        })
        .await
    }
}

async fn lock(tx: &mut PgConnection, name: &CatalogName) -> Result<Option<StoredModel>, Error> {
    sqlx::query_as!(
        Row,
        "SELECT name, provider, upstream_model, is_default FROM models WHERE name = $1 FOR UPDATE",
        name.as_str(),
    )
    .fetch_optional(tx)
    .await?
    .map(Row::model)
    .transpose()
}

async fn put(
    tx: &mut PgConnection,
    model: &StoredModel,
    author: &Author,
) -> Result<Written<PutModel>, Error> {
    // Two new defaults at once: the second waits here and then takes the mark from the first.
    sqlx::query!("LOCK TABLE models IN SHARE ROW EXCLUSIVE MODE")
        .execute(&mut *tx)
        .await?;
    let provider = sqlx::query_scalar!(
        r#"SELECT 1 AS "there!" FROM providers WHERE name = $1 FOR KEY SHARE"#,
        model.provider.as_str()
    )
    .fetch_optional(&mut *tx)
    .await?;
    if provider.is_none() {
        return Ok(Written::unchanged(PutModel::NoProvider));
    }
    let before = lock(tx, &model.name).await?;
    if model.is_default {
        sqlx::query!(
            "UPDATE models SET is_default = false, updated_at = clock_timestamp() WHERE is_default AND name <> $1",
            model.name.as_str(),
        )
        .execute(&mut *tx)
        .await?;
    }
    sqlx::query!(
        "INSERT INTO models (name, provider, upstream_model, is_default) VALUES ($1, $2, $3, $4)
         ON CONFLICT (name) DO UPDATE SET provider = $2, upstream_model = $3, is_default = $4,
             updated_at = clock_timestamp()",
        model.name.as_str(),
        model.provider.as_str(),
        model.upstream_model,
        model.is_default,
    )
    .execute(&mut *tx)
    .await?;
    let revision = log(
        tx,
        author,
        Entry {
            kind: ConfigKind::Model,
            action: "model.put",
            name: &model.name,
            before: before.as_ref().map_or(Value::Null, StoredModel::audited),
            after: model.audited(),
        },
    )
    .await?;
    Ok(Written {
        value: PutModel::Stored(model.clone()),
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
    sqlx::query!("DELETE FROM models WHERE name = $1", name.as_str())
        .execute(&mut *tx)
        .await?;
    let revision = log(
        tx,
        author,
        Entry {
            kind: ConfigKind::Model,
            action: "model.delete",
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

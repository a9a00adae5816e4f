//! Resources: what is counted, and how much there is of it (R7.3, R7.5).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{
    ConfigKind, RunId,
    api::{HolderView, ResourceView},
    contracts::{ResourceKind, ResourceName},
    ids::AdmissionId,
};

use super::lock_book;
use crate::{
    Error, Store,
    error::stored,
    repeats::Outcome,
    written::{Author, Record, Written, record},
};

/// A resource as requirements meet it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownResource {
    /// The key it is stored under.
    pub resource: i32,
    /// Its name.
    pub name: ResourceName,
    /// How much there is of it.
    pub capacity: i64,
    /// Whether it was removed, and goes with its last grant.
    pub going: bool,
}

/// All resources of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UseOfKind {
    /// The kind.
    pub kind: ResourceKind,
    /// How much there is of them.
    pub capacity: i64,
    /// How much is held.
    pub in_use: i64,
}

/// What came of removing a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RemoveResource {
    /// It is gone, or goes with its last grant.
    Removed(ResourceView),
    /// There is none.
    NotFound,
}

impl Outcome for RemoveResource {
    fn is_refusal(&self) -> bool {
        matches!(self, Self::NotFound)
    }
}

impl Outcome for ResourceView {
    fn is_refusal(&self) -> bool {
        false
    }
}

struct Row {
    name: String,
    capacity: i64,
    in_use: i64,
    over_since: Option<DateTime<Utc>>,
    removed_at: Option<DateTime<Utc>>,
}

impl Row {
    fn view(self) -> Result<ResourceView, Error> {
        let resource: ResourceName = stored(&self.name, "resources.name")?;
        Ok(ResourceView {
            kind: resource.kind(),
            resource,
            capacity: self.capacity,
            in_use: self.in_use,
            free: (self.capacity - self.in_use).max(0),
            over_capacity_since: self.over_since,
            removed: self.removed_at.is_some(),
        })
    }
}

impl Store {
    /// Every resource that bounds something: those that are removed do until their last grant is back.
    pub async fn known_resources(&self, scope: &str) -> Result<Vec<KnownResource>, Error> {
        let rows = sqlx::query!(
            r#"SELECT resource, name, capacity, removed_at IS NOT NULL AS "going!" FROM resources
             WHERE scope = $1 AND (removed_at IS NULL OR in_use > 0)"#,
            scope,
        )
        .fetch_all(self.pool())
        .await?;
        let known = rows.into_iter().map(|row| {
            Ok(KnownResource {
                resource: row.resource,
                name: stored(&row.name, "resources.name")?,
                capacity: row.capacity,
                going: row.going,
            })
        });
        known.collect()
    }

    /// How much there is and is held, by kind.
    pub async fn ledger_use(&self, scope: &str) -> Result<Vec<UseOfKind>, Error> {
        let rows = sqlx::query!(
            r#"SELECT split_part(name, '/', 1) AS "kind!",
                      least(sum(capacity), 9223372036854775807)::bigint AS "capacity!",
                      least(sum(in_use), 9223372036854775807)::bigint AS "in_use!"
               FROM resources WHERE scope = $1 GROUP BY 1"#,
            scope,
        )
        .fetch_all(self.pool())
        .await?;
        let kinds = rows.into_iter().map(|row| {
            Ok(UseOfKind {
                kind: stored(&row.kind, "resources.name")?,
                capacity: row.capacity,
                in_use: row.in_use,
            })
        });
        kinds.collect()
    }

    /// The names of some resources, of removed ones too.
    pub async fn resource_names(
        &self,
        resources: &[i32],
    ) -> Result<Vec<(i32, ResourceName)>, Error> {
        let rows = sqlx::query!(
            "SELECT resource, name FROM resources WHERE resource = ANY ($1)",
            resources
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| Ok((row.resource, stored(&row.name, "resources.name")?)))
            .collect()
    }

    /// Resources by name, from after one on; those that are removed and back are not among them.
    pub async fn list_resources(
        &self,
        scope: &str,
        after: Option<&str>,
        most: i64,
    ) -> Result<Vec<ResourceView>, Error> {
        let rows = sqlx::query_as!(
            Row,
            "SELECT name, capacity, in_use, over_since, removed_at FROM resources
             WHERE scope = $1 AND (removed_at IS NULL OR in_use > 0) AND name > coalesce($2, '')
             ORDER BY name LIMIT $3",
            scope,
            after,
            most,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Row::view).collect()
    }

    /// One resource.
    pub async fn resource(
        &self,
        scope: &str,
        name: &ResourceName,
    ) -> Result<Option<ResourceView>, Error> {
        sqlx::query_as!(
            Row,
            "SELECT name, capacity, in_use, over_since, removed_at FROM resources
             WHERE scope = $1 AND name = $2 AND (removed_at IS NULL OR in_use > 0)",
            scope,
            name.as_str(),
        )
        .fetch_optional(self.pool())
        .await?
        .map(Row::view)
        .transpose()
    }

    /// Who holds a resource, those first that have held it longest; at most so many.
    pub async fn holders(
        &self,
        scope: &str,
        name: &ResourceName,
        most: i64,
    ) -> Result<Vec<HolderView>, Error> {
        let rows = sqlx::query!(
            r#"WITH which AS (SELECT resource FROM resources WHERE scope = $1 AND name = $2)
               SELECT h.tenant AS "tenant!", h.admission_id, h.run_id, h.held AS "held!", h.since AS "since!" FROM (
                   SELECT o.tenant, o.admission_id, NULL::uuid AS run_id, u.held, o.created_at AS since
                   FROM which w, admissions_open o CROSS JOIN LATERAL unnest(o.resources, o.held) AS u(resource, held)
                   WHERE u.resource = w.resource AND u.held > 0
                   UNION ALL
                   SELECT l.tenant, NULL, l.run_id, u.held, l.started_at
                   FROM which w, run_leases l CROSS JOIN LATERAL unnest(l.resources, l.held) AS u(resource, held)
                   WHERE u.resource = w.resource AND u.held > 0) h
               ORDER BY h.since LIMIT $3"#,
            scope,
            name.as_str(),
            most,
        )
        .fetch_all(self.pool())
        .await?;
        let holders = rows.into_iter().map(|row| {
            Ok(HolderView {
                tenant: stored(&row.tenant, "admissions.tenant")?,
                admission_id: row.admission_id.map(AdmissionId::from_uuid),
                run_id: row.run_id.map(RunId::from_uuid),
                amount: row.held,
                since: row.since,
            })
        });
        holders.collect()
    }

    /// Makes a resource, or changes how much there is of it. Less than is in use takes nothing away (R7.5).
    pub async fn put_resource(
        &self,
        scope: &str,
        name: &ResourceName,
        capacity: i64,
        author: &Author,
    ) -> Result<Written<ResourceView>, Error> {
        let (scope, name) = (scope.to_owned(), name.clone());
        self.write("resource.put", author, move |tx, author| {
            let (scope, name) = (scope.clone(), name.clone());
            Box::pin(async move {
                let before = lock(tx, &scope, &name).await?;
                if let Some(before) = &before
                    && before.capacity == capacity
                    && !before.removed
                {
                    return Ok(Written::unchanged(before.clone()));
                }
                let after = sqlx::query_as!(
                    Row,
                    r#"INSERT INTO resources AS r (scope, name, capacity) VALUES ($1, $2, $3)
                       ON CONFLICT (scope, name) DO UPDATE SET capacity = $3, removed_at = NULL,
                           over_since = CASE WHEN r.in_use > $3 THEN coalesce(r.over_since, clock_timestamp()) END
                       RETURNING name, capacity, in_use, over_since, removed_at"#,
                    scope,
                    name.as_str(),
                    capacity,
                )
                .fetch_one(&mut *tx)
                .await?
                .view()?;
                let revision = log(tx, &author, "resource.put", &name, before.as_ref(), &after).await?;
                raise(tx, &scope).await?;
                Ok(Written {
                    value: after,
                    revision: Some(revision),
                })
            })
        })
        .await
    }

    /// Removes a resource: it admits nothing new, and goes with its last grant (R7.5).
    pub async fn remove_resource(
        &self,
        scope: &str,
        name: &ResourceName,
        author: &Author,
    ) -> Result<Written<RemoveResource>, Error> {
        let (scope, name) = (scope.to_owned(), name.clone());
        self.write("resource.remove", author, move |tx, author| {
            let (scope, name) = (scope.clone(), name.clone());
            Box::pin(async move {
                let before = lock(tx, &scope, &name).await?;
                let Some(before) = before.filter(|before| !before.removed) else {
                    return Ok(Written::unchanged(RemoveResource::NotFound));
                };
                let after = sqlx::query_as!(
                    Row,
                    r#"UPDATE resources SET capacity = 0, removed_at = clock_timestamp(),
                           over_since = CASE WHEN in_use > 0 THEN coalesce(over_since, clock_timestamp()) END
                       WHERE scope = $1 AND name = $2
                       RETURNING name, capacity, in_use, over_since, removed_at"#,
                    scope,
                    name.as_str(),
                )
                .fetch_one(&mut *tx)
                .await?
                .view()?;
                let revision =
                    log(tx, &author, "resource.remove", &name, Some(&before), &after).await?;
                raise(tx, &scope).await?;
                Ok(Written {
                    value: RemoveResource::Removed(after),
                    revision: Some(revision),
                })
            })
        })
        .await
    }
}

/// The resource as it is, under the lock of the book: nobody decides by its old capacity any more.
async fn lock(
    tx: &mut PgConnection,
    scope: &str,
    name: &ResourceName,
) -> Result<Option<ResourceView>, Error> {
    lock_book(tx, scope).await?;
    sqlx::query_as!(
        Row,
        "SELECT name, capacity, in_use, over_since, removed_at FROM resources WHERE scope = $1 AND name = $2",
        scope,
        name.as_str(),
    )
    .fetch_optional(tx)
    .await?
    .map(Row::view)
    .transpose()
}

/// What was computed at the version before holds no longer.
async fn raise(tx: &mut PgConnection, scope: &str) -> Result<(), Error> {
    super::apply_changes(tx, scope, std::iter::empty()).await?;
    Ok(())
}

async fn log(
    tx: &mut PgConnection,
    author: &Author,
    action: &'static str,
    name: &ResourceName,
    before: Option<&ResourceView>,
    after: &ResourceView,
) -> Result<i64, Error> {
    let audited = |view: &ResourceView| json!({"capacity": view.capacity, "removed": view.removed});
    record(
        tx,
        Record {
            author,
            kind: ConfigKind::Resource,
            action,
            subject: name.as_str(),
            tenant: None,
            before: before.map_or(Value::Null, audited),
            after: audited(after),
        },
    )
    .await
}

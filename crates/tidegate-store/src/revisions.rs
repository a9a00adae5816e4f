//! The numbered log of administrative writes, and since when each is in force everywhere (R17).

use chrono::{DateTime, Utc};
use tidegate_model::{ConfigKind, InstanceId, TenantId, api::RevisionView};

use crate::{Error, Store, error::stored};

/// One entry of the log, as an instance that follows it needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Its number.
    pub revision: i64,
    /// What kind of thing changed; `None` for a kind that a newer release added: it concerns every cache.
    pub kind: Option<ConfigKind>,
    /// The tenant concerned.
    pub tenant: Option<TenantId>,
}

impl Store {
    /// The number of the last revision; 0 before the first.
    pub async fn last_revision(&self) -> Result<i64, Error> {
        let last = sqlx::query_scalar!(
            r#"SELECT coalesce(max(revision), 0) AS "last!" FROM config_revisions"#
        )
        .fetch_one(self.pool())
        .await?;
        Ok(last)
    }

    /// The revisions after `after`, oldest first, at most `limit`.
    pub async fn revisions_after(&self, after: i64, limit: i64) -> Result<Vec<Revision>, Error> {
        let rows = sqlx::query!(
            "SELECT revision, kind, tenant FROM config_revisions WHERE revision > $1 ORDER BY revision LIMIT $2",
            after,
            limit,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(Revision {
                    revision: row.revision,
                    kind: row.kind.parse().ok(),
                    tenant: row
                        .tenant
                        .map(|tenant| stored(&tenant, "config_revisions.tenant"))
                        .transpose()?,
                })
            })
            .collect()
    }

    /// A page of the log, newest first, with since when each is in force everywhere.
    pub async fn list_revisions(
        &self,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<RevisionView>, Error> {
        let rows = sqlx::query!(
            r#"SELECT r.revision, r.kind, r.subject, r.at, f.since AS "since?: DateTime<Utc>"
               FROM config_revisions r
               LEFT JOIN LATERAL (SELECT min(f.since) AS since FROM config_in_force f
                                  WHERE f.revision >= r.revision) f ON true
               WHERE $1::bigint IS NULL OR r.revision < $1
               ORDER BY r.revision DESC LIMIT $2"#,
            before,
            limit,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| RevisionView {
                revision: row.revision,
                kind: row.kind,
                subject: row.subject,
                at: row.at,
                in_force_since: row.since,
            })
            .collect())
    }

    /// Sends the hint that a revision was committed, in a transaction of its own (R17.1). The payload is the number and
    /// nothing else, so that it never grows (O-30).
    pub async fn notify_revision(&self, revision: i64) -> Result<(), Error> {
        sqlx::query!(
            "SELECT pg_notify('aida_config_changed', $1)",
            revision.to_string(),
        )
        .execute(self.pool())
        .await?;
        Ok(())
    }

    /// Sends `beat` to the channel that only one instance listens on, to learn whether notifications arrive (O-23).
    pub async fn notify_listener(&self, channel: &str, beat: i64) -> Result<(), Error> {
        sqlx::query!("SELECT pg_notify($1, $2)", channel, beat.to_string())
            .execute(self.pool())
            .await?;
        Ok(())
    }

    /// Publishes the revision that an instance serves, and notes which revision all live instances serve (R17.2).
    /// Instances that were not seen for `dead_after_ms` do not count.
    pub async fn publish_served(
        &self,
        instance: InstanceId,
        revision: i64,
        dead_after_ms: i64,
    ) -> Result<(), Error> {
        sqlx::query!(
            "UPDATE instances SET revision = $2, revision_since = clock_timestamp(), seen_at = clock_timestamp()
             WHERE instance_id = $1 AND revision <> $2",
            instance.as_uuid(),
            revision,
        )
        .execute(self.pool())
        .await?;
        self.note_in_force(dead_after_ms).await
    }

    /// Notes the revision that every live instance serves, once; whoever sees it first writes it.
    pub async fn note_in_force(&self, dead_after_ms: i64) -> Result<(), Error> {
        sqlx::query!(
            "INSERT INTO config_in_force (revision)
             SELECT s.revision FROM (
                 SELECT min(revision) AS revision FROM instances
                 WHERE seen_at > clock_timestamp() - $1::bigint * interval '1 millisecond') s
             WHERE s.revision > 0
               AND NOT EXISTS (SELECT FROM config_in_force f WHERE f.revision >= s.revision)
             ON CONFLICT DO NOTHING",
            dead_after_ms,
        )
        .execute(self.pool())
        .await?;
        Ok(())
    }
}

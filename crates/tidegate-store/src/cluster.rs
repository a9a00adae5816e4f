//! Which history of the database this is (R4.7), and the record that tells a right `CONFIG_ENC_KEY` from a wrong one
//! (R1.1).
//!
//! A fence carries the generation. It rises when the database's identity is not the one it last showed: a promoted
//! standby has another timeline, a restored base backup too, a restored dump another database or table. What leaves no
//! trace in the identity is a disk put back to an older snapshot; an instance that lived through it sees the write-ahead
//! log or the generation go backwards and raises the generation above all it has seen.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{Error, Fleet, Store, catalog::Sealed};

/// The generation of fences in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// Its number.
    pub number: i32,
    /// When it rose last.
    pub since: DateTime<Utc>,
    /// Why.
    pub cause: String,
    /// Whether this very look raised it.
    pub raised: bool,
    /// The position of the write-ahead log; it never goes backwards within one history.
    pub wal_position: i64,
}

/// The sealed secrets of the database as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterSecrets {
    /// A known text that only the right `CONFIG_ENC_KEY` opens.
    pub key_check: Option<Sealed>,
    /// The key of body digests.
    pub digest_key: Option<Sealed>,
}

impl Fleet {
    /// Looks at the database's identity and raises the generation where it is another one, or where the database stands
    /// before what this instance had `seen`. Safe to call from any number of instances at once: the first raises it, the
    /// others find a generation that is newer than what they had seen.
    pub async fn observe_generation(&self, seen: Option<&Generation>) -> Result<Generation, Error> {
        let mut connection = self.pool().acquire().await?;
        observe(&mut connection, seen).await
    }
}

/// The look itself, on a given connection.
pub(crate) async fn observe(
    connection: &mut PgConnection,
    seen: Option<&Generation>,
) -> Result<Generation, Error> {
    // The timeline is read from the name of the current log file: pg_control shows the one of the last checkpoint,
    // which a promotion does not wait for.
    let row = sqlx::query!(
        r#"SELECT c.generation, c.generation_since, c.generation_cause, c.identity,
                  pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS "wal!",
                  concat_ws(':', s.system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
                            d.oid, 'cluster'::regclass::oid) AS "now!"
           FROM cluster c, pg_control_system() s, pg_database d WHERE d.datname = current_database()"#
    )
    .fetch_one(&mut *connection)
    .await?;
    let current = Generation {
        number: row.generation,
        since: row.generation_since,
        cause: row.generation_cause,
        raised: false,
        wal_position: row.wal,
    };
    let rewound = seen.is_some_and(|seen| {
        current.number < seen.number
            || (current.number == seen.number && current.wal_position < seen.wal_position)
    });
    if row.identity == row.now && !rewound {
        return Ok(current);
    }
    let first = row.identity.is_empty() && !rewound;
    let (number, cause) = if first {
        (current.number, current.cause.clone())
    } else {
        let above = seen.map_or(0, |seen| seen.number).max(current.number);
        let cause = if rewound {
            "the database was put back to an older state".to_owned()
        } else {
            difference(&row.identity, &row.now)
        };
        (above.saturating_add(1), cause)
    };
    let expected = Expected {
        identity: &row.identity,
        generation: current.number,
    };
    raise(connection, &expected, &row.now, number, &cause)
        .await
        .map(|(generation, raised)| Generation {
            raised: raised && !first,
            wal_position: row.wal,
            ..generation
        })
}

/// The look that each new connection begins with. A database that is not migrated yet, or a standby, has no generation
/// to raise; whatever else goes wrong shows itself by the statement the connection was made for.
pub(crate) async fn on_connect(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    match observe(connection, None).await {
        Ok(generation) if generation.raised => {
            tracing::warn!(
                generation = generation.number,
                cause = generation.cause,
                "the database comes from another history; leases of earlier generations are refused"
            );
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "the identity of the database cannot be read"),
    }
    Ok(())
}

/// What a raise must still find.
struct Expected<'a> {
    identity: &'a str,
    generation: i32,
}

/// Compare-and-set on what was seen: of many instances one raises it, the others read what it wrote.
async fn raise(
    connection: &mut PgConnection,
    expected: &Expected<'_>,
    identity: &str,
    number: i32,
    cause: &str,
) -> Result<(Generation, bool), Error> {
    let done = sqlx::query!(
        "UPDATE cluster SET identity = $3, generation = $4, generation_cause = $5,
                generation_since = CASE WHEN generation = $4 THEN generation_since ELSE clock_timestamp() END
         WHERE identity = $1 AND generation = $2",
        expected.identity,
        expected.generation,
        identity,
        number,
        cause,
    )
    .execute(&mut *connection)
    .await?;
    let row = sqlx::query!("SELECT generation, generation_since, generation_cause FROM cluster")
        .fetch_one(&mut *connection)
        .await?;
    let generation = Generation {
        number: row.generation,
        since: row.generation_since,
        cause: row.generation_cause,
        raised: false,
        wal_position: 0,
    };
    Ok((generation, done.rows_affected() == 1))
}

/// What differs between two identities, in words for `tidegate recover`.
fn difference(before: &str, now: &str) -> String {
    const PARTS: [&str; 4] = [
        "another database cluster",
        "another timeline (a promotion or a restored backup)",
        "another database (a restored dump or a copy)",
        "another table of the same database (a restored dump)",
    ];
    let changed = before
        .split(':')
        .zip(now.split(':'))
        .position(|(before, now)| before != now);
    changed
        .and_then(|index| PARTS.get(index))
        .copied()
        .unwrap_or("another history")
        .to_owned()
}

impl Store {
    /// The sealed secrets of the database as a whole.
    pub async fn cluster_secrets(&self) -> Result<ClusterSecrets, Error> {
        let row =
            sqlx::query!("SELECT key_check, key_check_id, digest_key, digest_key_id FROM cluster")
                .fetch_one(self.pool())
                .await?;
        let sealed = |(envelope, key_id)| Sealed { envelope, key_id };
        Ok(ClusterSecrets {
            key_check: row.key_check.zip(row.key_check_id).map(sealed),
            digest_key: row.digest_key.zip(row.digest_key_id).map(sealed),
        })
    }

    /// The same before anything is known of the schema; nothing where no migration has run yet.
    pub async fn cluster_secrets_before_migration(&self) -> Result<Option<ClusterSecrets>, Error> {
        let migrated =
            sqlx::query_scalar!(r#"SELECT to_regclass('cluster') IS NOT NULL AS "migrated!""#)
                .fetch_one(self.pool())
                .await?;
        if migrated {
            self.cluster_secrets().await.map(Some)
        } else {
            Ok(None)
        }
    }

    /// Writes the secrets where there are none; where another instance was first, its own stay.
    pub async fn set_first_cluster_secrets(
        &self,
        key_check: &Sealed,
        digest_key: &Sealed,
    ) -> Result<(), Error> {
        sqlx::query!(
            "UPDATE cluster SET key_check = $1, key_check_id = $2, digest_key = $3, digest_key_id = $4
             WHERE key_check IS NULL AND digest_key IS NULL",
            key_check.envelope,
            key_check.key_id,
            digest_key.envelope,
            digest_key.key_id,
        )
        .execute(self.pool())
        .await?;
        Ok(())
    }

    /// Replaces both envelopes by others of the same content, the last step of a rotation; `false` where somebody else
    /// did so in between.
    pub async fn reseal_cluster_secrets(
        &self,
        before: &ClusterSecrets,
        key_check: &Sealed,
        digest_key: &Sealed,
    ) -> Result<bool, Error> {
        let done = sqlx::query!(
            "UPDATE cluster SET key_check = $1, key_check_id = $2, digest_key = $3, digest_key_id = $4
             WHERE key_check = $5 AND digest_key = $6",
            key_check.envelope,
            key_check.key_id,
            digest_key.envelope,
            digest_key.key_id,
            before.key_check.as_ref().map(|sealed| sealed.envelope.as_slice()),
            before.digest_key.as_ref().map(|sealed| sealed.envelope.as_slice()),
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected() == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_names_what_changed() {
        let before = "7300:00000001:16384:16390";
        for (now, word) in [
            ("7301:00000001:16384:16390", "cluster"),
            ("7300:00000002:16384:16390", "timeline"),
            ("7300:00000001:16385:16390", "copy"),
            ("7300:00000001:16384:17000", "same database"),
        ] {
            assert!(difference(before, now).contains(word), "{now}");
        }
    }
}

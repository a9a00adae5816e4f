//! Keys that sign grants (R9.1): one that signs, one that is published ahead, and those that retire.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgConnection;
use tidegate_model::{
    ConfigKind,
    api::{GrantKeyState, GrantKeyView},
    contracts::{GrantAlgorithm, GrantKeyId, PublishedGrantKey},
};

use crate::{
    Error, Fleet, Store,
    catalog::Sealed,
    repeats::Outcome,
    written::{Author, Record, Written, record},
};

/// A key that was just made.
#[derive(Debug, Clone)]
pub struct NewGrantKey {
    /// Its public half, in hexadecimal digits: the name that its private half is sealed for.
    pub public_key: String,
    /// Its private half.
    pub sealed: Sealed,
}

/// A key with its sealed private half.
#[derive(Debug, Clone)]
pub struct StoredGrantKey {
    /// What may be shown of it.
    pub view: GrantKeyView,
    /// Its private half.
    pub sealed: Sealed,
}

/// Every key that is not retired, at a time of the database's clock.
#[derive(Debug, Clone)]
pub struct StoredGrantKeys {
    /// When they were read.
    pub now: DateTime<Utc>,
    /// By number.
    pub keys: Vec<StoredGrantKey>,
}

/// How the key that signs is replaced.
#[derive(Debug, Clone)]
pub struct RotateGrantKeys {
    /// The key that is published ahead from now on; before it one that takes the place of what cannot be opened.
    pub fresh: Vec<NewGrantKey>,
    /// The next key cannot be opened: it goes without having signed anything.
    pub replace_next: bool,
    /// The key that signs cannot be opened: the next one starts however short it was published.
    pub at_once: bool,
    /// How long a key is published before it signs.
    pub ahead: TimeDelta,
    /// How long after its last signature a key is published.
    pub life: TimeDelta,
}

/// What came of a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantKeyRotation {
    /// The next key signs, or will; these are all.
    Rotated(Vec<GrantKeyView>),
    /// The rotation before is not over: this key signs from then on.
    Starting(GrantKeyId, DateTime<Utc>),
    /// There is no key to replace, or too few were made.
    NoKeys,
}

impl Outcome for GrantKeyRotation {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Rotated(_))
    }
}

struct Row {
    name: String,
    key_id: i32,
    sealed: Vec<u8>,
    sealed_key: String,
    not_before: Option<DateTime<Utc>>,
    retire_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    now: DateTime<Utc>,
}

impl Row {
    fn state(&self) -> GrantKeyState {
        match (self.not_before, self.retire_at) {
            (_, Some(_)) => GrantKeyState::Retiring,
            (None, None) => GrantKeyState::Next,
            (Some(from), None) if self.now < from => GrantKeyState::Starting,
            (Some(_), None) => GrantKeyState::Active,
        }
    }

    fn stored(self) -> Result<StoredGrantKey, Error> {
        let key_id = u32::try_from(self.key_id).map_err(|_| Error::Corrupt {
            what: "grant_keys.key_id",
        })?;
        Ok(StoredGrantKey {
            view: GrantKeyView {
                state: self.state(),
                published: PublishedGrantKey {
                    key_id: GrantKeyId(key_id),
                    algorithm: GrantAlgorithm::Ed25519,
                    public_key: self.name,
                    not_before: self.not_before,
                    retire_at: self.retire_at,
                },
                created_at: self.created_at,
            },
            sealed: Sealed {
                envelope: self.sealed,
                key_id: self.sealed_key,
            },
        })
    }
}

async fn rows(connection: &mut PgConnection) -> Result<Vec<Row>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT k.name, k.key_id, k.sealed, k.sealed_key, k.not_before, k.retire_at, k.created_at, t.now AS "now!"
           FROM (SELECT clock_timestamp() AS now) t, grant_keys k
           WHERE k.retire_at IS NULL OR k.retire_at > t.now ORDER BY k.key_id"#
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

impl Store {
    /// Every key that is not retired, and the time.
    pub async fn grant_keys(&self) -> Result<StoredGrantKeys, Error> {
        let mut connection = self.pool().acquire().await?;
        let rows = rows(&mut connection).await?;
        let now = match rows.first() {
            Some(row) => row.now,
            None => {
                sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#)
                    .fetch_one(&mut *connection)
                    .await?
            }
        };
        Ok(StoredGrantKeys {
            now,
            keys: rows
                .into_iter()
                .map(Row::stored)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Stores the first two keys, the first of which signs at once, where there is none yet. Of many instances that start
    /// together one does; none of them has served anything before, so that nobody has to be told.
    pub async fn first_grant_keys(
        &self,
        signs: &NewGrantKey,
        next: &NewGrantKey,
    ) -> Result<(), Error> {
        let keys = [signs.clone(), next.clone()];
        self.transaction("grant_keys.first", move |tx| {
            let keys = keys.clone();
            Box::pin(async move {
                lock(tx).await?;
                let any =
                    sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM grant_keys) AS "any!""#)
                        .fetch_one(&mut *tx)
                        .await?;
                if any {
                    return Ok(());
                }
                let [signs, next] = &keys;
                insert(tx, signs, 1).await?;
                start(tx, &signs.public_key, None).await?;
                insert(tx, next, 2).await
            })
        })
        .await
    }

    /// Lets the next key sign, lets the one before retire, and publishes another one ahead.
    pub async fn rotate_grant_keys(
        &self,
        rotation: RotateGrantKeys,
        author: &Author,
    ) -> Result<Written<GrantKeyRotation>, Error> {
        self.write("grant_keys.rotate", author, move |tx, author| {
            let rotation = rotation.clone();
            Box::pin(async move { rotate(tx, &rotation, &author).await })
        })
        .await
    }
}

impl Fleet {
    /// Removes keys that are retired; answers how many.
    pub async fn prune_grant_keys(&self) -> Result<u64, Error> {
        let done = sqlx::query!("DELETE FROM grant_keys WHERE retire_at <= clock_timestamp()")
            .execute(self.pool())
            .await?;
        Ok(done.rows_affected())
    }
}

/// One writer at a time, so that each sees what the one before has made.
async fn lock(tx: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended('tidegate grant_keys', 0))")
        .execute(tx)
        .await?;
    Ok(())
}

async fn insert(tx: &mut PgConnection, key: &NewGrantKey, number: i32) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO grant_keys (name, key_id, sealed, sealed_key) VALUES ($1, $2, $3, $4)",
        key.public_key,
        number,
        key.sealed.envelope,
        key.sealed.key_id,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// From when on a key signs; now where no time is given.
async fn start(tx: &mut PgConnection, name: &str, at: Option<DateTime<Utc>>) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE grant_keys SET not_before = coalesce($2, clock_timestamp()) WHERE name = $1",
        name,
        at,
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn retire(tx: &mut PgConnection, name: &str, at: DateTime<Utc>) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE grant_keys SET retire_at = $2 WHERE name = $1",
        name,
        at
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Removes the next key, which has signed nothing.
async fn discard(tx: &mut PgConnection, name: &str) -> Result<(), Error> {
    sqlx::query!(
        "DELETE FROM grant_keys WHERE name = $1 AND not_before IS NULL",
        name
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn rotate(
    tx: &mut PgConnection,
    rotation: &RotateGrantKeys,
    author: &Author,
) -> Result<Written<GrantKeyRotation>, Error> {
    lock(tx).await?;
    let before = rows(tx).await?;
    let find = |state: GrantKeyState| before.iter().find(|row| row.state() == state);
    if let Some((row, from)) =
        find(GrantKeyState::Starting).and_then(|row| Some((row, row.not_before?)))
    {
        let key = GrantKeyId(row.key_id.unsigned_abs());
        return Ok(Written::unchanged(GrantKeyRotation::Starting(key, from)));
    }
    let mut fresh = rotation.fresh.iter();
    let (Some(signs), Some(next), Some(ahead)) = (
        find(GrantKeyState::Active),
        find(GrantKeyState::Next),
        fresh.next_back(),
    ) else {
        return Ok(Written::unchanged(GrantKeyRotation::NoKeys));
    };
    // Numbers rise for ever, also over one that is discarded.
    let mut number = before.last().map_or(0, |row| row.key_id) + 1;
    let (mut name, mut published) = (&next.name, next.created_at);
    if rotation.replace_next {
        let Some(instead) = fresh.next() else {
            return Ok(Written::unchanged(GrantKeyRotation::NoKeys));
        };
        discard(tx, &next.name).await?;
        insert(tx, instead, number).await?;
        number += 1;
        (name, published) = (&instead.public_key, next.now);
    }
    let starts = if rotation.at_once {
        next.now
    } else {
        next.now.max(published + rotation.ahead)
    };
    retire(tx, &signs.name, starts + rotation.life).await?;
    start(tx, name, Some(starts)).await?;
    insert(tx, ahead, number).await?;
    let views: Vec<GrantKeyView> = rows(tx)
        .await?
        .into_iter()
        .map(|row| row.stored().map(|stored| stored.view))
        .collect::<Result<_, _>>()?;
    let signs_now = views.iter().find(|view| view.published.public_key == *name);
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::GrantKey,
            action: "grant_key.rotate",
            subject: &signs.key_id.to_string(),
            tenant: None,
            before: json!({ "signs": signs.key_id }),
            after: json!({
                "signs": signs_now.map(|view| view.published.key_id),
                "notBefore": starts,
            }),
        },
    )
    .await?;
    Ok(Written {
        value: GrantKeyRotation::Rotated(views),
        revision: Some(revision),
    })
}

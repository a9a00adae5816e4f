//! Duties: work that one instance does for all, held as leases with fences (architecture, "Lock order": no duty rests on
//! a session lock).

use sqlx::PgConnection;
use tidegate_model::InstanceId;

use crate::{Error, Fleet};

/// A duty that an instance holds until its lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duty {
    /// Its name.
    pub name: &'static str,
    /// Who holds it.
    pub holder: InstanceId,
    /// Rises with each new holder, and where a holder had lost it.
    pub fence: i64,
}

impl Fleet {
    /// Takes or renews a duty for `lease_ms`; `None` while another instance holds it.
    pub async fn hold_duty(
        &self,
        name: &'static str,
        holder: InstanceId,
        lease_ms: i64,
    ) -> Result<Option<Duty>, Error> {
        let fence = sqlx::query_scalar!(
            "INSERT INTO duties AS d (duty, holder, fence, lease_until)
             VALUES ($1, $2, 1, clock_timestamp() + $3::bigint * interval '1 millisecond')
             ON CONFLICT (duty) DO UPDATE SET
                 fence = d.fence + CASE WHEN d.holder = $2 AND d.lease_until > clock_timestamp() THEN 0 ELSE 1 END,
                 holder = $2,
                 lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond'
             WHERE d.holder = $2 OR d.lease_until <= clock_timestamp() OR d.holder IS NULL
             RETURNING fence",
            name,
            holder.as_uuid(),
            lease_ms,
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(fence.map(|fence| Duty {
            name,
            holder,
            fence,
        }))
    }

    /// Hands a duty back, so that the next instance need not wait for the lease to end.
    pub async fn leave_duty(&self, duty: Duty) -> Result<(), Error> {
        sqlx::query!(
            "UPDATE duties SET lease_until = '-infinity' WHERE duty = $1 AND holder = $2 AND fence = $3",
            duty.name,
            duty.holder.as_uuid(),
            duty.fence,
        )
        .execute(self.pool())
        .await?;
        Ok(())
    }

    /// Whether the duty is still held; for a long duty between two of its steps.
    pub async fn holds_duty(&self, duty: Duty) -> Result<bool, Error> {
        let mut connection = self.pool().acquire().await?;
        is_held(&mut connection, duty).await
    }
}

/// Inside a transaction: whether the duty is still held. The row stays locked to the commit, so that nobody else can
/// take the duty before what was written under it is there.
pub(crate) async fn is_held(tx: &mut PgConnection, duty: Duty) -> Result<bool, Error> {
    let row = sqlx::query_scalar!(
        r#"SELECT 1 AS "held!" FROM duties
           WHERE duty = $1 AND holder = $2 AND fence = $3 AND lease_until > clock_timestamp() FOR SHARE"#,
        duty.name,
        duty.holder.as_uuid(),
        duty.fence,
    )
    .fetch_optional(tx)
    .await?;
    Ok(row.is_some())
}

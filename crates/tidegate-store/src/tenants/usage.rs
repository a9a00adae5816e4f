//! What a tenant has queued and running now, counted from the narrow tables; there is no counter that could drift (O-06).

use tidegate_model::run::QuotaBucket;

use crate::{Error, TenantStore};

/// Queued and running runs of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketCounts {
    /// The bucket.
    pub bucket: QuotaBucket,
    /// In the queue or parked.
    pub queued: i64,
    /// Under a lease.
    pub running: i64,
}

impl TenantStore {
    /// The counts of each bucket, in the buckets' order.
    pub async fn usage(&self) -> Result<Vec<BucketCounts>, Error> {
        let rows = sqlx::query!(
            r#"SELECT bucket AS "bucket!", sum(queued)::bigint AS "queued!", sum(running)::bigint AS "running!" FROM (
                   SELECT bucket, 1 AS queued, 0 AS running FROM run_queue WHERE tenant = $1
                   UNION ALL
                   SELECT bucket, 1, 0 FROM run_parked WHERE tenant = $1 AND why NOT IN ('waiting', 'review')
                   UNION ALL
                   SELECT bucket, 0, 1 FROM run_leases WHERE tenant = $1) r
               GROUP BY bucket"#,
            self.key(),
        )
        .fetch_all(self.pool())
        .await?;
        let counts = [
            QuotaBucket::Foreground,
            QuotaBucket::Background,
            QuotaBucket::Uncounted,
        ];
        Ok(counts
            .into_iter()
            .zip(0i16..)
            .map(|(bucket, number)| {
                let row = rows.iter().find(|row| row.bucket == number);
                BucketCounts {
                    bucket,
                    queued: row.map_or(0, |row| row.queued),
                    running: row.map_or(0, |row| row.running),
                }
            })
            .collect())
    }
}

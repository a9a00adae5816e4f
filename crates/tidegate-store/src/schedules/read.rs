//! Reading a tenant's schedules.

use tidegate_model::ids::ScheduleName;

use super::{Row, ScheduleRow, schedule_rows};
use crate::{Error, TenantStore};

impl TenantStore {
    /// A schedule of the tenant.
    pub async fn schedule(&self, name: &ScheduleName) -> Result<Option<ScheduleRow>, Error> {
        schedule_rows!(
            "SELECT",
            "FROM schedules WHERE tenant = $1 AND name = $2",
            self.key(),
            name.as_str(),
        )
        .fetch_optional(self.pool())
        .await?
        .map(Row::schedule)
        .transpose()
    }

    /// The tenant's schedules by name, those after one of them where given.
    pub async fn schedules(
        &self,
        after: Option<&ScheduleName>,
        limit: i64,
    ) -> Result<Vec<ScheduleRow>, Error> {
        schedule_rows!(
            "SELECT",
            "FROM schedules WHERE tenant = $1 AND ($2::text IS NULL OR name > $2) ORDER BY name LIMIT $3",
            self.key(),
            after.map(ScheduleName::as_str),
            limit,
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(Row::schedule)
        .collect()
    }
}

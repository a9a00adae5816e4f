//! Schedules of the key's tenant.

use tidegate_model::{
    api::{Page, PageQuery, PutSchedule, ScheduleView},
    ids::ScheduleName,
};

use crate::{Client, Result, request::Call};

impl Client {
    /// `PUT /v1/schedules/{name}`: makes or replaces a schedule, which continues from now.
    pub async fn put_schedule(
        &self,
        name: &ScheduleName,
        body: &PutSchedule,
    ) -> Result<ScheduleView> {
        self.json(Call::put(format!("/v1/schedules/{name}")).body(body)?)
            .await
    }

    /// `GET /v1/schedules`, by name.
    pub async fn schedules(&self, page: &PageQuery) -> Result<Page<ScheduleView>> {
        self.json(Call::get("/v1/schedules").query(page)?).await
    }

    /// `GET /v1/schedules/{name}`: with its next due times.
    pub async fn schedule(&self, name: &ScheduleName) -> Result<ScheduleView> {
        self.json(Call::get(format!("/v1/schedules/{name}"))).await
    }

    /// `DELETE /v1/schedules/{name}`: its runs stay.
    pub async fn delete_schedule(&self, name: &ScheduleName) -> Result<()> {
        self.done(Call::delete(format!("/v1/schedules/{name}")))
            .await
    }

    /// `POST /v1/schedules/{name}/pause`.
    pub async fn pause_schedule(&self, name: &ScheduleName) -> Result<ScheduleView> {
        self.json(Call::post(format!("/v1/schedules/{name}/pause")))
            .await
    }

    /// `POST /v1/schedules/{name}/resume`: for what it missed its rule holds.
    pub async fn resume_schedule(&self, name: &ScheduleName) -> Result<ScheduleView> {
        self.json(Call::post(format!("/v1/schedules/{name}/resume")))
            .await
    }
}

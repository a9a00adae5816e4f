//! Schedules that are due.

use serde_json::json;
use tidegate_model::{
    Capability, KeyId, TenantId,
    run::{PrioritySource, ServiceClass},
    schedule::{MissedRuns, Overlap},
};
use tidegate_store::schedules::{NewSchedule, Terms, fire::FireTerms, put::PutSchedule};

use super::{DAY_MS, World};

pub fn fire_terms() -> FireTerms {
    FireTerms {
        scope: "main".to_owned(),
        max_attempts: 5,
        backoff_base_ms: 1,
        backoff_max_ms: 5,
        queue_max_age_ms: DAY_MS,
    }
}

impl World {
    /// A monthly schedule whose run of this month has not been fired.
    pub async fn schedule(&self, tenant: &TenantId, name: &str) {
        let schedule = NewSchedule {
            terms: Terms {
                name: name.parse().expect("name"),
                cron: "@monthly".to_owned(),
                time_zone: "UTC".to_owned(),
                missed_runs: MissedRuns::RunOnce,
                catch_up_window_ms: 366 * DAY_MS,
                overlap: Overlap::Allow,
                capability: Capability::chat(),
                service_class: ServiceClass::Deferrable,
                priority: 0,
                max_attempts: None,
                budget_tokens: None,
                budget_ms: None,
                user: None,
                input: json!({}),
            },
            scope: "main".to_owned(),
            class: self.class(tenant).await,
            priority_source: PrioritySource::Default,
            request_digest: [7; 32],
            created_by: KeyId::new(),
        };
        let put = self.store.tenant(tenant).put_schedule(schedule, None).await;
        assert!(matches!(put.expect("put"), PutSchedule::Stored(_)));
        sqlx::query(
            "UPDATE schedules SET next_due_at = date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
             WHERE name = $1",
        )
        .bind(name)
        .execute(self.db.pool())
        .await
        .expect("due");
    }
}

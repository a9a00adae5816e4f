//! From a row to what a caller sees.

use tidegate_model::{
    TenantId,
    api::{LastRun, LastSkipped, RunBudget, ScheduleError, ScheduleView, ScheduledRun},
};
use tidegate_policy::schedules::Recurrence;
use tidegate_store::schedules::ScheduleRow;

/// How many of the next due times are shown.
const SHOWN: usize = 5;

/// The schedule as its tenant sees it.
pub(super) fn view(tenant: &TenantId, row: ScheduleRow) -> ScheduleView {
    let next_due_times = if row.paused {
        Vec::new()
    } else {
        let later = Recurrence::parse(&row.terms.cron, &row.terms.time_zone)
            .map(|recurrence| recurrence.upcoming(row.next_due_at, SHOWN - 1));
        let mut times = vec![row.next_due_at];
        times.extend(later.unwrap_or_default());
        times
    };
    let terms = row.terms;
    let bounded = terms.budget_tokens.is_some() || terms.budget_ms.is_some();
    ScheduleView {
        name: terms.name,
        tenant: tenant.clone(),
        cron: terms.cron,
        time_zone: terms.time_zone,
        missed_runs: terms.missed_runs,
        catch_up_window_ms: terms.catch_up_window_ms,
        overlap: terms.overlap,
        run: ScheduledRun {
            capability: terms.capability,
            input: terms.input,
            service_class: Some(terms.service_class),
            priority: Some(terms.priority),
            max_attempts: terms.max_attempts,
            budget: bounded.then_some(RunBudget {
                tokens: terms.budget_tokens,
                execution_ms: terms.budget_ms,
            }),
            user: terms.user,
        },
        paused: row.paused,
        next_due_times,
        last_run: row
            .last_run
            .map(|(due_at, run_id)| LastRun { due_at, run_id }),
        last_skipped: row.skipped.map(|(due_at, why)| LastSkipped { due_at, why }),
        last_error: row.error.map(|(due_at, code, detail)| ScheduleError {
            due_at,
            code,
            detail,
        }),
        created_at: row.created_at,
        updated_at: row.updated_at,
    }
}

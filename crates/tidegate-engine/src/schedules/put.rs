//! `PUT /v1/schedules/{name}` (R3.14). What its runs are granted is decided here, once; a schedule is what grants the kind
//! `scheduled` (R3.2).

use tidegate_model::{
    Code,
    api::{PutSchedule, ScheduleView},
    contracts::{Needs, TaskRequirements},
    ids::ScheduleName,
    limits,
    run::RunKind,
};
use tidegate_policy::schedules::{Recurrence, RecurrenceError};
use tidegate_store::schedules::{NewSchedule, Terms, put::PutSchedule as Put};

use super::view::view;
use crate::{
    Engine, Error, Principal,
    runs::accept::{Wanted, check_bounds, check_prompt, class_of, granted},
};

/// Makes or replaces a schedule of the caller's tenant.
pub async fn put(
    engine: &Engine,
    principal: &Principal,
    name: ScheduleName,
    request: PutSchedule,
) -> Result<ScheduleView, Error> {
    let tenant = principal.require_tenant()?;
    let schedule = new_schedule(engine, principal, name, request).await?;
    let store = engine.store().tenant(tenant);
    let put = store
        .put_schedule(schedule, principal.intent.as_ref())
        .await?;
    match put {
        Put::Stored(row) => Ok(view(tenant, *row)),
        Put::TooMany => Err(Error::refused(
            Code::StateConflict,
            format!(
                "the tenant has {} schedules, which is the most it may have; delete one with `tidegate schedule delete`",
                limits::SCHEDULES_MAX
            ),
        )),
        Put::TenantInactive => Err(Error::refused(
            Code::TenantSuspended,
            "the tenant is suspended or deleted; an administrator can resume a suspended one with \
             `tidegate tenant resume`",
        )),
    }
}

/// The schedule as it is stored, checked and with what its runs are granted.
async fn new_schedule(
    engine: &Engine,
    principal: &Principal,
    name: ScheduleName,
    request: PutSchedule,
) -> Result<NewSchedule, Error> {
    let tenant = principal.require_tenant()?;
    let time_zone = request
        .time_zone
        .clone()
        .unwrap_or_else(|| "UTC".to_owned());
    check_recurrence(&request.cron, &time_zone)?;
    let window = request
        .catch_up_window_ms
        .unwrap_or(limits::CATCH_UP_DEFAULT_MS);
    check_window(window)?;
    let user = principal.user_of(request.run.user.clone())?;
    let request_digest = engine.body_digest(&format!("schedules/{name}"), &(&user, &request))?;
    let run = Wanted {
        kind: RunKind::Scheduled,
        capability: request.run.capability,
        needs: Needs::default(),
        input: request.run.input,
        service_class: request.run.service_class,
        priority: request.run.priority,
        deadline: None,
        run_at: None,
        max_attempts: request.run.max_attempts,
        budget: request.run.budget.unwrap_or_default(),
        turn: None,
        user,
        idempotency_key: None,
        request_digest,
    };
    check_run(&run)?;
    let granted = granted(principal, &run).map_err(|error| error.within("run"))?;
    let task = TaskRequirements::new(tenant.clone(), run.capability, run.needs);
    let class = class_of(engine, &task, false).await?;
    check_prompt(engine, class, &task, &run.input)
        .await
        .map_err(|error| error.within("run"))?;
    Ok(NewSchedule {
        scope: engine.settings().execution_scope.clone(),
        class,
        priority_source: granted.priority_source,
        request_digest,
        created_by: principal.key_id,
        terms: Terms {
            name,
            cron: request.cron,
            time_zone,
            missed_runs: request.missed_runs,
            catch_up_window_ms: window,
            overlap: request.overlap,
            capability: task.capability,
            service_class: granted.service_class,
            priority: granted.priority,
            max_attempts: run.max_attempts,
            budget_tokens: run.budget.tokens,
            budget_ms: run.budget.execution_ms,
            user: run.user,
            input: run.input,
        },
    })
}

fn check_recurrence(cron: &str, time_zone: &str) -> Result<(), Error> {
    let wrong = |error: RecurrenceError| {
        let field = match error {
            RecurrenceError::Zone { .. } => "timeZone",
            RecurrenceError::Cron { .. } | RecurrenceError::Never => "cron",
        };
        Error::invalid(field, error.to_string())
    };
    Recurrence::parse(cron, time_zone)
        .and_then(|recurrence| recurrence.after(crate::clock::now()))
        .map_err(wrong)?;
    Ok(())
}

fn check_window(window_ms: i64) -> Result<(), Error> {
    let (least, most) = (limits::CATCH_UP_MIN_MS, limits::CATCH_UP_MAX_MS);
    if (least..=most).contains(&window_ms) {
        return Ok(());
    }
    Err(Error::invalid(
        "catchUpWindowMs",
        format!("{window_ms} is out of bounds: {least} (a minute) to {most} (366 days)"),
    ))
}

fn check_run(run: &Wanted) -> Result<(), Error> {
    check_bounds(run).map_err(|error| error.within("run"))?;
    let size = serde_json::to_vec(&run.input).map_or(usize::MAX, |bytes| bytes.len());
    if size > limits::SCHEDULE_INPUT_MAX_BYTES {
        return Err(Error::invalid(
            "run.input",
            format!(
                "the input has {size} bytes; at most {} are kept with a schedule: pass a reference in place of contents",
                limits::SCHEDULE_INPUT_MAX_BYTES
            ),
        ));
    }
    Ok(())
}

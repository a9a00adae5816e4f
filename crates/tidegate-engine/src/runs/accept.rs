//! What all submissions share: checks of bounds, the requirement class, the answer to repeats.

use std::{collections::HashSet, sync::Arc};

use chrono::{DateTime, Utc};
use serde_json::Value;
use tidegate_model::{
    Capability, Code, RunId, TenantId,
    api::{RunBudget, RunView},
    contracts::{Estimates, Needs, TaskRequirements},
    digest::canonical_digest,
    limits,
    prompt::prompt,
    run::{PrioritySource, RunKind, RunState, ServiceClass},
};
use tidegate_policy::{grants, ledger::demand::may_be_named};
use tidegate_store::{
    lanes::LaneKey,
    runs::{NewRun, Place, Submission, Submitted, Turn, classes::CLASSES_PER_TENANT_MAX},
};

use crate::{
    Engine, Error, Principal, checks,
    claims::LaneHint,
    combine::{Answers, all_or_each, count},
};

/// What a caller asked for, after its route has granted the kind.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub kind: RunKind,
    pub capability: Capability,
    pub needs: Needs,
    pub input: Value,
    pub service_class: Option<ServiceClass>,
    pub priority: Option<i16>,
    pub deadline: Option<DateTime<Utc>>,
    pub run_at: Option<DateTime<Utc>>,
    pub max_attempts: Option<i32>,
    pub budget: RunBudget,
    pub turn: Option<Turn>,
    /// See [`Principal::user_of`].
    pub user: Option<String>,
    pub idempotency_key: Option<String>,
    pub request_digest: [u8; 32],
}

/// A run that was accepted now or before.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Accepted {
    pub run_id: RunId,
    pub repeated: bool,
    /// The run as it was accepted, where it was put into the queue just now: nothing has to be read to show it.
    pub queued: Option<RunView>,
}

impl Accepted {
    /// The run as its tenant sees it.
    pub(crate) async fn view(
        self,
        engine: &Engine,
        principal: &Principal,
    ) -> Result<RunView, Error> {
        if let Some(view) = self.queued {
            return Ok(view);
        }
        let mut view = super::get::get(engine, principal, self.run_id).await?;
        view.repeated = self.repeated;
        Ok(view)
    }
}

/// Accepts a run of the caller's tenant.
pub(crate) async fn accept(
    engine: &Engine,
    principal: &Principal,
    wanted: Wanted,
) -> Result<Accepted, Error> {
    let run = prepared(engine, principal, wanted).await?;
    put(engine, principal.require_tenant()?, run).await
}

/// The run that a caller asked for, checked and ready to be written.
pub(crate) async fn prepared(
    engine: &Engine,
    principal: &Principal,
    wanted: Wanted,
) -> Result<NewRun, Error> {
    let tenant = principal.require_tenant()?;
    if engine.is_draining() {
        return Err(Error::refused(
            Code::ShuttingDown,
            "this instance is shutting down; send the request again, another instance will take it",
        ));
    }
    check_bounds(&wanted)?;
    let granted = granted(principal, &wanted)?;
    let task = TaskRequirements::new(tenant.clone(), wanted.capability, wanted.needs);
    let class = class_of(engine, &task, false).await?;
    // A turn's text is asked for by its own route.
    if wanted.turn.is_none() {
        check_prompt(engine, class, &task, &wanted.input).await?;
    }
    let settings = engine.settings();
    Ok(NewRun {
        run_id: RunId::new(),
        scope: settings.execution_scope.clone(),
        kind: wanted.kind,
        class,
        capability: task.capability,
        service_class: granted.service_class,
        priority: granted.priority,
        priority_source: granted.priority_source,
        turn: wanted.turn,
        idempotency_key: wanted.idempotency_key,
        request_digest: wanted.request_digest,
        max_attempts: wanted.max_attempts.unwrap_or_else(|| {
            i32::try_from(settings.max_attempts).unwrap_or(limits::ATTEMPTS_MAX)
        }),
        backoff_base_ms: i64::from(settings.backoff_base_ms),
        backoff_max_ms: i64::from(settings.backoff_max_ms),
        budget_tokens: wanted.budget.tokens,
        budget_ms: wanted.budget.execution_ms,
        run_at: wanted.run_at,
        deadline: wanted.deadline,
        created_by: Some(principal.key_id),
        user: wanted.user,
        input: wanted.input,
    })
}

/// The lane that a run will stand in.
pub(crate) fn lane_of(tenant: &TenantId, run: &NewRun) -> LaneHint {
    LaneHint {
        lane: LaneKey {
            bucket: run.kind.quota_bucket(),
            tenant: tenant.clone(),
            class: run.class,
        },
        capability: run.capability.clone(),
        place: (1, -run.priority),
        created_ms: 0,
    }
}

/// Writes the run, and says that its lane has got work.
async fn put(engine: &Engine, tenant: &TenantId, run: NewRun) -> Result<Accepted, Error> {
    let view = queued_view(tenant, &run, engine.needs_of(run.class));
    let hint = lane_of(tenant, &run);
    let submitted = if run.turn.is_some() {
        engine
            .store()
            .tenant(tenant)
            .submit_run(run, engine.queue_max_age_ms())
            .await?
    } else {
        let submission = Submission {
            tenant: tenant.clone(),
            run,
        };
        engine
            .submissions()
            .call(engine, Engine::submissions, submit_all, submission)
            .await?
    };
    if let Submitted::Accepted {
        place: Place::Queued,
        created_at,
    } = submitted
    {
        let created_ms = created_at.timestamp_millis();
        engine.work_moved(&[LaneHint { created_ms, ..hint }], &[]);
    } else {
        // What waits for its time needs the sweep, which may be resting.
        engine.claims().wake();
    }
    answer(view, submitted)
}

/// What one statement does with the submissions that came at the same time.
fn submit_all(engine: Engine, submissions: Vec<Submission>) -> Answers<Submitted> {
    Box::pin(async move {
        metrics::histogram!("tidegate_submit_batch_runs").record(count(submissions.len()));
        all_or_each(submissions, |batch| {
            let (fleet, max_age_ms) = (engine.store().fleet(), engine.queue_max_age_ms());
            Box::pin(async move { Ok(fleet.submit_runs(batch, max_age_ms).await?) })
        })
        .await
    })
}

/// The run as its tenant sees it if it is put into the queue. Why it waits there is not looked up for an answer that is
/// out of date on arrival.
fn queued_view(tenant: &TenantId, run: &NewRun, requirements: Option<Needs>) -> RunView {
    RunView {
        requirements,
        run_id: run.run_id,
        tenant: tenant.clone(),
        kind: run.kind,
        quota_bucket: run.kind.quota_bucket(),
        capability: run.capability.clone(),
        service_class: run.service_class,
        priority: run.priority,
        priority_source: run.priority_source,
        user: run.user.clone(),
        conversation_id: run.turn.as_ref().map(|turn| turn.conversation_id),
        state: RunState::Queued,
        code: None,
        detail: None,
        result: None,
        attempts: 0,
        max_attempts: run.max_attempts,
        created_at: DateTime::UNIX_EPOCH,
        deadline: run.deadline,
        ended_at: None,
        budget: RunBudget {
            tokens: run.budget_tokens,
            execution_ms: run.budget_ms,
        },
        spent_tokens: 0,
        spent_ms: 0,
        queue_reason: None,
        review: None,
        waiting_for: None,
        parent_run_id: None,
        root_run_id: None,
        schedule: None,
        cancel_requested: false,
        repeated: false,
    }
}

fn answer(mut view: RunView, submitted: Submitted) -> Result<Accepted, Error> {
    match submitted {
        Submitted::Accepted { place, created_at } => {
            view.created_at = created_at;
            Ok(Accepted {
                run_id: view.run_id,
                repeated: false,
                queued: (place == Place::Queued).then_some(view),
            })
        }
        Submitted::Repeated(run_id) => Ok(Accepted {
            run_id,
            repeated: true,
            queued: None,
        }),
        Submitted::Conflict => Err(tidegate_store::Error::IdempotencyConflict.into()),
        Submitted::TenantInactive => Err(tenant_inactive()),
        Submitted::NoConversation => Err(Error::not_found("conversation")),
        Submitted::DeadlinePassed => Err(deadline_passed()),
    }
}

pub(crate) fn tenant_inactive() -> Error {
    Error::refused(
        Code::TenantSuspended,
        "the tenant is suspended or deleted; an administrator can resume a suspended one with `tidegate tenant resume`",
    )
}

pub(crate) fn deadline_passed() -> Error {
    Error::invalid(
        "deadline",
        "the deadline has passed; give a later one, or none",
    )
}

/// The class of some requirements; descendants of background roots have their own.
pub(crate) async fn class_of(
    engine: &Engine,
    task: &TaskRequirements,
    of_background: bool,
) -> Result<i32, Error> {
    let key = (
        task.tenant.clone(),
        task.capability.clone(),
        task.needs.clone(),
        of_background,
    );
    if let Some(class) = engine.classes().get(&key) {
        return Ok(class);
    }
    let digest = canonical_digest(task).map_err(|_| Error::Internal {
        what: "requirement digest",
    })?;
    let class = engine
        .store()
        .tenant(&task.tenant)
        .requirement_class(task, &digest, of_background)
        .await?;
    let class = class.ok_or_else(|| {
        Error::refused(
            Code::StateConflict,
            format!(
                "the tenant has {CLASSES_PER_TENANT_MAX} different requirements and may not have more; ask for the same ones \
                 again, and put what differs from run to run into the input"
            ),
        )
    })?;
    engine.classes().insert(key, class);
    engine.tasks().insert(class, Some(Arc::new(task.clone())));
    Ok(class)
}

/// What policy grants, lowered where the caller asks for less (R2.4).
pub(crate) fn granted(principal: &Principal, wanted: &Wanted) -> Result<Granted, Error> {
    let grants = principal.grants;
    let (priority, priority_source) =
        grants::priority(grants.priority, wanted.priority).map_err(|most| {
            Error::invalid(
                "priority",
                format!(
                    "a caller can only lower its priority: -{} to {most}",
                    limits::PRIORITY_MAX
                ),
            )
        })?;
    if priority < -limits::PRIORITY_MAX {
        return Err(Error::invalid(
            "priority",
            format!(
                "{priority} is out of bounds: -{} at least",
                limits::PRIORITY_MAX
            ),
        ));
    }
    let service_class = grants::service_class(
        wanted.kind,
        grants.service_class,
        wanted.service_class,
    )
    .map_err(|most| {
        Error::invalid(
            "serviceClass",
            format!("this is more than the {most} that is granted; ask for {most} or lower"),
        )
    })?;
    Ok(Granted {
        priority,
        priority_source,
        service_class,
    })
}

/// What a run is granted.
pub(crate) struct Granted {
    pub priority: i16,
    pub priority_source: PrioritySource,
    pub service_class: ServiceClass,
}

pub(crate) fn check_bounds(wanted: &Wanted) -> Result<(), Error> {
    if let Some(attempts) = wanted.max_attempts
        && !(1..=limits::ATTEMPTS_MAX).contains(&attempts)
    {
        return Err(Error::invalid(
            "maxAttempts",
            format!("{attempts} is out of bounds: 1 to {}", limits::ATTEMPTS_MAX),
        ));
    }
    for (field, value) in [
        ("budget.tokens", wanted.budget.tokens),
        ("budget.executionMs", wanted.budget.execution_ms),
    ] {
        if let Some(value) = value
            && !(1..=limits::BUDGET_MAX).contains(&value)
        {
            return Err(Error::invalid(
                field,
                format!("{value} is out of bounds: 1 to {}", limits::BUDGET_MAX),
            ));
        }
    }
    check_times(wanted)?;
    check_needs(&wanted.needs)?;
    check_key(wanted.idempotency_key.as_deref())?;
    refuse_unstorable("input", &wanted.input)
}

/// The most entries of a list of needs.
const NEEDS_MAX: usize = 64;

pub(crate) fn check_needs(needs: &Needs) -> Result<(), Error> {
    let modalities = needs
        .model
        .as_ref()
        .map_or(0, |model| model.modalities.len());
    for (field, count) in [
        ("inputLabels", needs.input_labels.len()),
        ("tools", needs.tools.len()),
        ("runtimes", needs.runtimes.len()),
        ("resourceScopes", needs.resource_scopes.len()),
        ("allowedRegions", needs.allowed_regions.len()),
        ("model.modalities", modalities),
        ("resources", needs.resources.len()),
    ] {
        if count > NEEDS_MAX {
            return Err(Error::invalid(
                format!("requirements.{field}"),
                format!("{count} entries; at most {NEEDS_MAX}"),
            ));
        }
    }
    check_amounts(needs)?;
    match &needs.model {
        Some(model) if !(0..=limits::BUDGET_MAX).contains(&model.context_tokens) => {
            Err(Error::invalid(
                "requirements.model.contextTokens",
                format!(
                    "{} is out of bounds: 0 to {}",
                    model.context_tokens,
                    limits::BUDGET_MAX
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Amounts that could be reserved, of resources that may be named, each once.
fn check_amounts(needs: &Needs) -> Result<(), Error> {
    let most = Estimates::MAX;
    if let Some(field) = needs.estimates.and_then(|given| given.out_of_bounds()) {
        return Err(Error::invalid(
            format!("requirements.estimates.{field}"),
            format!("1 to {most}; leave it out where nothing is known"),
        ));
    }
    let mut named = HashSet::new();
    for (at, need) in needs.resources.iter().enumerate() {
        let wrong = |field: &str, detail: String| {
            Error::invalid(format!("requirements.resources[{at}].{field}"), detail)
        };
        if !(1..=most).contains(&need.amount) {
            return Err(wrong(
                "amount",
                format!("{} is out of bounds: 1 to {most}", need.amount),
            ));
        }
        if !may_be_named(need.resource.kind()) {
            return Err(wrong(
                "resource",
                "slots of pools, sandboxes and tenants are taken by themselves; name those of a model, a tool or shared ones"
                    .to_owned(),
            ));
        }
        if !named.insert(&need.resource) {
            return Err(wrong("resource", "named twice; give one amount".to_owned()));
        }
    }
    Ok(())
}

/// An input that the built-in executor cannot ask a model is refused where no other pool may serve the requirements.
pub(crate) async fn check_prompt(
    engine: &Engine,
    class: i32,
    task: &TaskRequirements,
    input: &Value,
) -> Result<(), Error> {
    // What this instance's executor does not offer costs no look at the pools.
    let offered = &engine.settings().builtin_capabilities;
    if !offered.contains(&task.capability) || prompt(input).is_ok() {
        return Ok(());
    }
    let builtin_only = engine
        .pools()
        .await?
        .sort_class(class, Some(task))
        .is_builtin_only()
        && engine.pools_now().await?.sort(task).is_builtin_only();
    refuse_no_prompt(builtin_only, input)
}

/// The same where it is known whether only the built-in executor offers the capability.
pub(crate) fn refuse_no_prompt(builtin_only: bool, input: &Value) -> Result<(), Error> {
    if !builtin_only {
        return Ok(());
    }
    match prompt(input) {
        Ok(_) => Ok(()),
        Err(refused) => {
            let field = refused.member.map(|member| format!("input.{member}"));
            let field = field.unwrap_or_else(|| "input".to_owned());
            Err(Error::invalid(field, refused.to_string()))
        }
    }
}

/// Far times are refused so that no arithmetic on them can overflow; whether a time has passed is the database's to say.
fn check_times(wanted: &Wanted) -> Result<(), Error> {
    checks::time("deadline", wanted.deadline, limits::HORIZON_MAX_MS)?;
    checks::time("runAt", wanted.run_at, limits::HORIZON_MAX_MS)?;
    if let (Some(start), Some(end)) = (wanted.run_at, wanted.deadline)
        && start >= end
    {
        return Err(Error::invalid(
            "runAt",
            "the run would start at or after its deadline",
        ));
    }
    Ok(())
}

fn check_key(key: Option<&str>) -> Result<(), Error> {
    let Some(key) = key else { return Ok(()) };
    let fits = (1..=limits::IDEMPOTENCY_KEY_MAX_BYTES).contains(&key.len());
    if fits && key.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(())
    } else {
        Err(Error::invalid(
            "Idempotency-Key",
            format!(
                "1 to {} printable ASCII characters without spaces, for example a UUID",
                limits::IDEMPOTENCY_KEY_MAX_BYTES
            ),
        ))
    }
}

/// PostgreSQL stores no NUL in texts, and readers of JSON have a limit of depth; refused here with the path in place of an
/// error later. A path is made only where it is needed.
pub(crate) fn refuse_unstorable(path: &str, value: &Value) -> Result<(), Error> {
    match fault(value, limits::JSON_DEPTH_MAX) {
        None => Ok(()),
        // The path would be as long as the value is deep.
        Some(Fault::Depth) => Err(Error::invalid(
            path,
            format!(
                "JSON may be nested {} levels deep; send what is deeper as a text",
                limits::JSON_DEPTH_MAX
            ),
        )),
        Some(Fault::Nul { inner }) => Err(Error::invalid(
            format!("{path}{inner}"),
            "texts and field names must not contain the NUL character (U+0000)",
        )),
    }
}

/// Why a value cannot be stored.
enum Fault {
    /// Nested too deep.
    Depth,
    /// A NUL at this path within the value.
    Nul { inner: String },
}

impl Fault {
    fn below(self, step: impl FnOnce() -> String) -> Self {
        match self {
            Self::Depth => Self::Depth,
            Self::Nul { inner } => Self::Nul {
                inner: step() + &inner,
            },
        }
    }
}

fn fault(value: &Value, levels: usize) -> Option<Fault> {
    let nul = |text: &str| {
        text.contains('\0').then(|| Fault::Nul {
            inner: String::new(),
        })
    };
    match value {
        Value::String(text) => nul(text),
        Value::Array(_) | Value::Object(_) if levels == 0 => Some(Fault::Depth),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            Some(fault(item, levels - 1)?.below(|| format!("[{index}]")))
        }),
        Value::Object(fields) => fields.iter().find_map(|(name, item)| {
            nul(name).or_else(|| Some(fault(item, levels - 1)?.below(|| format!(".{name}"))))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Bad input: what cannot be stored, or not be read again, is refused by its place, also where no request was read.
    #[test]
    fn what_cannot_be_stored_is_refused() {
        let field = |value: &Value| {
            let refused = refuse_unstorable("result", value).err()?;
            refused.problem().field
        };
        let nul = json!({"a": [1, {"b": "x\0"}]});
        assert_eq!(field(&nul).as_deref(), Some("result.a[1].b"));
        assert_eq!(field(&json!([{"x\0": 1}])).as_deref(), Some("result[0]"));
        let nested = |levels| (0..levels).fold(json!("x"), |inner, _| json!([inner]));
        assert_eq!(field(&nested(limits::JSON_DEPTH_MAX)), None);
        let deep = nested(limits::JSON_DEPTH_MAX + 1);
        assert_eq!(field(&deep).as_deref(), Some("result"));
    }
}

//! `POST /v1/runs`: a business task (R3.2).

use tidegate_model::{
    Code,
    api::{RunView, SubmitRun},
    principal::KeyScope,
    run::RunKind,
};

use super::accept::{Wanted, accept};
use crate::{Engine, Error, Principal};

/// Accepts a business task; a repeat with the same key and body answers the same run, marked.
pub async fn submit(
    engine: &Engine,
    principal: &Principal,
    request: SubmitRun,
    idempotency_key: Option<String>,
) -> Result<RunView, Error> {
    if !principal.has_scope(KeyScope::RunsBusiness) {
        return Err(Error::refused(
            Code::Forbidden,
            "submitting runs needs a key with scope runs:business; make one with \
             `tidegate key create --scope runs:business`, or use the turns of a conversation",
        ));
    }
    let user = principal.user_of(request.user.clone())?;
    // Another user of the tenant with the same key and body is no repeat.
    let request_digest = engine.body_digest("runs", &(&user, &request))?;
    let accepted = accept(
        engine,
        principal,
        Wanted {
            kind: RunKind::BusinessTask,
            capability: request.capability,
            needs: request.requirements.unwrap_or_default(),
            input: request.input,
            service_class: request.service_class,
            priority: request.priority,
            deadline: request.deadline,
            run_at: request.run_at,
            max_attempts: request.max_attempts,
            budget: request.budget.unwrap_or_default(),
            turn: None,
            user,
            idempotency_key,
            request_digest,
        },
    )
    .await?;
    accepted.view(engine, principal).await
}

/// Accepts a run of a kind that no route grants yet: background roots in this release. In-process callers only (test kit,
/// demo seed); no route and no setting reaches this.
#[doc(hidden)]
pub async fn submit_as(
    engine: &Engine,
    principal: &Principal,
    kind: RunKind,
    request: SubmitRun,
) -> Result<RunView, Error> {
    let user = principal.user_of(request.user.clone())?;
    let request_digest = engine.body_digest(kind.as_str(), &request)?;
    let accepted = accept(
        engine,
        principal,
        Wanted {
            kind,
            capability: request.capability,
            needs: request.requirements.unwrap_or_default(),
            input: request.input,
            service_class: request.service_class,
            priority: request.priority,
            deadline: request.deadline,
            run_at: request.run_at,
            max_attempts: request.max_attempts,
            budget: request.budget.unwrap_or_default(),
            turn: None,
            user,
            idempotency_key: None,
            request_digest,
        },
    )
    .await?;
    accepted.view(engine, principal).await
}

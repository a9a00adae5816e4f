//! The policy generation of the execution scope (R5.3): descriptors of any other one serve nothing.

use tidegate_model::{
    Code, ConfigKind,
    api::{PolicyGeneration, SetPolicyGeneration},
    limits,
    principal::Role,
};
use tidegate_store::pools::epochs::RaiseGeneration;

use crate::{Engine, Error, Principal};

/// The generation in force.
pub async fn policy_generation(
    engine: &Engine,
    principal: &Principal,
) -> Result<PolicyGeneration, Error> {
    principal.require_role(&[Role::SuperAdmin, Role::PoolController])?;
    let scope = &engine.settings().execution_scope;
    Ok(engine.store().policy_generation(scope).await?)
}

/// Raises it, if the caller knows the one before.
pub async fn set_policy_generation(
    engine: &Engine,
    principal: &Principal,
    request: SetPolicyGeneration,
) -> Result<PolicyGeneration, Error> {
    principal.require_operator()?;
    if request.active > limits::POLICY_GENERATION_MAX {
        return Err(Error::invalid(
            "active",
            format!("at most {}", limits::POLICY_GENERATION_MAX),
        ));
    }
    let scope = &engine.settings().execution_scope;
    let written = engine
        .store()
        .raise_policy_generation(scope, request, &principal.author())
        .await?;
    match engine.written(ConfigKind::Pool, written).await {
        RaiseGeneration::InForce => {}
        RaiseGeneration::Other(active) => {
            return Err(Error::refused(
                Code::VersionConflict,
                format!(
                    "policy generation {active} is in force, not {} as expected says; look and try again",
                    request.expected
                ),
            ));
        }
        RaiseGeneration::Lower(active) => {
            return Err(Error::invalid(
                "active",
                format!("policy generation {active} is in force and is never lowered"),
            ));
        }
    }
    engine.claims().wake();
    Ok(PolicyGeneration {
        active: request.active,
    })
}

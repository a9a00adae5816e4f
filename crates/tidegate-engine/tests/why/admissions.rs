//! Admissions: the whole vector or nothing, once per id, given back in every way (R7, R10).

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_engine::{Engine, Error, Principal, admissions, pools, tenants};
use tidegate_model::{
    AdmissionId, Code, Fence, PoolId, TenantId,
    admission::{AdmissionState, EndReason, GrantState},
    api::{
        AdmissionRequirements, AdmissionView, AdmitRequest, EndPhase, ExplainAdmission,
        PutResource, ReleaseAdmission, RenewAdmission, ResourceView, SetEpoch, SetTenantState,
        Settlement,
    },
    contracts::{CapabilityDescriptor, GrantId},
    principal::{Role, TenantState},
};
use tidegate_testkit::lasting_health;

use crate::rig::{World, operator, principal, settings};

pub fn coordinator() -> Principal {
    principal(Role::Coordinator, Some("acme"))
}

pub async fn bound(engine: &Engine, name: &str, capacity: i64) -> ResourceView {
    let name = name.parse().expect("resource");
    admissions::put_resource(engine, &operator(), name, PutResource { capacity })
        .await
        .expect("resource")
}

/// Every counter is the sum of what is held, and this much of it is.
pub async fn expect_held(engine: &Engine, held: &[(&str, i64)]) {
    let audit = admissions::audit_ledger(engine, &operator())
        .await
        .expect("audit");
    assert!(audit.balanced, "{audit:?}");
    for (name, expected) in held {
        let name = name.parse().expect("resource");
        let view = admissions::get_resource(engine, &operator(), &name)
            .await
            .expect("resource");
        assert_eq!(view.in_use, *expected, "{name}");
    }
}

fn asking(requirements: Value) -> AdmissionRequirements {
    let mut written = json!({"capability": "chat"});
    let more: serde_json::Map<String, Value> =
        serde_json::from_value(requirements).expect("members");
    written.as_object_mut().expect("object").extend(more);
    serde_json::from_value(written).expect("requirements")
}

pub fn request(id: AdmissionId, requirements: Value) -> AdmitRequest {
    AdmitRequest {
        admission_id: id,
        requirements: asking(requirements),
        ttl_ms: None,
        if_ledger_version: None,
    }
}

pub async fn admit(engine: &Engine, requirements: Value) -> Result<AdmissionView, Error> {
    let request = request(AdmissionId::new(), requirements);
    admissions::admit(engine, &coordinator(), request).await
}

pub async fn release(engine: &Engine, view: &AdmissionView) -> Result<AdmissionView, Error> {
    let request = ReleaseAdmission {
        fence: view.fence,
        settle: Vec::new(),
    };
    admissions::release(engine, &coordinator(), view.admission_id, request).await
}

pub async fn phase(
    engine: &Engine,
    view: &AdmissionView,
    settle: &[(u16, i64)],
    release: &[u16],
    next: Option<Value>,
) -> Result<AdmissionView, Error> {
    let grant = |index| GrantId {
        admission: view.admission_id,
        index,
    };
    let request = EndPhase {
        fence: view.fence,
        settle: settle
            .iter()
            .map(|&(index, amount)| Settlement {
                grant_id: grant(index),
                amount,
            })
            .collect(),
        release: release.iter().map(|index| grant(*index)).collect(),
        next: next.map(asking),
    };
    admissions::end_phase(engine, &coordinator(), view.admission_id, request).await
}

pub fn code<T: std::fmt::Debug>(refused: Result<T, Error>) -> Code {
    refused.expect_err("refused").code()
}

pub async fn open_pool(world: &World, name: &str, epoch: i64) {
    let pool: PoolId = name.parse().expect("pool");
    let controller = principal(Role::PoolController, None);
    let content = CapabilityDescriptor::new(
        pool.clone(),
        epoch,
        vec!["chat".parse().expect("capability")],
        lasting_health(),
    );
    pools::publish(&world.engine, &controller, &pool, epoch, content)
        .await
        .expect("published");
    let request = SetEpoch {
        expected: (epoch > 1).then_some(epoch - 1),
        active: epoch,
        draining: None,
    };
    pools::set_epoch(&world.engine, &controller, &pool, request)
        .await
        .expect("in force");
}

/// R7.3: every resource of the vector is reserved, or none; what is short is named, in each pool.
#[tokio::test]
async fn the_whole_vector_or_nothing() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    for (name, capacity) in [
        ("pool/builtin", 2),
        ("model/fast", 3),
        ("tenant/acme/tokens", 100),
    ] {
        bound(engine, name, capacity).await;
    }
    let wanted = json!({"estimates": {"tokens": 60}, "resources": [{"resource": "model/fast", "amount": 1}]});
    let first = admit(engine, wanted.clone()).await.expect("admitted");
    assert_eq!(first.state, AdmissionState::Active);
    let grants: Vec<(String, i64, GrantState)> = first
        .grants
        .iter()
        .map(|grant| (grant.resource.to_string(), grant.amount, grant.state))
        .collect();
    let held = |name: &str, amount| (name.to_owned(), amount, GrantState::Held);
    let expected = [
        held("pool/builtin", 1),
        held("model/fast", 1),
        held("tenant/acme/tokens", 60),
    ];
    assert_eq!(grants, expected);

    let refused = admit(engine, wanted).await.expect_err("short").problem();
    assert_eq!(refused.code, Code::ResourceExhausted);
    assert!(refused.retryable && refused.retry_after_ms.is_some());
    let [reason] = refused.reasons.as_slice() else {
        panic!("{refused:?}");
    };
    assert!(
        reason.contains("tenant/acme/tokens") && reason.contains("40 free of 100"),
        "{reason}"
    );
    let all = [
        ("pool/builtin", 1),
        ("model/fast", 1),
        ("tenant/acme/tokens", 60),
    ];
    expect_held(engine, &all).await;
    let more = json!({"estimates": {"tokens": 101}});
    assert_eq!(code(admit(engine, more).await), Code::Unsatisfiable);
    let released = release(engine, &first).await.expect("released");
    assert_eq!(released.state, AdmissionState::Released);
    expect_held(engine, &all.map(|(name, _)| (name, 0))).await;
}

/// R7.1: one id is one admission: repeated it is the same, with other requirements a conflict, used up it stays ended.
#[tokio::test]
async fn an_id_is_one_admission_for_ever() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    bound(engine, "pool/builtin", 1).await;
    let id = AdmissionId::new();
    let own = coordinator();
    let admit = |requirements| admissions::admit(engine, &own, request(id, requirements));
    let first = admit(json!({})).await.expect("admitted");
    let again = admit(json!({})).await.expect("the same");
    assert_eq!(
        (again.fence, again.created_at),
        (first.fence, first.created_at)
    );
    let other = admit(json!({"sandbox": "vm"})).await;
    assert!(matches!(
        code(other),
        Code::Unsatisfiable | Code::AdmissionConflict
    ));
    let other = admit(json!({"estimates": {"tokens": 5}})).await;
    let conflict = other.expect_err("another digest").problem();
    assert_eq!(conflict.code, Code::AdmissionConflict);
    assert_eq!(conflict.field.as_deref(), Some("requirements"));
    // Of another tenant it is another id.
    let globex = principal(Role::Coordinator, Some("globex"));
    let theirs = admissions::admit(engine, &globex, request(id, json!({}))).await;
    assert_eq!(code(theirs), Code::ResourceExhausted);
    let unseen = admissions::get_admission(engine, &globex, id).await;
    assert_eq!(code(unseen), Code::NotFound);

    release(engine, &first).await.expect("released");
    assert_eq!(code(release(engine, &first).await), Code::AdmissionEnded);
    assert_eq!(code(admit(json!({})).await), Code::AdmissionEnded);
    let kept = admissions::get_admission(engine, &coordinator(), id)
        .await
        .expect("kept");
    assert_eq!(kept.end_reason, Some(EndReason::Holder));
    assert!(kept.fence > first.fence, "its end raised the fence");
    expect_held(engine, &[("pool/builtin", 0)]).await;
}

/// R7.3: 32 admitters at once over overlapping vectors: as many as fit, no more, and no error of the database reaches one.
#[tokio::test]
async fn racing_admitters_share_what_there_is() {
    let world = World::new(settings()).await;
    let other = world.instance(settings()).await;
    for (name, capacity) in [("pool/builtin", 20), ("model/a", 9), ("model/b", 9)] {
        bound(&world.engine, name, capacity).await;
    }
    let mut racing = tokio::task::JoinSet::new();
    for at in 0..32 {
        let engine = if at % 2 == 0 {
            world.engine.clone()
        } else {
            other.clone()
        };
        let named = match at % 3 {
            0 => {
                json!([{"resource": "model/a", "amount": 1}, {"resource": "model/b", "amount": 1}])
            }
            1 => json!([{"resource": "model/b", "amount": 1}]),
            _ => json!([{"resource": "model/a", "amount": 1}]),
        };
        racing.spawn(async move { admit(&engine, json!({"resources": named})).await });
    }
    let mut admitted = 0;
    while let Some(outcome) = racing.join_next().await {
        match outcome.expect("no panic") {
            Ok(_) => admitted += 1,
            Err(error) => assert_eq!(error.code(), Code::ResourceExhausted, "{error}"),
        }
    }
    assert!((9..=18).contains(&admitted), "{admitted}");
    let audit = admissions::audit_ledger(&world.engine, &operator())
        .await
        .expect("audit");
    assert!(
        audit.balanced && audit.over_capacity.is_empty(),
        "{audit:?}"
    );
}

/// R7.5: a shrunk resource takes nothing away and admits nothing new until use falls below it; a removed one goes with its
/// last grant.
#[tokio::test]
async fn a_shrunk_resource_takes_nothing_away() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    bound(engine, "pool/builtin", 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(admit(engine, json!({})).await.expect("admitted"));
    }
    let shrunk = bound(engine, "pool/builtin", 2).await;
    assert_eq!((shrunk.in_use, shrunk.free), (3, 0));
    assert!(shrunk.over_capacity_since.is_some());
    let audit = admissions::audit_ledger(engine, &operator())
        .await
        .expect("audit");
    assert!(
        audit.balanced && audit.over_capacity.len() == 1,
        "{audit:?}"
    );
    release(engine, &held.remove(0)).await.expect("released");
    assert_eq!(
        code(admit(engine, json!({})).await),
        Code::ResourceExhausted
    );
    release(engine, &held.remove(0)).await.expect("released");
    held.push(admit(engine, json!({})).await.expect("below the bound"));

    let name = "pool/builtin".parse().expect("resource");
    let removed = admissions::remove_resource(engine, &operator(), &name)
        .await
        .expect("removed");
    assert!(removed.removed && removed.in_use == 2);
    let nothing_new = code(admit(engine, json!({})).await);
    assert_eq!(
        nothing_new,
        Code::ResourceExhausted,
        "until its last grant is back"
    );
    for view in held {
        release(engine, &view).await.expect("released");
    }
    let gone = admissions::get_resource(engine, &operator(), &name).await;
    assert_eq!(code(gone), Code::NotFound);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let free = admit(engine, json!({})).await.expect("it bounds nothing");
    assert!(free.grants.is_empty());
}

/// R7.5: a time that has run out is over by the database's clock, whoever comes first: the sweep or a late holder.
#[tokio::test]
async fn a_late_holder_changes_nothing() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    bound(engine, "pool/builtin", 2).await;
    let short = |id| AdmitRequest {
        ttl_ms: Some(1_000),
        ..request(id, json!({}))
    };
    let (late, swept) = (AdmissionId::new(), AdmissionId::new());
    let late = admissions::admit(engine, &coordinator(), short(late))
        .await
        .expect("admitted");
    let swept = admissions::admit(engine, &coordinator(), short(swept))
        .await
        .expect("admitted");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let renew = RenewAdmission {
        fence: late.fence,
        ttl_ms: None,
    };
    let refused = admissions::renew(engine, &coordinator(), late.admission_id, renew).await;
    assert_eq!(code(refused), Code::AdmissionEnded);
    expect_held(engine, &[("pool/builtin", 1)]).await;
    assert_eq!(admissions::expire::expire(engine).await.expect("sweep"), 1);
    assert_eq!(code(release(engine, &swept).await), Code::AdmissionEnded);
    expect_held(engine, &[("pool/builtin", 0)]).await;
    for id in [late.admission_id, swept.admission_id] {
        let view = admissions::get_admission(engine, &coordinator(), id)
            .await
            .expect("kept");
        assert_eq!(view.state, AdmissionState::Expired);
        assert_eq!(view.end_reason, Some(EndReason::TimeOut));
        assert!(view.fence > late.fence.max(swept.fence));
    }
    let live = admit(engine, json!({})).await.expect("admitted");
    let renew = RenewAdmission {
        fence: live.fence,
        ttl_ms: Some(3_600_000),
    };
    let renewed = admissions::renew(engine, &coordinator(), live.admission_id, renew)
        .await
        .expect("renewed");
    assert!(renewed.expires_at > live.expires_at && renewed.fence == live.fence);
    let old = Fence {
        number: live.fence.number - 1,
        ..live.fence
    };
    let stale = release(engine, &AdmissionView { fence: old, ..live }).await;
    assert_eq!(code(stale), Code::LeaseLost);
}

/// R10.1, R10.2: a phase settles once, use above a grant is held in full and admits nothing new, the last grant ends it.
#[tokio::test]
async fn a_phase_settles_what_was_used() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    bound(engine, "tenant/acme/tokens", 100).await;
    bound(engine, "model/fast", 1).await;
    let wanted = json!({"estimates": {"tokens": 50}, "resources": [{"resource": "model/fast", "amount": 1}]});
    let view = admit(engine, wanted).await.expect("admitted");
    let place = |view: &AdmissionView, name: &str| {
        let grant = view
            .grants
            .iter()
            .find(|grant| grant.resource.as_str() == name);
        grant.expect("grant").grant_id.index
    };
    let (tokens, model) = (
        place(&view, "tenant/acme/tokens"),
        place(&view, "model/fast"),
    );
    let none = phase(engine, &view, &[(9, 1)], &[model], None).await;
    assert_eq!(code(none), Code::InvalidArgument);
    expect_held(engine, &[("model/fast", 1), ("tenant/acme/tokens", 50)]).await;

    let settled = phase(engine, &view, &[(tokens, 120)], &[model], None)
        .await
        .expect("settled");
    assert!(settled.grants[usize::from(tokens)].overuse);
    assert_eq!(
        settled.grants[usize::from(model)].state,
        GrantState::Released
    );
    expect_held(engine, &[("model/fast", 0), ("tenant/acme/tokens", 120)]).await;
    let more = admit(engine, json!({"estimates": {"tokens": 1}})).await;
    assert_eq!(code(more), Code::ResourceExhausted);
    phase(engine, &view, &[(tokens, 3)], &[], None)
        .await
        .expect("nothing");
    expect_held(engine, &[("tenant/acme/tokens", 120)]).await;
    let over = phase(engine, &view, &[], &[tokens], None)
        .await
        .expect("the last one");
    assert_eq!(over.state, AdmissionState::Released);
    assert_eq!(over.end_reason, Some(EndReason::LastGrant));
    expect_held(engine, &[("tenant/acme/tokens", 0)]).await;
}

/// R10.1, R18.2: the next phase is admitted anew under the epoch in force; where it is refused nothing is held any more.
#[tokio::test]
async fn a_next_phase_carries_no_permission_over() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    open_pool(&world, "gpu", 1).await;
    bound(engine, "pool/gpu", 1).await;
    bound(engine, "pool/builtin", 0).await;
    bound(engine, "model/fast", 1).await;
    let first = admit(engine, json!({})).await.expect("admitted");
    assert_eq!((first.pool_id.as_str(), first.descriptor_epoch), ("gpu", 1));
    open_pool(&world, "gpu", 2).await;
    let next = json!({"resources": [{"resource": "model/fast", "amount": 1}]});
    let second = phase(engine, &first, &[], &[], Some(next.clone()))
        .await
        .expect("next phase");
    assert_eq!(second.descriptor_epoch, 2);
    assert!(second.fence > first.fence);
    expect_held(engine, &[("pool/gpu", 1), ("model/fast", 1)]).await;
    let late = phase(engine, &first, &[], &[], Some(next)).await;
    assert_eq!(code(late), Code::LeaseLost, "the fence of the phase before");
    // A repeat of what was asked for first finds it in its later phase.
    let again = admissions::admit(
        engine,
        &coordinator(),
        request(first.admission_id, json!({})),
    )
    .await;
    assert_eq!(again.expect("the same").fence, second.fence);

    bound(engine, "model/fast", 0).await;
    let wanted =
        json!({"estimates": {"tokens": 1}, "resources": [{"resource": "model/fast", "amount": 1}]});
    let refused = phase(engine, &second, &[], &[], Some(wanted)).await;
    assert!(matches!(
        code(refused),
        Code::ResourceExhausted | Code::Unsatisfiable
    ));
    expect_held(engine, &[("pool/gpu", 0), ("model/fast", 0)]).await;
    let view = admissions::get_admission(engine, &coordinator(), first.admission_id)
        .await
        .expect("kept");
    assert_eq!(view.end_reason, Some(EndReason::PhaseRefused));
}

/// R6.4, R6.5: a dry run says every pool with what blocks it, the nearest one and the smallest change, and reserves nothing;
/// an admission can be made conditional on the version that it was computed at.
#[tokio::test]
async fn an_explanation_reserves_nothing() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    open_pool(&world, "gpu", 1).await;
    bound(engine, "pool/builtin", 1).await;
    bound(engine, "pool/gpu", 4).await;
    let explain = |requirements| async move {
        let request = ExplainAdmission {
            requirements: asking(requirements),
        };
        admissions::explain(engine, &coordinator(), request)
            .await
            .expect("explained")
    };
    let free = explain(json!({})).await;
    assert!(free.admits && free.code.is_none());
    assert_eq!(
        free.nearest.as_ref().map(PoolId::as_str),
        Some("gpu"),
        "the most is left there"
    );
    expect_held(engine, &[("pool/builtin", 0), ("pool/gpu", 0)]).await;
    let stale = AdmitRequest {
        if_ledger_version: Some(free.ledger_version - 1),
        ..request(AdmissionId::new(), json!({}))
    };
    assert_eq!(
        code(admissions::admit(engine, &coordinator(), stale).await),
        Code::VersionConflict
    );
    let current = AdmitRequest {
        if_ledger_version: Some(free.ledger_version),
        ..request(AdmissionId::new(), json!({}))
    };
    let view = admissions::admit(engine, &coordinator(), current)
        .await
        .expect("admitted");
    assert_eq!(view.pool_id.as_str(), "gpu");

    for name in ["pool/builtin", "pool/gpu"] {
        bound(engine, name, 1).await;
    }
    admit(engine, json!({})).await.expect("admitted");
    let full = explain(json!({})).await;
    assert_eq!(full.code, Some(Code::ResourceExhausted));
    assert!(
        full.remedy
            .expect("remedy")
            .contains("wait until 1 more of pool/")
    );
    assert!(
        full.pools
            .iter()
            .all(|pool| !pool.admits && pool.short.len() == 1)
    );
    let never = explain(json!({"sandbox": "vm"})).await;
    assert_eq!(never.code, Some(Code::Unsatisfiable));
    assert!(never.pools.iter().all(|pool| !pool.blocked_by.is_empty()));
}

/// R2.6, R7.4: a tenant that is suspended has nothing new admitted; one that is erased gives everything back.
#[tokio::test]
async fn a_tenant_that_ends_holds_nothing() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    bound(engine, "pool/builtin", 2).await;
    let id = admit(engine, json!({}))
        .await
        .expect("admitted")
        .admission_id;
    let tenant: TenantId = "acme".parse().expect("tenant");
    let operator = operator();
    let state = |state| tenants::set_state(engine, &operator, &tenant, SetTenantState { state });
    state(TenantState::Suspended).await.expect("suspended");
    assert_eq!(code(admit(engine, json!({})).await), Code::TenantSuspended);
    // What it has goes on.
    expect_held(engine, &[("pool/builtin", 1)]).await;
    state(TenantState::Deleted).await.expect("deleted");
    expect_held(engine, &[("pool/builtin", 0)]).await;
    let gone = engine
        .store()
        .tenant(&tenant)
        .admission(id)
        .await
        .expect("look");
    assert_eq!(gone, None);
}

/// Bad input: what could not be reserved is refused with its field, and nothing is stored.
#[tokio::test]
async fn amounts_and_names_are_checked() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    bound(engine, "model/fast", 1).await;
    let named = |resource: &str, amount: i64| json!({"resources": [{"resource": resource, "amount": amount}]});
    for (wanted, expected, field) in [
        (
            named("model/fast", 0),
            Code::InvalidArgument,
            "requirements.resources[0].amount",
        ),
        (
            named("model/fast", -1),
            Code::InvalidArgument,
            "requirements.resources[0].amount",
        ),
        (
            named("model/fast", i64::MAX),
            Code::InvalidArgument,
            "requirements.resources[0].amount",
        ),
        (
            named("pool/builtin", 1),
            Code::InvalidArgument,
            "requirements.resources[0].resource",
        ),
        (
            named("tenant/globex/slots", 1),
            Code::InvalidArgument,
            "requirements.resources[0].resource",
        ),
        (
            named("model/none", 1),
            Code::Unsatisfiable,
            "requirements.resources",
        ),
        (
            json!({"estimates": {"tokens": 0}}),
            Code::InvalidArgument,
            "requirements.estimates.tokens",
        ),
        (
            json!({"estimates": {"durationMs": -5}}),
            Code::InvalidArgument,
            "requirements.estimates.durationMs",
        ),
    ] {
        let problem = admit(engine, wanted.clone())
            .await
            .expect_err("refused")
            .problem();
        assert_eq!(
            (problem.code, problem.field.as_deref()),
            (expected, Some(field)),
            "{wanted}"
        );
    }
    expect_held(engine, &[("model/fast", 0)]).await;
}

/// Bad input: times and capacities out of bounds.
#[tokio::test]
async fn times_and_capacities_are_checked() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    for ttl_ms in [0, -1, 999, 3_600_001, i64::MAX] {
        let request = AdmitRequest {
            ttl_ms: Some(ttl_ms),
            ..request(AdmissionId::new(), json!({}))
        };
        let problem = admissions::admit(engine, &coordinator(), request)
            .await
            .expect_err("refused")
            .problem();
        assert_eq!(problem.field.as_deref(), Some("ttlMs"));
    }
    let name = || "model/fast".parse().expect("resource");
    for capacity in [-1, i64::MAX] {
        let refused =
            admissions::put_resource(engine, &operator(), name(), PutResource { capacity }).await;
        assert_eq!(code(refused), Code::InvalidArgument);
    }
}

/// R7.6: calls of one moment share transactions; a lone one is a transaction of its own, at once.
#[tokio::test]
async fn calls_of_one_moment_share_a_transaction() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    bound(engine, "pool/builtin", 100).await;
    let first = admit(engine, json!({})).await.expect("admitted");
    let lone = admit(engine, json!({})).await.expect("admitted");
    assert_eq!(lone.ledger_version, first.ledger_version + 1);
    let calls = (0..60).map(|_| admit(engine, json!({})));
    let all = futures::future::join_all(calls).await;
    let versions: std::collections::BTreeSet<i64> = all
        .into_iter()
        .map(|view| view.expect("admitted").ledger_version)
        .collect();
    assert!(versions.len() <= 20, "{versions:?}");
}

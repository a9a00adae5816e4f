//! Signed grants: worth what ledger and pool say now (R9.1).

use serde_json::{Value, json};
use tidegate_engine::{admissions, pools};
use tidegate_model::{
    api::{AdmissionView, RevokeEpoch, VerifyGrant},
    principal::Role,
};

use crate::{
    admissions::{admit, bound, coordinator, open_pool, phase, release},
    rig::{World, operator, principal, settings},
};

/// A pool `gpu` that admits, and a model of which each admission takes two.
struct Desk(World);

impl Desk {
    async fn new() -> Self {
        let world = World::new(settings()).await;
        open_pool(&world, "gpu", 1).await;
        bound(&world.engine, "pool/gpu", 4).await;
        bound(&world.engine, "pool/builtin", 0).await;
        bound(&world.engine, "model/fast", 5).await;
        Self(world)
    }

    fn wanted() -> Value {
        json!({"resources": [{"resource": "model/fast", "amount": 2}]})
    }

    async fn admitted(&self) -> AdmissionView {
        let view = admit(&self.0.engine, Self::wanted()).await;
        self.signed(view.expect("admitted")).await
    }

    async fn signed(&self, view: AdmissionView) -> AdmissionView {
        let signed = admissions::signed(&self.0.engine, &coordinator(), view).await;
        signed.expect("signed")
    }

    /// Why a grant may not be consumed; empty where it may.
    async fn refusal(&self, view: &AdmissionView, resource: &str, amount: u64) -> String {
        let request = VerifyGrant {
            grant: view.grant.clone().expect("a grant"),
            resource: resource.parse().expect("resource"),
            amount,
            calls: 0,
        };
        let (engine, id) = (&self.0.engine, view.admission_id);
        let verdict = admissions::verify(engine, &coordinator(), id, request).await;
        let verdict = verdict.expect("verdict");
        assert_eq!(verdict.valid, verdict.reason.is_none());
        verdict.reason.unwrap_or_default()
    }
}

/// R9.1: a grant is good for what it names, of its own admission, and is shown to who holds it alone.
#[tokio::test]
async fn a_grant_is_good_for_what_it_names() {
    let desk = Desk::new().await;
    let view = desk.admitted().await;
    assert_eq!(desk.refusal(&view, "model/fast", 2).await, "");
    assert_eq!(desk.refusal(&view, "model/fast", 3).await, "amount_above");
    assert_eq!(desk.refusal(&view, "model/other", 1).await, "not_granted");
    let other = desk.admitted().await;
    let borrowed = AdmissionView {
        grant: other.grant,
        ..view.clone()
    };
    let refusal = desk.refusal(&borrowed, "model/fast", 1).await;
    assert_eq!(refusal, "other_admission");
    let admin = principal(Role::TenantAdmin, Some("acme"));
    let bare = AdmissionView {
        grant: None,
        ..view
    };
    let shown = admissions::signed(&desk.0.engine, &admin, bare).await;
    assert_eq!(shown.expect("shown").grant, None);
}

/// R9.1, R7.5: what was given back, a later phase and the end of the admission are refused at once.
#[tokio::test]
async fn a_grant_is_worth_what_the_ledger_holds() {
    let desk = Desk::new().await;
    let engine = &desk.0.engine;
    let view = desk.admitted().await;
    let mut grants = view.grants.iter();
    let model = grants.find(|grant| grant.resource.as_str() == "model/fast");
    let model = model.expect("grant").grant_id.index;
    let back = phase(engine, &view, &[], &[model], None).await;
    back.expect("given back");
    assert_eq!(desk.refusal(&view, "model/fast", 1).await, "given_back");
    let later = phase(engine, &view, &[], &[], Some(Desk::wanted())).await;
    let later = desk.signed(later.expect("next")).await;
    assert_eq!(desk.refusal(&view, "model/fast", 1).await, "fence_stale");
    assert_eq!(desk.refusal(&later, "model/fast", 1).await, "");
    release(engine, &later).await.expect("released");
    let over = desk.refusal(&later, "model/fast", 1).await;
    assert_eq!(over, "admission_ended");
}

/// R9.1, R18.3: the next consumption under a revoked epoch fails, although the admission is held.
#[tokio::test]
async fn a_grant_of_a_revoked_epoch_is_worth_nothing() {
    let desk = Desk::new().await;
    let view = desk.admitted().await;
    assert_eq!(desk.refusal(&view, "model/fast", 1).await, "");
    let pool = "gpu".parse().expect("pool");
    let revoke = RevokeEpoch { epoch: 1 };
    let revoked = pools::revoke_epoch(&desk.0.engine, &operator(), &pool, revoke).await;
    revoked.expect("revoked");
    let refusal = desk.refusal(&view, "model/fast", 1).await;
    assert_eq!(refusal, "epoch_withdrawn");
}

/// R9.1: an admission that holds nothing bounded, or more than a grant can name, is admitted and has no grant.
#[tokio::test]
async fn what_no_grant_can_name_is_admitted_all_the_same() {
    let world = World::new(settings()).await;
    let signed = async |wanted| {
        let view = admit(&world.engine, wanted).await.expect("admitted");
        let signed = admissions::signed(&world.engine, &coordinator(), view).await;
        signed.expect("answered")
    };
    let nothing = signed(json!({})).await;
    assert_eq!((nothing.grants.len(), nothing.grant), (0, None));
    bound(&world.engine, "pool/builtin", 9).await;
    let mut named = Vec::new();
    for number in 0..64 {
        let name = format!("shared/r{number}");
        bound(&world.engine, &name, 1).await;
        named.push(json!({"resource": name, "amount": 1}));
    }
    let large = signed(json!({"resources": named})).await;
    assert_eq!((large.grants.len(), large.grant), (65, None));
}

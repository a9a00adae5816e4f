//! What a phase may give back, and what follows it (R10.1).

use serde_json::json;
use tidegate_engine::admissions;
use tidegate_model::{AdmissionId, Code, api::AdmitRequest};

use crate::{
    admissions::{admit, bound, code, coordinator, expect_held, phase, request},
    rig::{World, settings},
};

/// R7.3, R10.1: slots go with the admission and not before: who could give one back, or settle it, would escape the bound of
/// its tenant or close a pool for others.
#[tokio::test]
async fn a_slot_is_held_as_long_as_the_admission() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    for (name, capacity) in [
        ("pool/builtin", 9),
        ("tenant/acme/slots", 1),
        ("model/fast", 1),
    ] {
        bound(engine, name, capacity).await;
    }
    let wanted = json!({"resources": [{"resource": "model/fast", "amount": 1}]});
    let view = admit(engine, wanted).await.expect("admitted");
    for grant in &view.grants {
        let (place, name) = (grant.grant_id.index, grant.resource.as_str());
        let refused = [
            phase(engine, &view, &[], &[place], None).await,
            phase(engine, &view, &[(place, 0)], &[], None).await,
            phase(engine, &view, &[(place, 1_000)], &[], None).await,
        ];
        let codes: Vec<Code> = refused
            .into_iter()
            .filter_map(Result::err)
            .map(|error| error.code())
            .collect();
        if name == "model/fast" {
            assert!(codes.is_empty(), "{codes:?}");
        } else {
            assert_eq!(codes, [Code::InvalidArgument; 3], "{name}");
        }
    }
    expect_held(
        engine,
        &[
            ("pool/builtin", 1),
            ("tenant/acme/slots", 1),
            ("model/fast", 0),
        ],
    )
    .await;
    assert_eq!(
        code(admit(engine, json!({})).await),
        Code::ResourceExhausted
    );
}

/// R10.1: a next phase lasts as long as its admission was to, and one that no pool could serve ends it like any other refusal.
#[tokio::test]
async fn a_next_phase_keeps_the_time_of_its_admission() {
    let world = World::new(settings()).await;
    let engine = &world.engine;
    bound(engine, "pool/builtin", 2).await;
    let long = AdmitRequest {
        ttl_ms: Some(600_000),
        ..request(AdmissionId::new(), json!({}))
    };
    let first = admissions::admit(engine, &coordinator(), long)
        .await
        .expect("admitted");
    let second = phase(engine, &first, &[], &[], Some(json!({})))
        .await
        .expect("next");
    assert!(second.expires_at >= first.expires_at);
    let twice = phase(engine, &second, &[], &[0, 0], None).await;
    let problem = twice.expect_err("named twice").problem();
    assert_eq!(problem.field.as_deref(), Some("release[1]"));
    let never = phase(engine, &second, &[], &[], Some(json!({"sandbox": "vm"}))).await;
    let problem = never.expect_err("refused").problem();
    assert_eq!(
        (problem.code, problem.field.as_deref()),
        (Code::Unsatisfiable, Some("next"))
    );
    let detail = problem.detail.expect("detail");
    assert!(detail.contains("the admission is released"), "{detail}");
    expect_held(engine, &[("pool/builtin", 0)]).await;
}

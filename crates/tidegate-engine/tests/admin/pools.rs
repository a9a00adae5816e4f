use serde_json::json;
use tidegate_engine::pools;
use tidegate_model::{
    Capability, Code, api::SetEpoch, contracts::CapabilityDescriptor, principal::Role,
};

use crate::rig::{World, as_role, id, operator, refused};

fn descriptor(epoch: i64, capabilities: &[&str]) -> CapabilityDescriptor {
    CapabilityDescriptor::new(
        id("gpu"),
        epoch,
        capabilities.iter().map(|name| id(name)).collect(),
        tidegate_testkit::lasting_health(),
    )
}

/// R5.1: immutable once published; the same content again is a repeat.
#[tokio::test]
async fn a_descriptor_never_changes() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let controller = as_role(Role::PoolController, None);
    let publish = async |epoch, content| {
        pools::publish(&engine, &controller, &id("gpu"), epoch, content).await
    };
    let first = publish(1, descriptor(1, &["chat", "ocr"])).await.unwrap();
    assert!(first.digest.starts_with("sha256:"));
    let revision = engine.store().last_revision().await.unwrap();
    assert_eq!(
        publish(1, descriptor(1, &["ocr", "chat"])).await.unwrap(),
        first,
        "lists are sets"
    );
    assert_eq!(engine.store().last_revision().await.unwrap(), revision);
    assert_eq!(
        refused(publish(1, descriptor(1, &["chat"])).await),
        Code::VersionConflict
    );
    for (epoch, content, field) in [
        (2, descriptor(3, &["chat"]), "descriptorEpoch"),
        (0, descriptor(0, &["chat"]), "descriptorEpoch"),
        (
            i64::MAX - 1,
            descriptor(i64::MAX - 1, &["chat"]),
            "descriptorEpoch",
        ),
        (2, descriptor(2, &[]), "capabilities"),
        (2, descriptor(2, &["chat", "chat"]), "capabilities[1]"),
        (
            2,
            CapabilityDescriptor {
                pool_id: id("cpu"),
                ..descriptor(2, &["chat"])
            },
            "poolId",
        ),
    ] {
        let error = publish(epoch, content).await.unwrap_err();
        assert_eq!(error.problem().field.as_deref(), Some(field));
    }
    for change in [
        "UPDATE pool_descriptors SET epoch = 9",
        "DELETE FROM pool_descriptors",
    ] {
        assert!(
            sqlx::query(change).execute(world.db.pool()).await.is_err(),
            "{change}"
        );
    }
}

/// R5.3: compare-and-set to a published epoch, never lowered.
#[tokio::test]
async fn an_epoch_only_rises_and_one_of_two_wins() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let controller = as_role(Role::PoolController, None);
    for epoch in 1..=3 {
        let content = descriptor(epoch, &["chat"]);
        pools::publish(&engine, &controller, &id("gpu"), epoch, content)
            .await
            .unwrap();
    }
    let set = async |expected, active| {
        let request = SetEpoch {
            expected,
            active,
            draining: None,
        };
        pools::set_epoch(&engine, &controller, &id("gpu"), request).await
    };
    // None is in force.
    assert_eq!(refused(set(Some(1), 2).await), Code::VersionConflict);
    let view = set(None, 1).await.unwrap();
    assert_eq!(
        (view.active_descriptor_epoch, view.epochs.len()),
        (Some(1), 3)
    );
    assert_eq!(view.descriptor, Some(descriptor(1, &["chat"])));
    let (two, three) = tokio::join!(set(Some(1), 2), set(Some(1), 3));
    assert!(two.is_ok() != three.is_ok(), "one compare-and-set wins");
    let loser = two.err().or(three.err()).unwrap();
    assert_eq!(loser.code(), Code::VersionConflict);
    let active = pools::list(&engine, &operator()).await.unwrap();
    let active = active
        .iter()
        .find(|pool| pool.pool_id == id("gpu"))
        .unwrap()
        .active_descriptor_epoch;
    let below = set(active, 1).await.unwrap_err();
    assert!(below.to_string().contains("never lowered"), "{below}");
    let ahead = set(active, 99).await.unwrap_err().problem().field;
    assert_eq!(ahead.as_deref(), Some("active"));
    let ghost = SetEpoch {
        expected: None,
        active: 1,
        draining: None,
    };
    let ghost = pools::set_epoch(&engine, &controller, &id("ghost"), ghost).await;
    assert_eq!(refused(ghost), Code::NotFound);
}

/// R5.4: the built-in executor's pool is published by the server; a new epoch only where what it offers changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_builtin_pool_follows_the_settings() {
    let world = World::new().await;
    let starts = (0..4).map(|_| world.engine(World::settings()));
    let engines = futures::future::join_all(starts).await;
    let builtin = async || {
        let all = pools::list(&engines[0], &operator()).await.unwrap();
        all.into_iter()
            .find(|pool| pool.pool_id == id("builtin"))
            .unwrap()
    };
    let view = builtin().await;
    assert_eq!(
        (view.active_descriptor_epoch, view.epochs.len()),
        (Some(1), 1)
    );
    assert_eq!(view.descriptor.unwrap().capabilities, [Capability::chat()]);
    let wider = tidegate_engine::settings::Settings {
        builtin_capabilities: vec![id("ocr"), Capability::chat()],
        ..World::settings()
    };
    world.engine(wider.clone()).await;
    world.engine(wider).await;
    let view = builtin().await;
    assert_eq!(
        (view.active_descriptor_epoch, view.epochs.len()),
        (Some(2), 2)
    );
    let offered = view.descriptor.unwrap().capabilities;
    assert_eq!(offered, [Capability::chat(), id("ocr")]);
    let controller = as_role(Role::PoolController, None);
    let content = CapabilityDescriptor {
        pool_id: id("builtin"),
        ..descriptor(3, &["chat"])
    };
    let meddling = pools::publish(&engines[0], &controller, &id("builtin"), 3, content).await;
    assert_eq!(refused(meddling), Code::Forbidden);
}

/// Bad input: a move without `expected` is told what its absence means; what can be no epoch is refused before that.
#[tokio::test]
async fn a_move_without_expected_is_told_what_that_means() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let controller = as_role(Role::PoolController, None);
    let content = descriptor(1, &["chat"]);
    let published = pools::publish(&engine, &controller, &id("gpu"), 1, content).await;
    published.unwrap();
    let set = async |expected, active| {
        pools::set_epoch(
            &engine,
            &controller,
            &id("gpu"),
            SetEpoch {
                expected,
                active,
                draining: None,
            },
        )
        .await
    };
    set(None, 1).await.unwrap();
    for (expected, said) in [
        (None, "without expected only a pool that has none"),
        (Some(7), "is 1; not 7 as expected says"),
    ] {
        let problem = set(expected, 99).await.unwrap_err().problem();
        assert_eq!(problem.code, Code::VersionConflict);
        let detail = problem.detail.unwrap();
        assert!(detail.contains(said), "{detail}");
    }
    for active in [0, -1, i64::MIN] {
        let problem = set(None, active).await.unwrap_err().problem();
        assert_eq!(problem.field.as_deref(), Some("active"), "{active}");
    }
}

/// Members of a descriptor that cannot be meant, with the field that is named.
fn bad_members() -> Vec<(&'static str, serde_json::Value, &'static str)> {
    let tool = json!({"name": "web/search", "version": "1.0.0", "schemaDigest": format!("sha256:{}", "0".repeat(64))});
    let gate = |capability: &str, until: &str| json!({"capability": capability, "passedAt": "2026-01-01T00:00:00Z", "validUntil": until});
    let span = |from: &str, until: &str| json!({"checkedAt": from, "validUntil": until});
    vec![
        ("policyGeneration", json!(0), "policyGeneration"),
        ("labels", json!(["pii", "pii"]), "labels[1]"),
        ("regions", json!(["eu", "us", "eu"]), "regions[2]"),
        ("tools", json!([tool, tool]), "tools[1]"),
        (
            "resourceScopes",
            json!((0..1_001).map(|n| format!("repo:{n}")).collect::<Vec<_>>()),
            "resourceScopes",
        ),
        (
            "schemas",
            json!([{"capability": "ocr", "task": "*", "result": "*"}]),
            "schemas",
        ),
        (
            "qualityGates",
            json!([gate("ocr", "2027-01-01T00:00:00Z")]),
            "qualityGates",
        ),
        (
            "qualityGates",
            json!([gate("chat", "2025-01-01T00:00:00Z")]),
            "qualityGates[0].validUntil",
        ),
        (
            "health",
            span("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            "health.validUntil",
        ),
        (
            "health",
            span("1900-01-01T00:00:00Z", "1999-01-01T00:00:00Z"),
            "health.validUntil",
        ),
        ("expiresAt", json!("+262142-01-01T00:00:00Z"), "expiresAt"),
        (
            "model",
            json!({"contextTokens": 0, "modalities": []}),
            "model.contextTokens",
        ),
        (
            "model",
            json!({"contextTokens": 1, "modalities": ["text", "image", "text"]}),
            "model.modalities[2]",
        ),
        ("runtimeDigest", json!(""), "runtimeDigest"),
    ]
}

/// R5.1, Bad input: each member of a descriptor that cannot be meant is named; nothing is published.
#[tokio::test]
async fn a_descriptor_that_cannot_be_meant_is_refused_by_field() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let controller = as_role(Role::PoolController, None);
    for (member, value, field) in bad_members() {
        let mut written = serde_json::to_value(descriptor(1, &["chat"])).unwrap();
        written[member] = value;
        let content = serde_json::from_value(written).unwrap();
        let error = pools::publish(&engine, &controller, &id("gpu"), 1, content)
            .await
            .unwrap_err();
        assert_eq!(error.problem().field.as_deref(), Some(field));
    }
    assert!(
        !pools::list(&engine, &controller)
            .await
            .unwrap()
            .iter()
            .any(|pool| pool.pool_id == id("gpu"))
    );
}

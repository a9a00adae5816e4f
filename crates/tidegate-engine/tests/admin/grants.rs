use std::{sync::Arc, time::Duration};

use chrono::{TimeDelta, Utc};
use tidegate_engine::{
    Engine,
    grants::{self, LIFE_MAX, VerifyError},
    retention::prune::{Keep, pass},
    secrets::{self, Keyring, Servers},
    settings::Settings,
};
use tidegate_grants::{Demand, GrantProblem, SignedGrant};
use tidegate_model::{
    AdmissionId, Code, Fence, InstanceId,
    api::{GrantKeyState, GrantKeyView},
    contracts::{AdmissionGrant, GrantId, GrantedAmount},
};
use tidegate_store::Author;

use crate::rig::{World, eventually, id, operator, refused, store_at};

fn grant(seconds: i64) -> AdmissionGrant {
    let admission = AdmissionId::new();
    AdmissionGrant {
        admission_id: admission,
        tenant_id: id("acme"),
        pool_id: id("builtin"),
        descriptor_epoch: 1,
        policy_generation: 1,
        fence: Fence {
            generation: 1,
            number: 5,
        },
        grants: vec![GrantedAmount {
            grant_id: GrantId {
                admission,
                index: 0,
            },
            resource: id("model/default"),
            amount: 2,
        }],
        run_id: None,
        issued_at: None,
        #[expect(
            clippy::disallowed_methods,
            reason = "as a ledger would ask the database"
        )]
        expires_at: Utc::now() + TimeDelta::seconds(seconds),
    }
}

fn demand(amount: u64) -> Demand {
    Demand::of(id("model/default"), amount, 1)
}

/// Whether a token is good on an instance, else the word for why not.
async fn verdict(engine: &Engine, token: &SignedGrant) -> &'static str {
    match grants::verify(engine, token.as_str(), &demand(1)).await {
        Ok(_) => "good",
        Err(VerifyError::Problem(problem)) => problem.word(),
        Err(VerifyError::Engine(error)) => panic!("{error}"),
    }
}

/// The key that a token names.
fn key_of(token: &SignedGrant) -> u32 {
    tidegate_grants::read_unverified(token.as_str())
        .unwrap()
        .key
        .0
}

async fn states(engine: &Engine) -> Vec<(u32, GrantKeyState)> {
    let keys = grants::list(engine, &operator()).await.unwrap().items;
    let state = |key: &GrantKeyView| (key.published.key_id.0, key.state);
    keys.iter().map(state).collect()
}

/// Moves what happened to keys into the past.
async fn some_time_ago(world: &World, seconds: i64) {
    for statement in [
        "ALTER TABLE grant_keys DISABLE TRIGGER grant_keys_stay",
        &format!(
            "UPDATE grant_keys SET created_at = created_at - interval '{seconds} s',
                    not_before = not_before - interval '{seconds} s', retire_at = retire_at - interval '{seconds} s'"
        ),
        "ALTER TABLE grant_keys ENABLE TRIGGER grant_keys_stay",
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement.to_owned()))
            .execute(world.db.pool())
            .await
            .unwrap();
    }
}

/// R9.1: of many first starts one makes the keys, one that signs and one that is published ahead; what one instance signs is
/// good on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_starts_at_once_make_one_pair_of_keys() {
    use GrantKeyState::{Active, Next};
    let world = World::new().await;
    let first = world.engine(World::settings()).await;
    sqlx::query("DELETE FROM grant_keys")
        .execute(world.db.pool())
        .await
        .unwrap();
    let starts = (0..6).map(|_| world.engine(World::settings()));
    let engines = futures::future::join_all(starts).await;
    assert_eq!(states(&first).await, [(1, Active), (2, Next)]);
    let token = grants::sign(&engines[0], &grant(60)).await.unwrap();
    for engine in &engines {
        assert_eq!(verdict(engine, &token).await, "good");
    }
    let published = grants::published(&engines[1]).await.unwrap().keys;
    assert_eq!(published.len(), 2);
    assert!(published[0].not_before.is_some() && published[1].not_before.is_none());
    let too_much = grants::verify(&engines[2], token.as_str(), &demand(3)).await;
    assert!(
        matches!(
            too_much,
            Err(VerifyError::Problem(GrantProblem::AmountAbove {
                asked: 3,
                granted: 2
            }))
        ),
        "{too_much:?}"
    );
}

/// R9.1: keys rotate without a gap. A key is published before it signs, and one that was published for too short a time
/// waits; what the one before has signed is good until its end, and never after the key has retired.
#[tokio::test]
async fn keys_rotate_without_a_gap() {
    use GrantKeyState::{Active, Next, Retiring, Starting};
    let world = World::new().await;
    let (a, b) = (world.node().await, world.node().await);
    let old = grants::sign(&a.engine, &grant(600)).await.unwrap();
    assert_eq!(verdict(&b.engine, &old).await, "good");
    some_time_ago(&world, 600).await;
    grants::rotate(&a.engine, &operator()).await.unwrap();
    assert_eq!(
        states(&a.engine).await,
        [(1, Retiring), (2, Active), (3, Next)]
    );
    let new = grants::sign(&a.engine, &grant(60)).await.unwrap();
    assert_eq!((key_of(&old), key_of(&new)), (1, 2));
    assert_eq!(verdict(&b.engine, &new).await, "good");
    assert_eq!(verdict(&b.engine, &old).await, "good");
    eventually(
        "b signs with the new key",
        Duration::from_secs(5),
        || async { key_of(&grants::sign(&b.engine, &grant(60)).await.unwrap()) == 2 },
    )
    .await;
    // The next one was made just now.
    grants::rotate(&b.engine, &operator()).await.unwrap();
    assert_eq!(
        states(&b.engine).await,
        [(1, Retiring), (2, Retiring), (3, Starting), (4, Next)]
    );
    let third = refused(grants::rotate(&b.engine, &operator()).await);
    assert_eq!(third, Code::StateConflict);
    assert_eq!(
        key_of(&grants::sign(&b.engine, &grant(60)).await.unwrap()),
        2
    );
    some_time_ago(&world, 180).await;
    let late = world.engine(World::settings()).await;
    assert_eq!(key_of(&grants::sign(&late, &grant(60)).await.unwrap()), 3);
    assert_eq!(verdict(&late, &old).await, "good");
}

/// R9.1: a retired key makes nothing good any more, remembered or not, and goes with its private half.
#[tokio::test]
async fn what_a_retired_key_has_signed_is_worth_nothing() {
    let world = World::new().await;
    let settings = Settings {
        cache_ttl_ms: 100,
        ..World::settings()
    };
    let engine = world.engine(settings).await;
    let token = grants::sign(&engine, &grant(3_500)).await.unwrap();
    assert_eq!(verdict(&engine, &token).await, "good");
    some_time_ago(&world, 600).await;
    grants::rotate(&engine, &operator()).await.unwrap();
    assert_eq!(verdict(&engine, &token).await, "good");
    some_time_ago(&world, 2 * LIFE_MAX.num_seconds()).await;
    eventually("the key is retired", Duration::from_secs(5), || async {
        verdict(&engine, &token).await == "unknown_key"
    })
    .await;
    let keep = Keep {
        runs_ms: None,
        events_ms: None,
        ..Keep::of(engine.settings())
    };
    pass(&engine, keep).await.unwrap();
    let left: Vec<i32> = sqlx::query_scalar("SELECT key_id FROM grant_keys ORDER BY 1")
        .fetch_all(world.db.pool())
        .await
        .unwrap();
    assert_eq!(left, [2, 3]);
}

/// R9.1: an instance that has not heard of a key looks for it before it refuses what it signed.
#[tokio::test]
async fn an_unknown_key_is_looked_for() {
    let world = World::new().await;
    let (engine, deaf) = (
        world.engine(World::settings()).await,
        world.engine(World::settings()).await,
    );
    let token = grants::sign(&deaf, &grant(60)).await.unwrap();
    for _ in 0..2 {
        some_time_ago(&world, 600).await;
        grants::rotate(&engine, &operator()).await.unwrap();
    }
    let new = grants::sign(&engine, &grant(60)).await.unwrap();
    assert_eq!(key_of(&new), 3, "which the other has never seen");
    eventually("it looks", Duration::from_secs(5), || async {
        verdict(&deaf, &new).await == "good"
    })
    .await;
    assert_eq!(verdict(&deaf, &token).await, "good");
}

/// R1.8: the private halves are sealed, and rotated with all that is sealed.
#[tokio::test]
async fn private_halves_are_sealed_anew_with_the_rest() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let before = grants::sign(&engine, &grant(60)).await.unwrap();
    let (_, new_text) = Keyring::generate().unwrap();
    let both = Keyring::new(&new_text, Some(&world.enc_key)).unwrap();
    let author = Author::shell("root");
    let done = secrets::rotate(engine.store(), &both, &author, Servers::AreIgnored, |_| {})
        .await
        .unwrap();
    assert!(done.complete && done.unreadable.is_empty());
    let alone = Keyring::new(&new_text, None).unwrap();
    let settings = Arc::new(World::settings());
    let store = store_at(&world.db.url());
    let engine = Engine::start(settings, store, alone, InstanceId::new())
        .await
        .unwrap();
    let after = grants::sign(&engine, &grant(60)).await.unwrap();
    assert_eq!(key_of(&after), 1);
    assert_eq!(verdict(&engine, &before).await, "good");
}

/// R1.8: a private half that cannot be opened signs nothing and is told of; a rotation is the way out, and takes at once.
#[tokio::test]
async fn a_rotation_replaces_what_cannot_be_opened() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let token = grants::sign(&engine, &grant(60)).await.unwrap();
    sqlx::query("UPDATE grant_keys SET sealed = sealed || 'x'")
        .execute(world.db.pool())
        .await
        .unwrap();
    let broken = world.engine(World::settings()).await;
    let why = grants::sign(&broken, &grant(60)).await.unwrap_err();
    assert_eq!(why.code(), Code::SecretUnreadable);
    assert!(
        why.to_string().contains("tidegate grant-key rotate"),
        "{why}"
    );
    assert_eq!(
        verdict(&broken, &token).await,
        "good",
        "the public half is not affected"
    );
    let status = secrets::status(broken.store(), &world.keyring)
        .await
        .unwrap();
    assert_eq!(status.unreadable.len(), 2);
    grants::rotate(&broken, &operator()).await.unwrap();
    let new = grants::sign(&broken, &grant(60)).await.unwrap();
    assert_eq!(key_of(&new), 3, "key 2 has gone without signing anything");
    assert_eq!(verdict(&broken, &new).await, "good");
}

/// R9.1: no key retires before what it has signed has ended.
#[tokio::test]
async fn nothing_is_signed_that_outlives_its_key() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    assert!(grants::sign(&engine, &grant(3_590)).await.is_ok());
    assert!(grants::sign(&engine, &grant(3_700)).await.is_err());
    let ended = grants::sign(&engine, &grant(-5)).await.unwrap();
    assert_eq!(verdict(&engine, &ended).await, "expired");
    let long = "A".repeat(tidegate_grants::TOKEN_MAX_BYTES + 1);
    let refused = grants::verify(&engine, &long, &demand(1)).await;
    assert!(matches!(
        refused,
        Err(VerifyError::Problem(GrantProblem::TooLarge { .. }))
    ));
}

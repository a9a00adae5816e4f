use std::{sync::Arc, time::Duration};

use secrecy::ExposeSecret as _;
use tidegate_engine::{
    Engine, StartError, catalog,
    ready::readiness,
    secrets::{self, Keyring, Rotation, SecretError, Servers},
};
use tidegate_model::{Code, InstanceId};
use tidegate_store::{Author, secrets::SealedTable};

use crate::{
    catalog::{provider, tool_server},
    rig::{World, eventually, id, operator, store_at},
};

async fn start(world: &World, keyring: &Keyring) -> Result<Engine, StartError> {
    let settings = Arc::new(World::settings());
    let store = store_at(&world.db.url());
    Engine::start(settings, store, keyring.clone(), InstanceId::new()).await
}

/// R1.1: a wrong key is refused before anything is read or written; the message says what to do.
#[tokio::test]
async fn a_wrong_key_is_refused_at_start() {
    let world = World::new().await;
    start(&world, &world.keyring).await.unwrap();
    let instances = "SELECT count(*) FROM instances";
    let before: i64 = sqlx::query_scalar(instances)
        .fetch_one(world.db.pool())
        .await
        .unwrap();
    let (stranger, stranger_text) = Keyring::generate().unwrap();
    let Err(StartError::WrongKey(error)) = start(&world, &stranger).await else {
        panic!("a stranger's key starts");
    };
    let told = error.to_string();
    assert!(
        told.contains("CONFIG_ENC_KEY is not the key of this database"),
        "{told}"
    );
    assert!(
        told.contains(world.keyring.current_id()) && told.contains(stranger.current_id()),
        "{told}"
    );
    let after: i64 = sqlx::query_scalar(instances)
        .fetch_one(world.db.pool())
        .await
        .unwrap();
    assert_eq!(after, before, "nothing was written");
    // The right key as the previous one is a rotation, not a mistake.
    let rotating = Keyring::new(&stranger_text, Some(&world.enc_key)).unwrap();
    assert!(start(&world, &rotating).await.is_ok());
    assert!(
        start(&world, &world.keyring).await.is_ok(),
        "the old key still works before the rotation"
    );
}

/// R1.1: many first starts at once agree on one key of body digests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_starts_at_once_agree() {
    let world = World::new().await;
    let store = world.store();
    let keys =
        futures::future::join_all((0..8).map(|_| secrets::open_cluster(&store, &world.keyring)))
            .await;
    let mut digest_keys: Vec<_> = keys
        .into_iter()
        .map(|keys| keys.unwrap().digest_key)
        .collect();
    digest_keys.dedup();
    assert_eq!(digest_keys.len(), 1);
    assert_ne!(digest_keys[0], [0; 32]);
}

async fn fill(engine: &Engine, providers: usize) {
    for number in 0..providers {
        let request = provider("https://api.example/v1", Some(&format!("secret-{number}")));
        let name = id(&format!("p{number:04}"));
        catalog::put_provider(engine, &operator(), name, request)
            .await
            .unwrap();
    }
    let server = tool_server(&[("TOKEN", "t")]);
    catalog::put_tool_server(engine, &operator(), id("git"), server)
        .await
        .unwrap();
}

async fn left(engine: &Engine, key_id: &str) -> i64 {
    let counts = engine.store().sealed_counts().await.unwrap();
    counts
        .iter()
        .find(|count| count.key_id == key_id)
        .map_or(0, |count| count.rows)
}

/// A rotation that ends after its first batch, as that of a lost shell would.
async fn cut_short(engine: &Engine, both: &Keyring) {
    let (store, ring) = (engine.store().clone(), both.clone());
    let (told, mut batches) = tokio::sync::mpsc::unbounded_channel();
    let cut = tokio::spawn(async move {
        let author = Author::shell("root");
        secrets::rotate(&store, &ring, &author, Servers::AreIgnored, |done| {
            told.send(done).unwrap();
        })
        .await
    });
    assert!(batches.recv().await.unwrap() > 0);
    cut.abort();
    let _ = cut.await;
}

async fn rotated(engine: &Engine, both: &Keyring) -> Result<Rotation, SecretError> {
    let author = Author::shell("root");
    secrets::rotate(engine.store(), both, &author, Servers::AreIgnored, |_| {}).await
}

async fn refuses(world: &World, keyring: &Keyring) -> bool {
    matches!(start(world, keyring).await, Err(StartError::WrongKey(_)))
}

/// R1.8: a rotation that is cut short goes on where it was; secrets stay readable all along, and what is written
/// meanwhile is not lost.
#[tokio::test]
async fn an_interrupted_rotation_is_resumed() {
    let world = World::new().await;
    let engine = start(&world, &world.keyring).await.unwrap();
    fill(&engine, 250).await;
    let old = world.keyring.current_id().to_owned();
    let digest_key = secrets::open_cluster(engine.store(), &world.keyring)
        .await
        .unwrap()
        .digest_key;
    let (_, new_text) = Keyring::generate().unwrap();
    let both = Keyring::new(&new_text, Some(&world.enc_key)).unwrap();

    cut_short(&engine, &both).await;
    let remaining = left(&engine, &old).await;
    assert!((1..255).contains(&remaining), "{remaining} left");
    // Half-way, instances with both keys read everything; with the new one alone they do not start.
    let running = start(&world, &both).await.unwrap();
    let catalog = catalog::resolved(&running).await.unwrap();
    assert!(catalog.providers.iter().all(|p| p.unreadable.is_none()));
    let new_alone = Keyring::new(&new_text, None).unwrap();
    assert!(refuses(&world, &new_alone).await);
    let update = provider("https://api.example/v1", Some("written meanwhile"));
    catalog::put_provider(&running, &operator(), id("p0249"), update)
        .await
        .unwrap();

    let done = rotated(&engine, &both).await.unwrap();
    assert!(done.complete && done.unreadable.is_empty());
    assert_eq!(left(&engine, &old).await, 0);
    let again = rotated(&engine, &both).await.unwrap();
    assert_eq!(again.resealed, 0);

    let engine = start(&world, &new_alone).await.unwrap();
    let catalog = catalog::resolved(&engine).await.unwrap();
    let key = |index: usize| {
        catalog.providers[index]
            .api_key
            .as_ref()
            .unwrap()
            .expose_secret()
    };
    assert_eq!((key(7), key(249)), ("secret-7", "written meanwhile"));
    let after = secrets::open_cluster(engine.store(), &new_alone)
        .await
        .unwrap()
        .digest_key;
    assert_eq!(after, digest_key, "repeats stay repeats");
    assert!(refuses(&world, &world.keyring).await);
}

/// R1.8: a rotation that would shut out a server that runs is refused, names it, and changes nothing.
#[tokio::test]
async fn a_rotation_waits_until_every_server_has_the_key() {
    let world = World::new().await;
    let behind = start(&world, &world.keyring).await.unwrap();
    fill(&behind, 1).await;
    let (_, new_text) = Keyring::generate().unwrap();
    let both = Keyring::new(&new_text, Some(&world.enc_key)).unwrap();
    let ahead = start(&world, &both).await.unwrap();
    let author = Author::shell("root");
    let servers = Servers::MustHaveKey {
        dead_after_ms: 60_000,
    };
    let before = ahead.store().sealed_counts().await.unwrap();
    let refused = secrets::rotate(ahead.store(), &both, &author, servers, |_| {}).await;
    let told = refused.unwrap_err().to_string();
    let (behind, ahead_id) = (behind.instance().to_string(), ahead.instance().to_string());
    assert!(
        told.contains(&behind) && !told.contains(&ahead_id),
        "{told}"
    );
    assert_eq!(ahead.store().sealed_counts().await.unwrap(), before);

    // Its process has ended without a word.
    sqlx::query("UPDATE instances SET seen_at = seen_at - interval '1 h' WHERE instance_id = $1")
        .bind(behind.parse::<InstanceId>().unwrap().as_uuid())
        .execute(world.db.pool())
        .await
        .unwrap();
    let done = secrets::rotate(ahead.store(), &both, &author, servers, |_| {}).await;
    assert!(done.unwrap().complete);
}

/// R1.8: while servers are given the new key one after the other, what each of them stores can be opened by all.
#[tokio::test]
async fn what_is_stored_between_two_restarts_opens_everywhere() {
    let world = World::new().await;
    let old = start(&world, &world.keyring).await.unwrap();
    let (_, new_text) = Keyring::generate().unwrap();
    let both = Keyring::new(&new_text, Some(&world.enc_key)).unwrap();
    let new = start(&world, &both).await.unwrap();
    fill(&new, 1).await;
    let catalog = catalog::resolved(&old).await.unwrap();
    assert!(catalog.providers[0].unreadable.is_none());
    assert!(catalog.tool_servers[0].unreadable.is_none());
    rotated(&new, &both).await.unwrap();
    fill(&new, 2).await;
    let new_alone = start(&world, &Keyring::new(&new_text, None).unwrap()).await;
    let catalog = catalog::resolved(&new_alone.unwrap()).await.unwrap();
    assert!(catalog.providers.iter().all(|p| p.unreadable.is_none()));
}

/// R1.8, R21.4: a server that a rotation has left behind takes itself out of service, says how to come back, and seals
/// nothing that others could not open.
#[tokio::test]
async fn a_server_left_behind_is_unready_and_seals_nothing() {
    let world = World::new().await;
    let node = world.node().await;
    fill(&node.engine, 1).await;
    assert!(readiness(&node.engine).await.ready);
    let (_, new_text) = Keyring::generate().unwrap();
    let both = Keyring::new(&new_text, Some(&world.enc_key)).unwrap();
    rotated(&node.engine, &both).await.unwrap();

    let request = provider("https://api.example/v1", Some("too late"));
    let refused = catalog::put_provider(&node.engine, &operator(), id("p0000"), request).await;
    let problem = refused.unwrap_err().problem();
    assert_eq!(problem.code, Code::SecretUnreadable);
    let detail = problem.detail.as_deref().unwrap_or_default();
    assert!(detail.contains(both.current_id()), "{problem:?}");
    assert_eq!(left(&node.engine, world.keyring.current_id()).await, 0);
    let unready = || async { !readiness(&node.engine).await.ready };
    eventually("unready", Duration::from_secs(5), unready).await;
    let checks = readiness(&node.engine).await.checks;
    let key = checks.iter().find(|check| check.name == "key").unwrap();
    assert!(!key.ok && key.detail.contains("restart it"), "{key:?}");
    // What cannot be opened says the same, and not that it must be stored again.
    let reopened = || async {
        let catalog = catalog::resolved(&node.engine).await.unwrap();
        let reason = catalog.providers[0].unreadable.clone();
        reason.is_some_and(|reason| reason.contains("restart it with that key"))
    };
    eventually("the remedy is told", Duration::from_secs(10), reopened).await;
}

/// R1.8: where CONFIG_ENC_KEY_PREVIOUS is the wrong one, it is that one that is said to be wrong.
#[tokio::test]
async fn a_wrong_previous_key_is_named() {
    let world = World::new().await;
    start(&world, &world.keyring).await.unwrap();
    let (_, new_text) = Keyring::generate().unwrap();
    let (stranger, stranger_text) = Keyring::generate().unwrap();
    let wrong = Keyring::new(&new_text, Some(&stranger_text)).unwrap();
    let Err(StartError::WrongKey(error)) = start(&world, &wrong).await else {
        panic!("a stranger's key starts");
    };
    let told = error.to_string();
    assert!(
        told.starts_with("CONFIG_ENC_KEY_PREVIOUS is not the key of this database")
            && told.contains(stranger.current_id()),
        "{told}"
    );
}

/// R1.8: what neither key opens is counted and named, and keeps nothing else from being done.
#[tokio::test]
async fn a_rotation_steps_over_what_cannot_be_opened() {
    let world = World::new().await;
    let engine = start(&world, &world.keyring).await.unwrap();
    fill(&engine, 3).await;
    sqlx::query("UPDATE providers SET sealed_key = 'lost' WHERE name = 'p0001'")
        .execute(world.db.pool())
        .await
        .unwrap();
    let (_, new_text) = Keyring::generate().unwrap();
    let both = Keyring::new(&new_text, Some(&world.enc_key)).unwrap();
    let done = rotated(&engine, &both).await.unwrap();
    assert_eq!(done.unreadable.len(), 1);
    assert_eq!(
        (
            done.unreadable[0].name.as_str(),
            done.unreadable[0].key_id.as_str()
        ),
        ("p0001", "lost")
    );
    assert!(
        done.complete,
        "nothing that could be saved needs the previous key"
    );
    assert_eq!(left(&engine, "lost").await, 1);
}

/// R1.8: every table with a sealed column is rotated; walked from the schema, so that a later one is not forgotten.
#[tokio::test]
async fn every_sealed_table_is_known() {
    let world = World::new().await;
    let found = world.store().sealed_tables().await.unwrap();
    let known: Vec<_> = SealedTable::ALL
        .iter()
        .map(|table| table.as_str())
        .collect();
    assert_eq!(found, known);
}

//! Pools on the command line: descriptors, epochs, generations, and what runs need of them.

use serde_json::Value;

use crate::commands::World;

/// Makes a key and gives back its secret.
pub async fn secret(world: &World, args: &[&str]) -> String {
    let create = [&["--json", "key", "create"], args].concat();
    let made = world.admin(&create).await.succeeded().json();
    made["secret"].as_str().expect("secret").to_owned()
}

/// A file with a descriptor from the template.
async fn template(world: &World, args: &[&str]) -> String {
    let printed = world.admin(&[&["pool", "template"], args].concat()).await;
    let dir = tidegate_testkit::scratch::directory("descriptor");
    let file = dir.join("descriptor.json").display().to_string();
    std::fs::write(&file, printed.succeeded().stdout).expect("a file");
    file
}

/// R5.3, R6.4, R18.3: a descriptor is made from the template, put in force, asked for, drained, revoked; a run that nobody
/// may serve says whom to change; the policy generation is raised.
#[tokio::test]
async fn a_pool_goes_through_its_life_on_the_command_line() {
    let world = World::new().await;
    world.admin(&["tenant", "create", "acme"]).await.succeeded();
    let controller = secret(&world, &["--role", "pool_controller"]).await;
    let member = [
        "--role",
        "member",
        "--tenant",
        "acme",
        "--scope",
        "runs:business",
    ];
    let member = secret(&world, &member).await;
    let pool = async |args: &[&str]| {
        let args = [&["--json", "pool"], args].concat();
        world.with_key(&controller, &args).await.succeeded().json()
    };
    let first = template(&world, &["gpu", "ocr", "--days", "3"]).await;
    pool(&["publish", &first, "--activate"]).await;
    let second = template(&world, &["gpu", "ocr", "--epoch", "2"]).await;
    pool(&["publish", &second]).await;
    let drained = pool(&["activate", "gpu", "2"]).await;
    assert_eq!(drained["drainingEpochs"], serde_json::json!([1]));
    let alone = pool(&["activate", "gpu", "2", "--drain-none"]).await;
    assert_eq!(alone.get("drainingEpochs"), None);

    let needs = r#"{"allowedRegions": ["eu-1"]}"#;
    let submit = ["--json", "run", "submit", "ocr", "--requirements", needs];
    let run = world.with_key(&member, &submit).await.succeeded().json();
    let run = run["runId"].as_str().expect("run").to_owned();
    let why = world
        .with_key(&member, &["run", "explain", &run])
        .await
        .succeeded();
    assert!(
        why.stdout.contains("pool gpu lacks least"),
        "{}",
        why.stdout
    );
    let wrong = ["run", "submit", "ocr", "--requirements", r#"{"gpu": 1}"#];
    let wrong = world.with_key(&member, &wrong).await.failed_with(2);
    assert!(
        wrong.stderr.contains("--requirements") && wrong.stderr.contains("gpu"),
        "{}",
        wrong.stderr
    );
}

/// R5.3, R18.3: an epoch that serves nothing is remarked when it is put in force; one that is revoked is followed by the next one
/// as the first one was; the generation is an operator's to raise.
#[tokio::test]
async fn an_epoch_that_serves_nothing_is_remarked() {
    let world = World::new().await;
    let controller = secret(&world, &["--role", "pool_controller"]).await;
    let pool = async |args: &[&str]| {
        let args = [&["--json", "pool"], args].concat();
        world.with_key(&controller, &args).await.succeeded().json()
    };
    let other = ["gpu", "ocr", "--epoch", "3", "--policy-generation", "7"];
    let other = template(&world, &other).await;
    let publish = ["pool", "publish", &other, "--activate"];
    let told = world.with_key(&controller, &publish).await.succeeded();
    assert!(
        told.stderr
            .contains("serves nothing: POLICY_GENERATION_STALE"),
        "{}",
        told.stderr
    );
    assert!(
        told.stdout.contains("POLICY_GENERATION_STALE"),
        "{}",
        told.stdout
    );

    let revoked = pool(&["revoke", "gpu", "3"]).await;
    assert_eq!(revoked.get("activeDescriptorEpoch"), None::<&Value>);
    assert_eq!(revoked["revokedEpochs"], serde_json::json!([3]));
    let next = template(&world, &["gpu", "ocr", "--epoch", "4"]).await;
    let next = pool(&["publish", &next, "--activate"]).await;
    assert_eq!(next["activeDescriptorEpoch"], 4);
    let raised = world.admin(&["pool", "generation", "--raise", "2"]).await;
    assert_eq!(raised.succeeded().stdout.trim(), "2");
    assert_eq!(pool(&["generation"]).await["active"], 2);
}

/// R5.3: a worker's key may come before its pool, and whoever makes it is told what is missing; of a pool in force nothing
/// is said.
#[tokio::test]
async fn a_worker_key_without_a_pool_in_force_is_remarked() {
    let world = World::new().await;
    let create = ["--json", "key", "create", "--role", "worker", "--pool"];
    let made = async |pool: &str| {
        let ended = world.admin(&[&create[..], &[pool]].concat()).await;
        ended.succeeded()
    };
    let silent = made("builtin").await;
    assert_eq!(silent.stderr, "");
    let told = made("gpu").await;
    assert!(told.json()["secret"].is_string(), "{}", told.stdout);
    assert!(
        told.stderr.contains("gpu does not exist yet"),
        "{}",
        told.stderr
    );
    let controller = secret(&world, &["--role", "pool_controller"]).await;
    let file = template(&world, &["gpu", "chat"]).await;
    let publish = ["pool", "publish", &file];
    world.with_key(&controller, &publish).await.succeeded();
    let told = made("gpu").await;
    assert!(told.stderr.contains("pool activate gpu"), "{}", told.stderr);
    let activate = world
        .with_key(&controller, &["pool", "activate", "gpu", "1"])
        .await;
    activate.succeeded();
    assert_eq!(made("gpu").await.stderr, "");
}

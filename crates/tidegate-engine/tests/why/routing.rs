//! Which pool serves which run, and what becomes of attempts whose epoch is withdrawn (R5.3, R6.3, R18.2, R18.3).

use chrono::{DateTime, Duration, Utc};
use serde_json::{Value, json};
use tidegate_engine::{Engine, Error, Principal, leases, pools, runs, worker};
use tidegate_model::{
    Capability, Code, Fence, PoolId, RunId,
    api::{
        AttemptAnswer, AttemptUsage, ClaimRequest, CompleteRun, Lease, LeaseRef, LeavePool,
        PolicyGeneration, PoolView, RegisterWorker, RenewRequest, RevokeEpoch, SetEpoch,
        SetPolicyGeneration, SubmitChild, SubmitRun, WaitRun, WorkerView,
    },
    contracts::{CapabilityDescriptor, Health},
    pool_reason::PoolReason,
    principal::Role,
    queue_reason::QueueReason,
    run::RunState,
};
use tidegate_testkit::lasting_health;

use crate::rig::{World, claim_on, member, operator, principal, settings, task};

fn pool(name: &str) -> PoolId {
    name.parse().expect("pool")
}

fn controller() -> Principal {
    principal(Role::PoolController, None)
}

/// A descriptor that offers some capabilities, with other members as given.
fn descriptor(name: &str, epoch: i64, capabilities: &[&str], more: Value) -> CapabilityDescriptor {
    let capabilities = capabilities
        .iter()
        .map(|name| name.parse().expect("capability"));
    let plain =
        CapabilityDescriptor::new(pool(name), epoch, capabilities.collect(), lasting_health());
    let mut written = serde_json::to_value(plain).expect("JSON");
    let more: serde_json::Map<String, Value> = serde_json::from_value(more).expect("members");
    for (member, value) in more {
        written[member] = value;
    }
    serde_json::from_value(written).expect("descriptor")
}

async fn publish(engine: &Engine, content: &CapabilityDescriptor) {
    let (name, epoch) = (&content.pool_id, content.descriptor_epoch);
    pools::publish(engine, &controller(), name, epoch, content.clone())
        .await
        .expect("published");
}

async fn put_in_force(
    engine: &Engine,
    name: &str,
    expected: Option<i64>,
    active: i64,
    draining: Option<Vec<i64>>,
) -> Result<PoolView, Error> {
    let request = SetEpoch {
        expected,
        active,
        draining,
    };
    pools::set_epoch(engine, &controller(), &pool(name), request).await
}

/// Publishes a descriptor as the first one of its pool, in force.
async fn open(world: &World, name: &str, capabilities: &[&str], more: Value) {
    publish(&world.engine, &descriptor(name, 1, capabilities, more)).await;
    put_in_force(&world.engine, name, None, 1, None)
        .await
        .expect("in force");
}

fn needing(capability: &str, requirements: Value) -> SubmitRun {
    SubmitRun {
        requirements: Some(serde_json::from_value(requirements).expect("requirements")),
        ..task(capability)
    }
}

fn ids(leases: &[Lease]) -> Vec<RunId> {
    leases.iter().map(|lease| lease.run.run_id).collect()
}

async fn claim(world: &World, name: &str) -> Vec<Lease> {
    claim_on(&world.engine, &pool(name), 100, 100).await
}

fn worker_of(name: &str) -> Principal {
    Principal::built_in_worker(pool(name))
}

async fn complete(world: &World, name: &str, lease: &Lease) -> Result<AttemptAnswer, Error> {
    let request = CompleteRun {
        fence: lease.fence,
        result: json!({"ok": true}),
        messages: Vec::new(),
        usage: AttemptUsage::default(),
    };
    worker::close::complete(&world.engine, &worker_of(name), lease.run.run_id, request).await
}

/// Whether the holder of a lease is told to stop.
async fn is_stopped(world: &World, name: &str, run_id: RunId, fence: Fence) -> bool {
    let lease = LeaseRef { run_id, fence };
    let request = RenewRequest {
        leases: vec![lease.into()],
    };
    let answer = worker::renew::renew(&world.engine, &worker_of(name), request)
        .await
        .expect("renewed");
    assert!(answer.lost.is_empty());
    answer.cancel.contains(&lease)
}

fn code<T: std::fmt::Debug>(refused: Result<T, Error>) -> (Code, Option<String>) {
    let problem = refused.expect_err("refused").problem();
    (problem.code, problem.field)
}

/// R6.3, R6.4: each run is claimed by a pool that meets all its requirements and by no other; one that nobody meets says which
/// pool is nearest.
#[tokio::test]
async fn runs_go_where_their_requirements_are_met() {
    let world = World::new(settings()).await;
    let european = json!({"regions": ["eu-1"], "labels": ["pii"], "sandbox": "container"});
    open(&world, "eu", &["ocr"], european).await;
    open(&world, "us", &["ocr"], json!({"regions": ["us-1"]})).await;
    let private = needing(
        "ocr",
        json!({"inputLabels": ["pii"], "allowedRegions": ["eu-1"]}),
    );
    let private = world.submit(private).await;
    let american = world
        .submit(needing("ocr", json!({"allowedRegions": ["us-1"]})))
        .await;
    let nowhere = needing("ocr", json!({"allowedRegions": ["eu-1"], "sandbox": "vm"}));
    let nowhere = world.submit(nowhere).await;
    let anywhere = world.submit(task("ocr")).await;

    assert_eq!(ids(&claim(&world, "us").await), [american, anywhere]);
    assert_eq!(ids(&claim(&world, "eu").await), [private]);
    let asked = world.get(nowhere).await.requirements.expect("shown");
    assert_eq!(asked.allowed_regions.len(), 1);
    assert_eq!(world.get(anywhere).await.requirements, None);
    let reason = world
        .expect_reason(nowhere, QueueReason::NoEligiblePool)
        .await;
    let pools = json!([
        {"pool": "builtin", "reason": "CAPABILITY_MISSING", "also": ["REGION_NOT_ALLOWED", "SANDBOX_TOO_WEAK"]},
        {"pool": "eu", "reason": "SANDBOX_TOO_WEAK"},
        {"pool": "us", "reason": "REGION_NOT_ALLOWED", "also": ["SANDBOX_TOO_WEAK"]},
    ]);
    assert_eq!(reason.facts["pools"], pools);
    assert!(
        reason.remedy.starts_with("pool eu lacks least"),
        "{reason:?}"
    );

    publish(
        &world.engine,
        &descriptor(
            "eu",
            2,
            &["ocr"],
            json!({"regions": ["eu-1"], "sandbox": "vm"}),
        ),
    )
    .await;
    put_in_force(&world.engine, "eu", Some(1), 2, None)
        .await
        .expect("in force");
    assert_eq!(ids(&claim(&world, "eu").await), [nowhere]);
}

/// O-09: during a rolling upgrade no old worker is given what it cannot do, no attempt is used up, and what waits says so.
#[tokio::test]
async fn old_workers_are_given_nothing_new_o_09() {
    let world = World::new(settings()).await;
    let versions =
        |task: &str| json!({"schemas": [{"capability": "b", "task": task, "result": "*"}]});
    open(&world, "old", &["a"], json!({})).await;
    open(&world, "new", &["a", "b"], versions("^2")).await;
    let mut newer = Vec::new();
    for _ in 0..20 {
        world.submit(task("a")).await;
        newer.push(
            world
                .submit(needing("b", json!({"taskSchema": "2.0.0"})))
                .await,
        );
    }
    let third = world
        .submit(needing("b", json!({"taskSchema": "3.0.0"})))
        .await;
    let mut of_old = Vec::new();
    for _ in 0..3 {
        of_old.extend(claim_on(&world.engine, &pool("old"), 4, 100).await);
    }
    let a: Capability = "a".parse().expect("capability");
    assert_eq!(of_old.len(), 12);
    assert!(of_old.iter().all(|lease| lease.run.capability == a));

    let half = claim_on(&world.engine, &pool("new"), 14, 100).await;
    assert_eq!(half.len(), 14);
    let waiting = *newer
        .iter()
        .find(|run| !ids(&half).contains(run))
        .expect("some wait");
    let reason = world
        .expect_reason(waiting, QueueReason::WaitingForWorker)
        .await;
    assert_eq!(reason.facts["pools"][0]["pool"], "new");
    let rest = claim_on(&world.engine, &pool("new"), 100, 100).await;
    assert_eq!(half.len() + rest.len(), 28);
    for run in newer {
        assert_eq!(world.get(run).await.attempts, 1);
    }
    // A version that nobody says it has is served by nobody.
    world
        .expect_reason(third, QueueReason::NoEligiblePool)
        .await;
    assert_eq!(world.get(third).await.attempts, 0);
}

/// R9.3: a child may go where its parent may, whatever it asks for; a region of its own is refused by its field.
#[tokio::test]
async fn a_child_stays_where_its_parent_may_go() {
    let world = World::new(settings()).await;
    open(
        &world,
        "eu",
        &["plan", "ocr"],
        json!({"regions": ["eu-1"], "labels": ["pii"]}),
    )
    .await;
    open(
        &world,
        "us",
        &["ocr"],
        json!({"regions": ["us-1"], "labels": ["pii"]}),
    )
    .await;
    let bound = needing(
        "plan",
        json!({"inputLabels": ["pii"], "allowedRegions": ["eu-1"]}),
    );
    let parent = world.submit(bound).await;
    let lease = world.expect_start(&pool("eu"), parent).await;
    let child = |key: &str, requirements: Value| SubmitChild {
        fence: lease.fence,
        key: key.to_owned(),
        capability: "ocr".parse().expect("capability"),
        requirements: serde_json::from_value(requirements).expect("requirements"),
        input: Value::Null,
        service_class: None,
        priority: None,
        deadline: None,
        run_at: None,
        max_attempts: None,
        budget: None,
    };
    let holder = worker_of("eu");
    let ask = |request| worker::children::submit_child(&world.engine, &holder, parent, request);
    let away = ask(child("away", json!({"allowedRegions": ["us-1"]}))).await;
    let field = "requirements.allowedRegions".to_owned();
    assert_eq!(code(away), (Code::DelegationExceedsParent, Some(field)));
    let kept = ask(child("kept", Value::Null)).await.expect("accepted");
    assert!(claim(&world, "us").await.is_empty());
    assert_eq!(ids(&claim(&world, "eu").await), [kept.run_id]);
    let nobody = ask(child("nobody", json!({"sandbox": "vm"}))).await;
    assert_eq!(code(nobody).0, Code::Unsatisfiable);
}

/// R5.1, R6.3: evidence that has run out closes a pool by itself; a descriptor with a fresh one opens it.
#[tokio::test]
async fn stale_evidence_closes_a_pool() {
    let world = World::new(settings()).await;
    let until = |at: DateTime<Utc>| {
        let health = Health {
            checked_at: at - Duration::hours(1),
            valid_until: at,
        };
        json!({"health": health})
    };
    let soon = world.now().await + Duration::milliseconds(1_500);
    open(&world, "gpu", &["ocr"], until(soon)).await;
    let first = world.submit(task("ocr")).await;
    assert_eq!(ids(&claim(&world, "gpu").await), [first]);
    let second = world.submit(task("ocr")).await;
    while world.now().await <= soon {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let refused = worker::claim::claim(&world.engine, &worker_of("gpu"), crate::rig::ask(1, 0))
        .await
        .expect_err("refused")
        .problem();
    assert_eq!(refused.code, Code::PoolClosed);
    let detail = refused.detail.expect("said");
    assert!(detail.contains("HEALTH_EVIDENCE_STALE"), "{detail}");
    let listed = pools::list(&world.engine, &operator())
        .await
        .expect("pools");
    let gpu = listed.into_iter().find(|view| view.pool_id == pool("gpu"));
    assert_eq!(
        gpu.expect("gpu").closed_by,
        [PoolReason::HealthEvidenceStale]
    );
    let reason = world
        .expect_reason(second, QueueReason::NoEligiblePool)
        .await;
    assert!(
        reason.remedy.contains("fresh health evidence"),
        "{reason:?}"
    );

    publish(&world.engine, &descriptor("gpu", 2, &["ocr"], json!({}))).await;
    put_in_force(&world.engine, "gpu", Some(1), 2, None)
        .await
        .expect("in force");
    assert_eq!(ids(&claim(&world, "gpu").await), [second]);
}

/// R5.3: descriptors serve under their policy generation only; the generation is raised by compare-and-set, never lowered,
/// and the built-in executor follows.
#[tokio::test]
async fn a_new_policy_generation_closes_what_was_vetted_before() {
    let world = World::new(settings()).await;
    open(&world, "gpu", &["ocr"], json!({})).await;
    let operator = operator();
    let raise = |expected, active| {
        let request = SetPolicyGeneration { expected, active };
        pools::set_policy_generation(&world.engine, &operator, request)
    };
    assert_eq!(code(raise(2, 3).await).0, Code::VersionConflict);
    assert_eq!(
        raise(1, 2).await.expect("raised"),
        PolicyGeneration { active: 2 }
    );
    assert_eq!(code(raise(2, 1).await).1.as_deref(), Some("active"));
    assert_eq!(code(raise(1, 2).await).0, Code::VersionConflict);
    let run = world.submit(task("ocr")).await;
    let chat = world.submit(task("chat")).await;
    assert_eq!(ids(&claim(&world, "builtin").await), [chat]);
    let reason = world.expect_reason(run, QueueReason::NoEligiblePool).await;
    assert_eq!(
        reason.facts["pools"][1]["reason"],
        "POLICY_GENERATION_STALE"
    );
    let vetted = descriptor("gpu", 2, &["ocr"], json!({"policyGeneration": 2}));
    publish(&world.engine, &vetted).await;
    put_in_force(&world.engine, "gpu", Some(1), 2, None)
        .await
        .expect("in force");
    assert_eq!(ids(&claim(&world, "gpu").await), [run]);
}

/// R18.2: attempts of a draining epoch end what they have begun; those of one that is left out are told to stop, what they
/// report changes nothing, and their runs start again under the epoch in force without having lost an attempt.
#[tokio::test]
async fn attempts_live_as_long_as_their_epoch() {
    let world = World::new(settings()).await;
    open(&world, "gpu", &["ocr"], json!({})).await;
    let (kept, lost) = (
        world.submit(task("ocr")).await,
        world.submit(task("ocr")).await,
    );
    let leases = claim(&world, "gpu").await;
    assert_eq!(ids(&leases), [kept, lost]);
    for epoch in [2, 3] {
        publish(
            &world.engine,
            &descriptor("gpu", epoch, &["ocr"], json!({})),
        )
        .await;
    }
    let view = put_in_force(&world.engine, "gpu", Some(1), 2, None)
        .await
        .expect("in force");
    assert_eq!(view.draining_epochs, [1]);
    assert!(!is_stopped(&world, "gpu", kept, leases[0].fence).await);
    complete(&world, "gpu", &leases[0]).await.expect("accepted");
    assert_eq!(world.get(kept).await.state, RunState::Succeeded);

    for wrong in [vec![9], vec![2, 9]] {
        let refused = put_in_force(&world.engine, "gpu", Some(2), 3, Some(wrong)).await;
        assert_eq!(code(refused).1.as_deref(), Some("draining"));
    }
    put_in_force(&world.engine, "gpu", Some(2), 3, Some(Vec::new()))
        .await
        .expect("in force");
    assert!(is_stopped(&world, "gpu", lost, leases[1].fence).await);
    let answer = complete(&world, "gpu", &leases[1]).await.expect("answered");
    assert_eq!(answer.state, RunState::Queued);
    let view = world.get(lost).await;
    assert_eq!((view.attempts, view.result), (0, None));
    let again = claim(&world, "gpu").await;
    assert_eq!((ids(&again), again[0].attempt), (vec![lost], 1));
    let explained = runs::explain::explain(&world.engine, &member("acme"), lost)
        .await
        .expect("explained");
    assert_eq!(explained.attempts[0].code, Some(Code::EpochWithdrawn));
}

/// R18.3: nothing starts under a revoked epoch, not even where an instance has not heard of it yet; what runs is stopped, also
/// by the sweep; and the epoch never comes back.
#[tokio::test]
async fn a_revoked_epoch_is_never_used_again() {
    let world = World::new(settings()).await;
    open(&world, "gpu", &["ocr"], json!({})).await;
    let unaware = world.instance(settings()).await;
    let (running, waiting) = (
        world.submit(task("ocr")).await,
        world.submit(task("ocr")).await,
    );
    let lease = claim_on(&unaware, &pool("gpu"), 1, 5_000).await.remove(0);
    assert_eq!(lease.run.run_id, running);
    let (gpu, by) = (pool("gpu"), controller());
    let revoke = |epoch| {
        let request = RevokeEpoch { epoch };
        pools::revoke_epoch(&world.engine, &by, &gpu, request)
    };
    assert_eq!(code(revoke(7).await).1.as_deref(), Some("epoch"));
    let view = revoke(1).await.expect("revoked");
    assert_eq!(
        (view.active_descriptor_epoch, view.revoked_epochs),
        (None, vec![1])
    );
    assert!(is_stopped(&world, "gpu", running, lease.fence).await);
    // It still believes in epoch 1; the statement does not.
    assert!(claim_on(&unaware, &pool("gpu"), 10, 300).await.is_empty());
    assert_eq!(world.get(waiting).await.state, RunState::Queued);
    let back = put_in_force(&world.engine, "gpu", None, 1, None).await;
    assert_eq!(code(back).1.as_deref(), Some("active"));
    revoke(1).await.expect("a repeat");

    // An attempt that was just being opened when the epoch was taken away is found by the sweep.
    sqlx::query("UPDATE run_leases SET stop_reason = NULL, stop_requested_at = NULL")
        .execute(world.db.pool())
        .await
        .expect("as if it had not been seen");
    let swept = leases::sweep::sweep(&world.engine).await.expect("swept");
    assert_eq!(swept.stopped, 1);
    assert!(is_stopped(&world, "gpu", running, lease.fence).await);
    // Nor does it wait on anything: what it asks a person is not taken.
    let waiting_for = WaitRun {
        fence: lease.fence,
        children: None,
        input: None,
        until: Some(world.now().await + Duration::hours(1)),
        messages: Vec::new(),
        usage: AttemptUsage::default(),
    };
    let answer = worker::wait::wait(&world.engine, &worker_of("gpu"), running, waiting_for).await;
    assert_eq!(answer.expect("answered").state, RunState::Queued);
    // None is in force, and the next one is put in force as the first one was.
    publish(&world.engine, &descriptor("gpu", 2, &["ocr"], json!({}))).await;
    let view = put_in_force(&world.engine, "gpu", None, 2, None).await;
    assert_eq!(view.expect("in force").draining_epochs, Vec::<i64>::new());
}

/// Bad input: requirements are bounded, and a tenant cannot make lanes without end.
#[tokio::test]
async fn requirements_are_bounded() {
    let world = World::new(settings()).await;
    let many: Vec<String> = (0..65).map(|n| format!("label-{n}")).collect();
    let acme = member("acme");
    let submit = |request| runs::submit::submit(&world.engine, &acme, request, None);
    let refused = submit(needing("ocr", json!({"inputLabels": many}))).await;
    assert_eq!(code(refused).1.as_deref(), Some("requirements.inputLabels"));
    sqlx::query(
        "INSERT INTO requirement_classes (tenant, digest, capability, requirements)
         SELECT 'acme', sha256(n::text::bytea), 'ocr', '{}' FROM generate_series(1, 10000) n",
    )
    .execute(world.db.pool())
    .await
    .expect("classes");
    let refused = submit(needing("ocr", json!({"sandbox": "vm"}))).await;
    assert_eq!(code(refused).0, Code::StateConflict);
}

fn joining(incarnation: i64, epoch: i64, digest: Option<&str>) -> RegisterWorker {
    RegisterWorker {
        worker_id: "w1".parse().expect("worker"),
        incarnation,
        pool_id: pool("gpu"),
        protocol_version: 1,
        descriptor_epoch: epoch,
        runtime_digest: digest.map(str::to_owned),
    }
}

async fn join(world: &World, request: RegisterWorker) -> Result<WorkerView, Error> {
    worker::register::register(&world.engine, &worker_of("gpu"), request).await
}

fn claiming(incarnation: i64) -> ClaimRequest {
    ClaimRequest {
        incarnation,
        ..crate::rig::ask(10, 100)
    }
}

/// R5.2: where the descriptor names a runtime, only workers that have shown it are given work; the pool of the key is the only
/// one that a worker joins, and the epoch in force the only one that it works under.
#[tokio::test]
async fn a_worker_shows_its_runtime_before_it_is_given_work() {
    let world = World::new(settings()).await;
    open(
        &world,
        "gpu",
        &["ocr"],
        json!({"runtimeDigest": "sha256:aa"}),
    )
    .await;
    let run = world.submit(task("ocr")).await;
    let by = worker_of("gpu");
    let claim = |incarnation| worker::claim::claim(&world.engine, &by, claiming(incarnation));
    assert_eq!(code(claim(1).await).0, Code::RuntimeDigestMismatch);
    let wrong = join(&world, joining(1, 1, Some("sha256:bb"))).await;
    assert_eq!(
        code(wrong),
        (
            Code::RuntimeDigestMismatch,
            Some("runtimeDigest".to_owned())
        )
    );
    let early = join(&world, joining(1, 2, Some("sha256:aa"))).await;
    assert_eq!(code(early).0, Code::DescriptorEpochStale);
    let elsewhere = worker_of("builtin");
    let elsewhere = worker::register::register(&world.engine, &elsewhere, joining(1, 1, None));
    assert_eq!(code(elsewhere.await).1.as_deref(), Some("poolId"));

    let joined = join(&world, joining(1, 1, Some("sha256:aa")))
        .await
        .expect("joined");
    assert_eq!((joined.incarnation, joined.descriptor_epoch), (1, 1));
    assert_eq!(ids(&claim(1).await.expect("given").leases), [run]);
    // The next epoch has another runtime: what the old one runs is not given new work.
    let next = descriptor("gpu", 2, &["ocr"], json!({"runtimeDigest": "sha256:cc"}));
    publish(&world.engine, &next).await;
    put_in_force(&world.engine, "gpu", Some(1), 2, None)
        .await
        .expect("in force");
    world.submit(task("ocr")).await;
    assert_eq!(code(claim(1).await).0, Code::DescriptorEpochStale);
    join(&world, joining(2, 2, Some("sha256:cc")))
        .await
        .expect("joined");
    assert_eq!(claim(2).await.expect("given").leases.len(), 1);
}

/// R5.2: where the descriptor names no runtime, a worker may say what it runs all the same, ahead of one that does; what is
/// said for one epoch counts for no other.
#[tokio::test]
async fn a_runtime_may_be_shown_before_it_is_asked_for() {
    let world = World::new(settings()).await;
    open(&world, "gpu", &["ocr"], json!({})).await;
    let run = world.submit(task("ocr")).await;
    join(&world, joining(1, 1, Some("sha256:aa")))
        .await
        .expect("joined");
    let by = worker_of("gpu");
    let claim = || worker::claim::claim(&world.engine, &by, claiming(1));
    assert_eq!(ids(&claim().await.expect("given").leases), [run]);
    let asking = descriptor("gpu", 2, &["ocr"], json!({"runtimeDigest": "sha256:aa"}));
    publish(&world.engine, &asking).await;
    put_in_force(&world.engine, "gpu", Some(1), 2, None)
        .await
        .expect("in force");
    let run = world.submit(task("ocr")).await;
    assert_eq!(code(claim().await).0, Code::DescriptorEpochStale);
    join(&world, joining(1, 2, Some("sha256:aa")))
        .await
        .expect("joined");
    assert_eq!(ids(&claim().await.expect("given").leases), [run]);
}

/// O-10, R5.2: what an earlier start of a worker still says is refused, stands in the audit log, and changes nothing; a
/// heartbeat says nothing but occupancy.
#[tokio::test]
async fn a_late_goodbye_removes_nobody_o_10() {
    let world = World::new(settings()).await;
    open(&world, "gpu", &["ocr"], json!({})).await;
    join(&world, joining(1, 1, None)).await.expect("joined");
    publish(&world.engine, &descriptor("gpu", 2, &["ocr"], json!({}))).await;
    put_in_force(&world.engine, "gpu", Some(1), 2, None)
        .await
        .expect("in force");
    join(&world, joining(2, 2, None)).await.expect("joined");
    let by = worker_of("gpu");
    let beat = |body: Value| worker::register::heartbeat(&world.engine, &by, body);
    let late = json!({"workerId": "w1", "incarnation": 1, "occupied": 3});
    assert_eq!(code(beat(late).await).0, Code::IncarnationStale);
    let leaving = |incarnation| LeavePool {
        worker_id: "w1".parse().expect("worker"),
        incarnation,
    };
    let goodbye = worker::register::leave(&world.engine, &by, leaving(1)).await;
    assert_eq!(code(goodbye).0, Code::IncarnationStale);
    assert_eq!(
        code(join(&world, joining(1, 2, None)).await).0,
        Code::IncarnationStale
    );
    let run = world.submit(task("ocr")).await;
    let stale = worker::claim::claim(&world.engine, &by, claiming(1)).await;
    assert_eq!(code(stale).0, Code::IncarnationStale);
    let actions: Vec<String> =
        sqlx::query_scalar("SELECT action FROM audit_log WHERE subject = 'gpu/w1' ORDER BY seq")
            .fetch_all(world.db.pool())
            .await
            .expect("audit");
    assert_eq!(
        actions,
        ["worker.heartbeat", "worker.leave", "worker.register"]
    );

    let listed = async || {
        let pools = pools::list(&world.engine, &operator())
            .await
            .expect("pools");
        pools
            .into_iter()
            .find(|view| view.pool_id == pool("gpu"))
            .expect("gpu")
            .workers
    };
    let there = listed().await;
    assert_eq!(
        (there.len(), there[0].incarnation, there[0].descriptor_epoch),
        (1, 2, 2)
    );
    let given = worker::claim::claim(&world.engine, &by, claiming(2)).await;
    assert_eq!(ids(&given.expect("given").leases), [run]);
    worker::register::leave(&world.engine, &by, leaving(2))
        .await
        .expect("left");
    assert!(listed().await.is_empty());
}

/// R5.2: a heartbeat says nothing but occupancy; what would raise a right is refused by its name.
#[tokio::test]
async fn a_heartbeat_raises_no_right() {
    let world = World::new(settings()).await;
    open(&world, "gpu", &["ocr"], json!({})).await;
    let by = worker_of("gpu");
    let beat = |body: Value| worker::register::heartbeat(&world.engine, &by, body);
    let fresh = json!({"workerId": "w1", "incarnation": 2, "occupied": 3});
    assert_eq!(code(beat(fresh.clone()).await).0, Code::NotFound);
    join(&world, joining(2, 1, None)).await.expect("joined");
    assert_eq!(beat(fresh.clone()).await.expect("noted").occupied, 3);
    for (member, value) in [("labels", json!(["pii"])), ("descriptorEpoch", json!(9))] {
        let mut raising = fresh.clone();
        raising[member] = value;
        let refused = code(beat(raising).await);
        assert_eq!(refused, (Code::UnknownField, Some(member.to_owned())));
    }
    let mut absurd = fresh;
    absurd["occupied"] = json!(-1);
    assert_eq!(code(beat(absurd).await).1.as_deref(), Some("occupied"));
}

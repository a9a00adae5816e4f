//! Histories of the ledger: random admissions, phases, releases, expiries, claims, ends and changes of capacity by four
//! instances at once, with faults at every step of a transaction; judged from the records alone (R7.4).
//!
//! `TIDEGATE_LEDGER_STEPS` says how many steps each instance takes (`make soak` raises it), `TIDEGATE_LEDGER_SEED` repeats
//! one history's choices.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail loudly")]

mod rig;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use rig::{EPOCH, World, report_of, rules, tenant};
use tidegate_model::{
    AdmissionId, Fence, PoolId,
    admission::AdmissionState,
    digest::Digest,
    run::{QuotaBucket, RunKind},
};
use tidegate_policy::{
    ledger::{Part, Vector},
    retry::Report,
};
use tidegate_store::{
    Author, Store,
    attempts::{admitted::BoundedAsk, close::Closer, open::OpenedLease},
    ledger::{
        AdmissionKey,
        batch::{Ask, Candidate, Change, Outcome, Wanted},
    },
};
use uuid::Uuid;

const RESOURCES: [(&str, i64); 5] = [
    ("shared/a", 6),
    ("shared/b", 9),
    ("shared/c", 4),
    ("shared/d", 30),
    ("pool/builtin", 12),
];
const IDS: u64 = 60;
const INSTANCES: u64 = 4;
/// Where a transaction can break, each time with a chance of one in so many.
const POINTS: [&str; 7] = [
    "ledger_locked",
    "ledger_before_write",
    "ledger_before_commit",
    "expire_before_commit",
    "open_admitted_before_count",
    "open_admitted_before_commit",
    "close_before_commit",
];

/// What was answered, by admission: the latest fence, and whether it was over.
type Acknowledged = Arc<Mutex<HashMap<AdmissionKey, (Fence, bool)>>>;

struct Instance {
    world: Arc<World>,
    store: Store,
    rng: SmallRng,
    resources: Vec<i32>,
    leases: Vec<OpenedLease>,
    acknowledged: Acknowledged,
}

fn number(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().expect("a number"))
}

impl Instance {
    fn key(&mut self) -> AdmissionKey {
        let of = if self.rng.random_bool(0.5) {
            "acme"
        } else {
            "globex"
        };
        AdmissionKey {
            tenant: tenant(of),
            id: AdmissionId::from_uuid(Uuid::from_u128(self.rng.random_range(0..IDS).into())),
        }
    }

    fn vector(&mut self) -> Vector {
        let parts = (0..self.rng.random_range(0..4)).map(|_| {
            let at = self.rng.random_range(0..self.resources.len());
            Part {
                resource: self.resources[at],
                amount: self.rng.random_range(1..4),
            }
        });
        Vector::of(parts.collect::<Vec<_>>()).expect("small")
    }

    fn wanted(&mut self) -> Wanted {
        Wanted {
            digest: Digest([u8::from(self.rng.random_bool(0.1)); 32]),
            policy_generation: 1,
            candidates: vec![Candidate {
                pool: PoolId::builtin(),
                epoch: EPOCH,
                vector: self.vector(),
            }],
            scored: self.rng.random_bool(0.5),
            ttl_ms: if self.rng.random_bool(0.5) {
                self.rng.random_range(1..60)
            } else {
                3_000
            },
            if_version: None,
        }
    }

    /// The fence as it was answered last, now and then an older one.
    fn fence(&mut self, key: &AdmissionKey) -> Fence {
        let known = self.acknowledged.lock().expect("lock").get(key).copied();
        let mut fence = known.map_or(
            Fence {
                generation: 1,
                number: 1,
            },
            |(fence, _)| fence,
        );
        if self.rng.random_bool(0.2) {
            fence.number -= 1;
        }
        fence
    }

    fn ask(&mut self) -> Ask {
        let key = self.key();
        if self.rng.random_bool(0.5) {
            return Ask::Admit(key, self.wanted());
        }
        let fence = self.fence(&key);
        let used = |rng: &mut SmallRng| (rng.random_range(0..4), rng.random_range(0..6));
        let change = match self.rng.random_range(0..4) {
            0 => Change::Renew(self.rng.random_bool(0.5).then_some(500)),
            1 => Change::Release(vec![used(&mut self.rng)]),
            2 => Change::EndPhase {
                settle: vec![used(&mut self.rng), used(&mut self.rng)],
                release: vec![self.rng.random_range(0..3)],
                next: None,
            },
            _ => Change::EndPhase {
                settle: Vec::new(),
                release: Vec::new(),
                next: Some(self.wanted()),
            },
        };
        Ask::Change(key, fence, change)
    }

    async fn batch(&mut self) {
        let asks: Vec<Ask> = (0..self.rng.random_range(1..9))
            .map(|_| self.ask())
            .collect();
        let answers = self.store.fleet().ledger_batch("main", asks.clone()).await;
        // A batch that met a fault has done nothing that anybody was told of.
        let Ok(answers) = answers else { return };
        assert_eq!(answers.len(), asks.len());
        let mut acknowledged = self.acknowledged.lock().expect("lock");
        for answer in answers {
            let (Outcome::Done(admission) | Outcome::Ended(admission)) = answer.outcome else {
                continue;
            };
            let over = admission.state.is_ended();
            let (fence, was_over) = acknowledged
                .entry(admission.key.clone())
                .or_insert((admission.fence, over));
            // Answers of different instances may come here in another order than they were decided.
            if admission.fence > *fence {
                assert!(!*was_over, "{:?} came back", admission.key);
                (*fence, *was_over) = (admission.fence, over);
            }
        }
    }

    async fn claim(&mut self) {
        let of = tenant(if self.rng.random_bool(0.5) {
            "acme"
        } else {
            "globex"
        });
        let lane = self.world.ask(&of, QuotaBucket::Uncounted, 3, None).await;
        let ask = BoundedAsk {
            lane,
            vector: Arc::new(self.vector()),
            waited: self.rng.random_bool(0.2),
        };
        let lease_ms = if self.rng.random_bool(0.5) {
            40
        } else {
            60_000
        };
        let holder = self.world.holder("w", lease_ms);
        let fleet = self.store.fleet();
        if let Ok(admitted) = fleet.open_admitted(&holder, &[ask], false).await {
            self.leases.extend(admitted.leases);
        }
    }

    async fn close(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.leases.len());
        let lease = self.leases.swap_remove(at);
        let (report, closer) = match self.rng.random_range(0..3) {
            0 => (Report::Completed, Closer::Holder),
            1 => (Report::Released, Closer::Holder),
            _ => (Report::LeaseLost, Closer::Takeover),
        };
        let reports = vec![report_of(&lease, report)];
        let outcome = self
            .store
            .fleet()
            .close_attempts(reports, closer, &rules())
            .await;
        if !outcome.is_ok_and(|ended| !ended.is_empty()) {
            self.leases.push(lease);
        }
    }

    async fn resize(&mut self) {
        let (name, capacity) = RESOURCES[self.rng.random_range(0..RESOURCES.len())];
        let capacity = self.rng.random_range(0..=capacity);
        let name = name.parse().expect("resource");
        let author = Author::system();
        // A fault is a change that did not happen.
        let _outcome = self
            .store
            .put_resource("main", &name, capacity, &author)
            .await;
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..=9 => self.batch().await,
            10..=12 => self.claim().await,
            13..=15 => self.close().await,
            16 => {
                let of = tenant(if self.rng.random_bool(0.5) {
                    "acme"
                } else {
                    "globex"
                });
                self.world.submit(&of, RunKind::BusinessTask).await;
            }
            17 => self.resize().await,
            18 => {
                let _outcome = self.store.fleet().expire_admissions("main", 7).await;
            }
            _ => tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..4))).await,
        }
    }
}

/// Every counter against the sum of what is held, in one look.
async fn audit(store: &Store, seed: u64) {
    let audit = store.audit_ledger("main").await.expect("audit");
    assert!(audit.balanced, "seed {seed}: {audit:?}");
}

async fn history(seed: u64, steps: u64) {
    let world = Arc::new(World::new(&["acme", "globex"]).await);
    let mut resources = Vec::new();
    for (name, capacity) in RESOURCES {
        let name = name.parse().expect("resource");
        let author = Author::system();
        let put = world
            .store
            .put_resource("main", &name, capacity, &author)
            .await;
        put.expect("resource");
    }
    for known in world
        .store
        .known_resources("main")
        .await
        .expect("resources")
    {
        resources.push(known.resource);
    }
    let acknowledged = Acknowledged::default();
    for point in POINTS {
        fail::cfg(point, "4%return").expect("failpoint");
    }
    let mut instances = tokio::task::JoinSet::new();
    for at in 0..INSTANCES {
        let mut instance = Instance {
            world: Arc::clone(&world),
            store: world.store.clone(),
            rng: SmallRng::seed_from_u64(seed * INSTANCES + at),
            resources: resources.clone(),
            leases: Vec::new(),
            acknowledged: Arc::clone(&acknowledged),
        };
        instances.spawn(async move {
            for step in 0..steps {
                instance.step().await;
                if step % 40 == 0 {
                    audit(&instance.store, seed).await;
                }
            }
        });
    }
    while let Some(ended) = instances.join_next().await {
        ended.expect("no panic");
    }
    for point in POINTS {
        fail::remove(point);
    }
    judge(&world, seed, &acknowledged).await;
}

/// What was answered is on record, each id once, and when all of it is over nothing is in use.
async fn judge(world: &World, seed: u64, acknowledged: &Acknowledged) {
    audit(&world.store, seed).await;
    let twice = "SELECT count(*) FROM admissions_open o JOIN admissions_done d USING (tenant, admission_id)";
    assert_eq!(
        world.count(twice).await,
        0,
        "seed {seed}: open and over at once"
    );
    let answered: Vec<_> = {
        let all = acknowledged.lock().expect("lock");
        all.iter().map(|(key, seen)| (key.clone(), *seen)).collect()
    };
    assert!(!answered.is_empty());
    for (key, (fence, over)) in answered {
        let found = world
            .store
            .tenant(&key.tenant)
            .admission(key.id)
            .await
            .expect("look");
        let found =
            found.unwrap_or_else(|| panic!("seed {seed}: {key:?} was answered and is not there"));
        assert!(
            found.fence >= fence,
            "seed {seed}: {found:?} is older than what was answered"
        );
        assert!(
            !over || found.state.is_ended(),
            "seed {seed}: {found:?} was over"
        );
    }
    end_everything(world).await;
    audit(&world.store, seed).await;
    let left = world
        .count("SELECT coalesce(sum(in_use), 0)::bigint FROM resources")
        .await;
    assert_eq!(left, 0, "seed {seed}: something leaked");
}

/// Lets the time of every admission and of every lease run out.
async fn end_everything(world: &World) {
    sqlx::query("UPDATE admissions_open SET expires_at = clock_timestamp() - interval '1 second'")
        .execute(world.db.pool())
        .await
        .expect("late");
    world.expire_leases().await;
    world
        .store
        .fleet()
        .expire_admissions("main", i64::MAX)
        .await
        .expect("expire");
    let lost = world
        .store
        .fleet()
        .expired_leases("main", 10_000)
        .await
        .expect("lost");
    let reports: Vec<_> = lost
        .into_iter()
        .map(|lease| tidegate_store::attempts::close::CloseReport {
            lease,
            report: Report::LeaseLost,
            detail: None,
            tokens: 0,
            result: None,
            messages: Vec::new(),
            wait: None,
        })
        .collect();
    let fleet = world.store.fleet();
    fleet
        .close_attempts(reports, Closer::Takeover, &rules())
        .await
        .expect("closed");
}

/// R7.4, R7.5, R7.3: whatever breaks where, every counter is the sum of what is held, what was answered stays, and nothing
/// leaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_history_adds_up() {
    let steps = number("TIDEGATE_LEDGER_STEPS", 250);
    let seeds = match number("TIDEGATE_LEDGER_SEED", 0) {
        0 => vec![1, 2],
        seed => vec![seed],
    };
    for seed in seeds {
        history(seed, steps).await;
    }
}

/// One resource of which there is one.
struct Single {
    world: World,
    resource: i32,
}

impl Single {
    async fn new() -> Self {
        let world = World::new(&["acme"]).await;
        let name = "shared/a".parse().expect("resource");
        let author = Author::system();
        let put = world.store.put_resource("main", &name, 1, &author).await;
        put.expect("resource");
        let known = world.store.known_resources("main").await.expect("known");
        let resource = known[0].resource;
        Self { world, resource }
    }

    fn admit(&self, at: u128) -> Ask {
        let part = Part {
            resource: self.resource,
            amount: 1,
        };
        let wanted = Wanted {
            digest: Digest([0; 32]),
            policy_generation: 1,
            candidates: vec![Candidate {
                pool: PoolId::builtin(),
                epoch: EPOCH,
                vector: Vector::of([part]).expect("vector"),
            }],
            scored: false,
            ttl_ms: 60_000,
            if_version: None,
        };
        Ask::Admit(numbered(at), wanted)
    }

    async fn batch(&self, asks: Vec<Ask>) -> Vec<Outcome> {
        let answers = self.world.store.fleet().ledger_batch("main", asks).await;
        let answers = answers.expect("batch");
        answers.into_iter().map(|answer| answer.outcome).collect()
    }
}

fn numbered(at: u128) -> AdmissionKey {
    AdmissionKey {
        tenant: tenant("acme"),
        id: AdmissionId::from_uuid(Uuid::from_u128(at)),
    }
}

/// R7.1, R7.2, R7.6: within one batch each call sees what those before it did.
#[tokio::test]
async fn calls_of_one_batch_see_each_other() {
    let single = Single::new().await;
    let first = vec![single.admit(1), single.admit(1), single.admit(2)];
    let first = single.batch(first).await;
    let Outcome::Done(admitted) = &first[0] else {
        panic!("{first:?}");
    };
    assert_eq!(first[1], first[0], "the same again");
    assert!(matches!(first[2], Outcome::Refused(_)), "{first:?}");
    let fence = admitted.fence;
    let second = vec![
        Ask::Change(numbered(1), fence, Change::Release(Vec::new())),
        single.admit(2),
        Ask::Change(numbered(1), fence, Change::Renew(None)),
        single.admit(1),
        Ask::Change(numbered(3), fence, Change::Renew(None)),
    ];
    let second = single.batch(second).await;
    let active = matches!(&second[1], Outcome::Done(two) if two.state == AdmissionState::Active);
    assert!(active, "what the first gave back: {second:?}");
    assert!(matches!(second[2], Outcome::Ended(_)), "{second:?}");
    assert!(matches!(second[3], Outcome::Ended(_)), "an id is used once");
    assert_eq!(second[4], Outcome::Unknown);
    audit(&single.world.store, 0).await;
}

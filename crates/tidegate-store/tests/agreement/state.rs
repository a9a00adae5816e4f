//! Random states of the queue, in memory and in the database.

use rand::{Rng, RngExt as _, rngs::SmallRng, seq::IndexedRandom as _};
use tidegate_model::{RunId, TenantId, run::QuotaBucket};
use tidegate_policy::buckets::{BUILT_IN_TIERS, Tier};
use tidegate_store::attempts::bucket_number;
use uuid::Uuid;

use crate::rig::World;

/// The last one is suspended.
pub const TENANTS: [&str; 5] = ["acme", "globex", "initech", "umbrella", "suspended"];
const CLASSES_PER_TENANT: usize = 3;

#[derive(Debug, Clone)]
pub struct Run {
    pub id: RunId,
    pub rank: i16,
    pub urgency: i16,
    pub position: i64,
    pub created_ms: i64,
    pub expired: bool,
}

#[derive(Debug, Clone)]
pub struct Lane {
    pub bucket: QuotaBucket,
    pub tenant: TenantId,
    pub class: i32,
    /// In the order of the lane.
    pub runs: Vec<Run>,
}

#[derive(Debug)]
pub struct State {
    pub scope: String,
    pub planned: bool,
    pub tier: Tier,
    pub lanes: Vec<Lane>,
    /// Leases by bucket and tenant, with a slot where they are background.
    pub leases: Vec<(QuotaBucket, TenantId, i32, Option<i16>)>,
    salt: u64,
}

pub fn is_suspended(tenant: &TenantId) -> bool {
    tenant.as_str() == TENANTS[TENANTS.len() - 1]
}

/// Classes of each tenant, made once.
pub async fn make_classes(world: &World) -> Vec<(TenantId, Vec<i32>)> {
    let mut made = Vec::new();
    for name in TENANTS {
        let mut classes = Vec::new();
        for n in 0..CLASSES_PER_TENANT {
            let mut digest = [0; 32];
            digest[0] = u8::try_from(n).expect("few classes");
            let class: i32 = sqlx::query_scalar(
                "INSERT INTO requirement_classes (tenant, digest, capability, requirements)
                 VALUES ($1, $2, $3, '{}') RETURNING class",
            )
            .bind(name)
            .bind(digest.as_slice())
            .bind(format!("cap{n}"))
            .fetch_one(world.db.pool())
            .await
            .expect("class");
            classes.push(class);
        }
        made.push((name.parse().expect("tenant"), classes));
    }
    made
}

impl State {
    pub fn random(rng: &mut SmallRng, classes: &[(TenantId, Vec<i32>)], number: u32) -> Self {
        let planned = rng.random_bool(0.5);
        let mut state = Self {
            scope: format!("s{number}"),
            planned,
            tier: *BUILT_IN_TIERS.choose(rng).expect("tiers"),
            lanes: Vec::new(),
            leases: Vec::new(),
            salt: rng.next_u64(),
        };
        let mut position = i64::from(number) * 1_000;
        for (tenant, classes) in classes {
            for bucket in QuotaBucket::ALL {
                if rng.random_bool(0.5) {
                    continue;
                }
                state.add_leases(rng, *bucket, tenant, classes[0]);
                for class in classes {
                    if rng.random_bool(0.4) {
                        let runs = random_runs(rng, &mut position, !planned);
                        state.lanes.push(Lane {
                            bucket: *bucket,
                            tenant: tenant.clone(),
                            class: *class,
                            runs,
                        });
                    }
                }
            }
        }
        state
    }

    fn add_leases(
        &mut self,
        rng: &mut SmallRng,
        bucket: QuotaBucket,
        tenant: &TenantId,
        class: i32,
    ) {
        let leases = rng.random_range(0..4);
        // Slots need not be the lowest ones: a cap may have been lowered since.
        let mut slot = 0;
        for _ in 0..leases {
            slot += rng.random_range(1..3);
            let slot = (bucket == QuotaBucket::Background).then_some(slot);
            self.leases.push((bucket, tenant.clone(), class, slot));
        }
    }

    pub fn lane(&self, bucket: QuotaBucket, tenant: &TenantId, class: i32) -> Option<&Lane> {
        self.lanes
            .iter()
            .find(|lane| lane.bucket == bucket && lane.tenant == *tenant && lane.class == class)
    }

    pub fn running(&self, bucket: QuotaBucket, tenant: &TenantId) -> i64 {
        let leases = self
            .leases
            .iter()
            .filter(|lease| lease.0 == bucket && lease.1 == *tenant);
        i64::try_from(leases.count()).expect("few leases")
    }

    pub fn weight(&self, tenant: &TenantId) -> u32 {
        let byte = tenant.as_str().as_bytes()[0];
        1 + u32::from(byte ^ self.salt.to_le_bytes()[0]) % 4
    }

    pub fn pass(&self, tenant: &TenantId) -> u64 {
        let byte = tenant.as_str().as_bytes()[0];
        u64::from(byte ^ self.salt.to_le_bytes()[1]) % 3 * 1_000_000
    }
}

fn random_runs(rng: &mut SmallRng, position: &mut i64, may_expire: bool) -> Vec<Run> {
    let mut runs: Vec<Run> = (0..rng.random_range(1..6))
        .map(|_| {
            *position += 1;
            Run {
                id: RunId::new(),
                rank: i16::from(!rng.random_bool(0.2)),
                urgency: -rng.random_range(0..3_i16),
                position: *position,
                created_ms: 1_700_000_000_000 + rng.random_range(0..1_000),
                expired: may_expire && rng.random_bool(0.1),
            }
        })
        .collect();
    runs.sort_by_key(|run| (run.rank, run.urgency, run.position));
    runs
}

/// Columns of the rows of a batch.
#[derive(Default)]
struct Columns {
    scopes: Vec<String>,
    buckets: Vec<i16>,
    tenants: Vec<String>,
    classes: Vec<i32>,
    runs: Vec<Uuid>,
    ranks: Vec<i16>,
    urgencies: Vec<i16>,
    positions: Vec<i64>,
    created: Vec<i64>,
    expired: Vec<bool>,
    slots: Vec<Option<i16>>,
}

impl Columns {
    fn push(&mut self, scope: &str, bucket: QuotaBucket, tenant: &TenantId, class: i32, run: &Run) {
        self.scopes.push(scope.to_owned());
        self.buckets.push(bucket_number(bucket));
        self.tenants.push(tenant.to_string());
        self.classes.push(class);
        self.runs.push(run.id.as_uuid());
        self.ranks.push(run.rank);
        self.urgencies.push(run.urgency);
        self.positions.push(run.position);
        self.created.push(run.created_ms);
        self.expired.push(run.expired);
    }
}

/// Writes states as the rest of the system would have left them.
pub async fn write(world: &World, states: &[State]) {
    let mut queued = Columns::default();
    let mut leased = Columns::default();
    for state in states {
        for lane in &state.lanes {
            for run in &lane.runs {
                queued.push(&state.scope, lane.bucket, &lane.tenant, lane.class, run);
            }
        }
        for (bucket, tenant, class, slot) in &state.leases {
            let run = Run {
                id: RunId::new(),
                rank: 1,
                urgency: 0,
                position: 0,
                created_ms: 1_700_000_000_000,
                expired: false,
            };
            leased.push(&state.scope, *bucket, tenant, *class, &run);
            leased.slots.push(*slot);
        }
    }
    write_runs(world, &queued).await;
    write_runs(world, &leased).await;
    sqlx::query(
        "INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, position, run_id, next_seq, expires_at)
         SELECT scope, bucket, tenant, class, rank, urgency, position, run_id, 2,
                clock_timestamp() + CASE WHEN expired THEN interval '-1 hour' ELSE interval '1 day' END
         FROM unnest($1::text[], $2::smallint[], $3::text[], $4::integer[], $5::smallint[], $6::smallint[],
                     $7::bigint[], $8::uuid[], $9::boolean[])
              AS q(scope, bucket, tenant, class, rank, urgency, position, run_id, expired)",
    )
    .bind(&queued.scopes)
    .bind(&queued.buckets)
    .bind(&queued.tenants)
    .bind(&queued.classes)
    .bind(&queued.ranks)
    .bind(&queued.urgencies)
    .bind(&queued.positions)
    .bind(&queued.runs)
    .bind(&queued.expired)
    .execute(world.db.pool())
    .await
    .expect("queue");
    sqlx::query(
        "WITH given AS (
            SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::integer[], $5::uuid[], $6::smallint[])
                AS l(scope, bucket, tenant, class, run_id, slot)
        ), slots AS (
            INSERT INTO background_slots (scope, tenant, slot, run_id)
            SELECT scope, tenant, slot, run_id FROM given WHERE bucket = 1
        )
        INSERT INTO run_leases (scope, bucket, tenant, run_id, class, urgency, attempt, fence_generation, fence_number,
            leases_lost, spent_tokens, spent_ms, next_seq, pool, holder, incarnation, instance_id, queued_at, started_at,
            lease_until)
        SELECT scope, bucket, tenant, run_id, class, 0, 1, 1, 1, 0, 0, 0, 3, 'builtin', 'w', 1, $7, clock_timestamp(),
            clock_timestamp(), clock_timestamp() + interval '1 hour' FROM given",
    )
    .bind(&leased.scopes)
    .bind(&leased.buckets)
    .bind(&leased.tenants)
    .bind(&leased.classes)
    .bind(&leased.runs)
    .bind(&leased.slots)
    .bind(world.instance.as_uuid())
    .execute(world.db.pool())
    .await
    .expect("leases");
}

async fn write_runs(world: &World, rows: &Columns) {
    sqlx::query(
        "INSERT INTO agent_runs (tenant, run_id, scope, kind, capability, class, service_class, priority,
            priority_source, conversation_id, turn_no, root_run_id, request_digest, max_attempts, backoff_base_ms,
            backoff_max_ms, created_at, input)
         SELECT tenant, run_id, scope,
            CASE bucket WHEN 0 THEN 'conversation_turn' WHEN 1 THEN 'background_work.v1' ELSE 'business_task' END,
            'cap0', class, 'standard', -urgency, 'default', CASE bucket WHEN 0 THEN run_id END,
            CASE bucket WHEN 0 THEN 1 END, run_id, decode(repeat('00', 32), 'hex'), 5, 1, 1,
            to_timestamp(created_ms / 1000.0), '{}'
         FROM unnest($1::text[], $2::uuid[], $3::text[], $4::smallint[], $5::integer[], $6::smallint[], $7::bigint[])
              AS r(tenant, run_id, scope, bucket, class, urgency, created_ms)",
    )
    .bind(&rows.tenants)
    .bind(&rows.runs)
    .bind(&rows.scopes)
    .bind(&rows.buckets)
    .bind(&rows.classes)
    .bind(&rows.urgencies)
    .bind(&rows.created)
    .execute(world.db.pool())
    .await
    .expect("runs");
}

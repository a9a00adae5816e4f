//! `POST /v1/worker/claim`: plan on the view, open by arrays, wait for work (R3.3 to R3.6, R4.1).

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tidegate_model::{
    PoolId, TenantId,
    api::{ClaimAnswer, ClaimRequest, Lease, LeasedRun, RunBudget},
    limits,
    run::QuotaBucket,
};
use tidegate_store::attempts::{
    LeaseKey,
    admitted::{Admitted, BoundedAsk},
    open::{Holder, LaneAsk, OpenedLease},
};
use tokio_util::sync::CancellationToken;

use super::register::{Shown, check_incarnation, check_protocol};
use crate::{
    Engine, Error, Principal,
    claims::{Asked, Serves, Share, Want},
    pools::Served,
};

/// How long to wait before a lane is asked again whose lock another claim holds; spread by half of it.
const CONTENDED: Duration = Duration::from_millis(10);

/// Takes runs for a worker, waiting up to `waitMs` for some. Empty where there are none, and while draining.
pub async fn claim(
    engine: &Engine,
    principal: &Principal,
    request: ClaimRequest,
) -> Result<ClaimAnswer, Error> {
    claim_until(engine, principal, request, &CancellationToken::new()).await
}

/// The same until nobody wants the answer any more: then it asks for nothing more, but takes what it has asked for. A claim
/// must not be dropped instead, because leases that are committed and never seen are held by nobody until they expire.
pub async fn claim_until(
    engine: &Engine,
    principal: &Principal,
    request: ClaimRequest,
    unwanted: &CancellationToken,
) -> Result<ClaimAnswer, Error> {
    check(&request)?;
    let pool = principal.require_pool()?;
    let (worker, incarnation) = (request.worker_id.as_str(), request.incarnation);
    let shown = Shown::look(engine, pool, worker, incarnation).await?;
    let until = Instant::now() + Duration::from_millis(request.wait_ms);
    let every = Duration::from_millis(u64::from(engine.settings().claim_poll_ms));
    let background = request.max_background != Some(0);
    let waiting = engine.claims().wait_for(pool, background, request.max);
    loop {
        let woken = waiting.woken();
        tokio::pin!(woken);
        // Registered before looking: work that comes in between wakes us.
        woken.as_mut().enable();
        if engine.is_draining() || unwanted.is_cancelled() {
            return Ok(ClaimAnswer { leases: Vec::new() });
        }
        let served = engine.served_by(pool).await?;
        shown.check(pool, &served)?;
        let holder = holder(engine, pool, served.epoch(), &request);
        let look = claim_now(engine, &holder, &served, &request).await?;
        // Classes that were short are left out of the next look, so this ends.
        if look.leases.is_empty() && look.short {
            continue;
        }
        let left = until.saturating_duration_since(Instant::now());
        if !look.leases.is_empty() || left.is_zero() {
            return Ok(ClaimAnswer {
                leases: look.leases,
            });
        }
        // Polls are spread, so that claims that missed the same wake-up do not come back together.
        let spread = every.mul_f64(0.75 + 0.5 * crate::clock::jitter());
        let pause = look
            .again_in
            .map_or(spread, |soon| spread.min(soon))
            .min(left);
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep(pause) => {}
            () = unwanted.cancelled() => {}
        }
    }
}

fn check(request: &ClaimRequest) -> Result<(), Error> {
    check_protocol(request.protocol_version)?;
    check_incarnation(request.incarnation)?;
    if !(1..=limits::CLAIM_MAX).contains(&request.max) {
        return Err(Error::invalid("max", format!("1 to {}", limits::CLAIM_MAX)));
    }
    if request.wait_ms > limits::CLAIM_WAIT_MAX_MS {
        return Err(Error::invalid(
            "waitMs",
            format!("at most {}", limits::CLAIM_WAIT_MAX_MS),
        ));
    }
    Ok(())
}

fn holder(engine: &Engine, pool: &PoolId, epoch: i64, request: &ClaimRequest) -> Holder {
    Holder {
        scope: engine.settings().execution_scope.clone(),
        pool: pool.clone(),
        epoch,
        worker: request.worker_id.to_string(),
        incarnation: request.incarnation,
        instance: engine.instance(),
        lease_ms: i64::from(engine.settings().lease_ms),
    }
}

/// What is known of the classes that a claim's pool may serve, and those of which that has to be found out.
#[derive(Debug)]
struct Serving {
    verdicts: Arc<HashMap<i32, bool>>,
    /// Classes that were short a moment ago.
    short: Vec<i32>,
    unknown: parking_lot::Mutex<Vec<i32>>,
}

impl Serves for Serving {
    fn serves(&self, class: i32) -> bool {
        if self.short.contains(&class) {
            return false;
        }
        self.verdicts.get(&class).copied().unwrap_or_else(|| {
            self.unknown.lock().push(class);
            false
        })
    }
}

/// What one look gave.
struct Look {
    leases: Vec<Lease>,
    /// Whether something was short, so that what stands behind it may fit.
    short: bool,
    /// When to look again although nothing says that there is more.
    again_in: Option<Duration>,
}

async fn claim_now(
    engine: &Engine,
    holder: &Holder,
    served: &Served,
    request: &ClaimRequest,
) -> Result<Look, Error> {
    let owed = engine.read_lanes().await?;
    let claims = engine.claims();
    let tiers = engine.tiers().await?;
    let share = |tenant: &TenantId| Share::of(&tiers, tenant);
    claims.know(&tiers);
    let asked = plan(engine, served, request, share).await?;
    if asked.asks.is_empty() {
        return Ok(Look {
            leases: Vec::new(),
            short: false,
            again_in: soonest(owed, left_alone(engine, &holder.pool)),
        });
    }
    let started = Instant::now();
    let took = open(engine, holder, &asked, share).await?;
    drop(asked);
    let Took {
        opened,
        again,
        short,
    } = took;
    if !opened.is_empty() {
        claims.wake_next(&holder.pool);
    }
    metrics::histogram!("tidegate_claim_seconds").record(started.elapsed().as_secs_f64());
    let again_in = if again {
        Some(CONTENDED.mul_f64(0.5 + crate::clock::jitter()))
    } else {
        owed
    };
    Ok(Look {
        leases: hand_out(engine, holder, opened),
        short,
        again_in,
    })
}

/// How long until a class is looked at again that was short.
fn left_alone(engine: &Engine, pool: &PoolId) -> Option<Duration> {
    let now = Instant::now();
    let (_, first) = engine.claims().short.lock().of(pool, now);
    first.map(|first| first.saturating_duration_since(now))
}

fn soonest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What the lanes gave that were asked.
#[derive(Default)]
struct Took {
    opened: Vec<OpenedLease>,
    again: bool,
    /// Whether something was short: what stands behind may fit.
    short: bool,
}

/// Asks the lanes: those that share no bucket's hard cap first, background ones after them.
async fn open(
    engine: &Engine,
    holder: &Holder,
    asked: &Asked<'_>,
    share: impl Fn(&TenantId) -> Share + Copy,
) -> Result<Took, Error> {
    let (background, counted): (Vec<LaneAsk>, Vec<LaneAsk>) = asked
        .asks
        .iter()
        .cloned()
        .partition(|ask| ask.bucket == QuotaBucket::Background);
    let claims = engine.claims();
    let mut took = Took::default();
    open_lanes(
        engine,
        holder,
        &counted,
        false,
        &mut took,
        asked.known,
        share,
    )
    .await?;
    if !background.is_empty() {
        // What the first statement opened is held already: an error here must not lose it.
        let more = open_lanes(
            engine,
            holder,
            &background,
            true,
            &mut took,
            asked.known,
            share,
        );
        match more.await {
            Ok(()) => claims.background.lock().over(),
            Err(error) if took.opened.is_empty() => return Err(error),
            Err(error) => claims.background.lock().met(&error),
        }
    }
    Ok(took)
}

/// Asks lanes of one kind: over the ledger where a run of them takes something of it, else by one statement that locks no
/// book.
async fn open_lanes(
    engine: &Engine,
    holder: &Holder,
    asks: &[LaneAsk],
    is_background: bool,
    took: &mut Took,
    known: u64,
    share: impl Fn(&TenantId) -> Share + Copy,
) -> Result<(), Error> {
    let fleet = engine.store().fleet();
    let bounded = bounded(engine, &holder.pool, asks).await?;
    let (asks, opened) = match bounded {
        None if is_background => (asks.to_vec(), fleet.open_background(holder, asks).await?),
        None => (asks.to_vec(), fleet.open_foreground(holder, asks).await?),
        Some(bounded) => {
            let admitted = fleet.open_admitted(holder, &bounded, is_background).await?;
            took.short |= note_short(engine, holder, &bounded, &admitted);
            took.short |= bounded.len() < asks.len();
            (admitted.asks, admitted.leases)
        }
    };
    let mut book = engine.claims().book.lock();
    took.again |= book.took(known, &asks, &opened, share);
    took.opened.extend(opened);
    Ok(())
}

/// The lanes with what their runs take; `None` where none takes anything that has a bound. A lane whose requirements name
/// what is not there waits.
async fn bounded(
    engine: &Engine,
    pool: &PoolId,
    asks: &[LaneAsk],
) -> Result<Option<Vec<BoundedAsk>>, Error> {
    let resources = engine.resources().await?;
    let classes: Vec<i32> = asks.iter().map(|ask| ask.class).collect();
    engine.requirements(&classes).await?;
    let now = Instant::now();
    let set_aside_after = Duration::from_millis(u64::from(engine.settings().set_aside_ms));
    let mut all = Vec::with_capacity(asks.len());
    let mut any = false;
    for ask in asks {
        let task = engine.requirements_of(ask.class);
        let Some(Ok(vector)) = task.map(|task| resources.vector_of_class(ask.class, &task, pool))
        else {
            engine
                .claims()
                .short
                .lock()
                .met(pool, ask.class, Instant::now());
            any = true;
            continue;
        };
        any |= !vector.is_empty();
        let waited = engine.claims().short.lock().waited(pool, ask.class, now);
        all.push(BoundedAsk {
            lane: ask.clone(),
            vector,
            waited: waited >= set_aside_after,
        });
    }
    Ok(any.then_some(all))
}

/// Remembers which classes were short and which were not; whether any was.
fn note_short(engine: &Engine, holder: &Holder, asks: &[BoundedAsk], admitted: &Admitted) -> bool {
    let now = Instant::now();
    let mut short = engine.claims().short.lock();
    for ask in asks {
        let class = ask.lane.class;
        match admitted.short.iter().find(|(short, _)| *short == class) {
            Some(_) => {
                short.met(&holder.pool, class, now);
            }
            None => short.over(&holder.pool, class),
        }
    }
    metrics::counter!("tidegate_claims_short_total").increment(admitted.short.len() as u64);
    !admitted.short.is_empty()
}

/// What to ask of which lanes. Classes of which it is not known whether the pool may serve them are found out first.
async fn plan<'a>(
    engine: &'a Engine,
    served: &Served,
    request: &ClaimRequest,
    share: impl Fn(&TenantId) -> Share + Copy,
) -> Result<Asked<'a>, Error> {
    let most = request.max;
    let pool = &served.descriptor.pool_id;
    let (short, _) = engine.claims().short.lock().of(pool, Instant::now());
    loop {
        let serving = Serving {
            verdicts: served.verdicts(),
            short: short.clone(),
            unknown: parking_lot::Mutex::default(),
        };
        let want = Want {
            serves: &serving,
            runs: most,
            background: request.max_background.unwrap_or(most).min(most),
            fair: engine.settings().run_fairness,
        };
        let asked = engine.claims().ask(want, share).await;
        let unknown = serving.unknown.into_inner();
        if unknown.is_empty() {
            return Ok(asked);
        }
        drop(asked);
        served.learn(engine, &unknown).await?;
    }
}

fn hand_out(engine: &Engine, holder: &Holder, opened: Vec<OpenedLease>) -> Vec<Lease> {
    let mut leases = Vec::with_capacity(opened.len());
    for lease in opened {
        let queued = Duration::from_millis(u64::try_from(lease.queued_ms).unwrap_or(0));
        metrics::histogram!("tidegate_queue_wait_seconds", "service_class" => lease.service_class.as_str())
            .record(queued.as_secs_f64());
        engine.remember(LeaseKey {
            bucket: lease.bucket,
            tenant: lease.tenant.clone(),
            run_id: lease.run_id,
            conversation_id: lease.conversation_id,
            pool: holder.pool.clone(),
        });
        if lease.in_tree {
            engine.in_trees().insert(lease.run_id, ());
        }
        leases.push(to_lease(lease, holder.lease_ms));
    }
    leases
}

fn to_lease(opened: OpenedLease, lease_ms: i64) -> Lease {
    Lease {
        attempt: opened.attempt,
        fence: opened.fence,
        expires_at: opened.lease_until,
        lease_ms,
        next_seq: opened.next_seq,
        run: LeasedRun {
            run_id: opened.run_id,
            tenant: opened.tenant,
            kind: opened.kind,
            quota_bucket: opened.bucket,
            capability: opened.capability,
            service_class: opened.service_class,
            conversation_id: opened.conversation_id,
            input: opened.input,
            created_at: opened.created_at,
            deadline: opened.deadline,
            deadline_in_ms: opened.deadline_in_ms,
            parent_run_id: opened.parent_run_id,
            schedule: opened.schedule,
            of_background: opened.of_background,
            budget_left: RunBudget {
                tokens: opened
                    .budget_tokens
                    .map(|budget| (budget - opened.spent_tokens).max(0)),
                execution_ms: opened
                    .budget_ms
                    .map(|budget| (budget - opened.spent_ms).max(0)),
            },
        },
    }
}

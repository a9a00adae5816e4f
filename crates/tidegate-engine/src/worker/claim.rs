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
    unknown: parking_lot::Mutex<Vec<i32>>,
}

impl Serves for Serving {
    fn serves(&self, class: i32) -> bool {
        self.verdicts.get(&class).copied().unwrap_or_else(|| {
            self.unknown.lock().push(class);
            false
        })
    }
}

/// What one look gave.
struct Look {
    leases: Vec<Lease>,
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
            again_in: owed,
        });
    }
    let (background, counted): (Vec<LaneAsk>, Vec<LaneAsk>) = asked
        .asks
        .iter()
        .cloned()
        .partition(|ask| ask.bucket == QuotaBucket::Background);
    let started = Instant::now();
    let fleet = engine.store().fleet();
    let mut opened = fleet.open_foreground(holder, &counted).await?;
    let mut again = claims
        .book
        .lock()
        .took(asked.known, &counted, &opened, share);
    if !background.is_empty() {
        // What the first statement opened is held already: an error here must not lose it.
        match fleet.open_background(holder, &background).await {
            Ok(more) => {
                again |= claims
                    .book
                    .lock()
                    .took(asked.known, &background, &more, share);
                opened.extend(more);
                claims.background.lock().over();
            }
            Err(error) if opened.is_empty() => return Err(error.into()),
            Err(error) => claims.background.lock().met(&error.into()),
        }
    }
    drop(asked);
    if !opened.is_empty() {
        claims.wake_next(&holder.pool);
    }
    metrics::histogram!("tidegate_claim_seconds").record(started.elapsed().as_secs_f64());
    Ok(Look {
        leases: hand_out(engine, holder, opened),
        again_in: if again {
            Some(CONTENDED.mul_f64(0.5 + crate::clock::jitter()))
        } else {
            owed
        },
    })
}

/// What to ask of which lanes. Classes of which it is not known whether the pool may serve them are found out first.
async fn plan<'a>(
    engine: &'a Engine,
    served: &Served,
    request: &ClaimRequest,
    share: impl Fn(&TenantId) -> Share + Copy,
) -> Result<Asked<'a>, Error> {
    let most = request.max;
    loop {
        let serving = Serving {
            verdicts: served.verdicts(),
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

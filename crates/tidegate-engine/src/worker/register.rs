//! Joining and leaving a pool, and saying how busy one is (R5.2). Where the descriptor in force names a runtime, only workers
//! that have shown it are given work; a start of a worker that has passed changes nothing (O-10).

use serde_json::Value;
use tidegate_model::{
    Code, PoolId,
    api::{LeavePool, PROTOCOL_VERSION, RegisterWorker, WorkerHeartbeat, WorkerView},
    strict, words,
};
use tidegate_store::pools::workers::{Heard, Join};

use crate::{Engine, Error, Principal, checks, pools::Served};

/// The most runs that a worker may say it works on.
const OCCUPIED_MAX: i64 = 1_000_000;

/// Joins the pool of the caller's key.
pub async fn register(
    engine: &Engine,
    principal: &Principal,
    request: RegisterWorker,
) -> Result<WorkerView, Error> {
    let pool = principal.require_pool()?.clone();
    if request.pool_id != pool {
        return Err(Error::refused_field(
            Code::Forbidden,
            Some("poolId"),
            format!(
                "a worker joins the pool of its key, {pool}; a key for another pool is made with `tidegate key create`"
            ),
        ));
    }
    check_protocol(request.protocol_version)?;
    check_incarnation(request.incarnation)?;
    if let Some(digest) = &request.runtime_digest {
        checks::filled("runtimeDigest", digest, checks::LABEL_MAX)?;
    }
    let (worker, asked) = (request.worker_id.clone(), request.descriptor_epoch);
    match engine
        .store()
        .join_pool(request, &principal.author())
        .await?
    {
        Join::Joined(view) => Ok(view),
        Join::NothingInForce => Err(Error::refused(
            Code::StateConflict,
            format!(
                "pool {pool} has no descriptor in force that this server can read; `tidegate pool list` shows what there is"
            ),
        )),
        Join::OtherEpoch(epoch) => Err(Error::refused_field(
            Code::DescriptorEpochStale,
            Some("descriptorEpoch"),
            format!(
                "epoch {epoch} of pool {pool} is in force, not {asked}; start the worker with the runtime of that epoch"
            ),
        )),
        Join::OtherRuntime => Err(Error::refused_field(
            Code::RuntimeDigestMismatch,
            Some("runtimeDigest"),
            format!(
                "the descriptor of pool {pool} in force names another runtime; start the worker with that one, or publish a descriptor of this one"
            ),
        )),
        Join::Stale(later) => Err(stale(&worker.to_string(), later)),
    }
}

/// Takes a heartbeat. Whatever in it is not occupancy is refused and counted.
pub async fn heartbeat(
    engine: &Engine,
    principal: &Principal,
    body: Value,
) -> Result<WorkerView, Error> {
    let pool = principal.require_pool()?.clone();
    let known = ["workerId", "incarnation", "occupied"];
    if let Some(fields) = body.as_object()
        && let Some(more) = fields.keys().find(|name| !known.contains(&name.as_str()))
    {
        metrics::counter!("tidegate_worker_heartbeats_refused_total").increment(1);
        return Err(Error::unknown_field(
            more.clone(),
            "a heartbeat reports occupancy and nothing else; what a pool may do stands in its descriptor, which its controller publishes",
        ));
    }
    let heartbeat: WorkerHeartbeat = strict::from_value(body).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "$" } else { &path };
        Error::invalid(field, words::plain(&error.inner().to_string()))
    })?;
    check_incarnation(heartbeat.incarnation)?;
    if !(0..=OCCUPIED_MAX).contains(&heartbeat.occupied) {
        return Err(Error::invalid("occupied", format!("0 to {OCCUPIED_MAX}")));
    }
    let heard = engine
        .store()
        .note_occupancy(&pool, &heartbeat, &principal.author())
        .await?;
    noted(heard, heartbeat.worker_id.as_str())
}

/// Leaves the pool.
pub async fn leave(
    engine: &Engine,
    principal: &Principal,
    request: LeavePool,
) -> Result<WorkerView, Error> {
    let pool = principal.require_pool()?.clone();
    check_incarnation(request.incarnation)?;
    let heard = engine
        .store()
        .leave_pool(&pool, &request, &principal.author())
        .await?;
    noted(heard, request.worker_id.as_str())
}

fn noted(heard: Heard, worker: &str) -> Result<WorkerView, Error> {
    match heard {
        Heard::Noted(view) => Ok(view),
        Heard::Stale(later) => Err(stale(worker, later)),
        Heard::Unknown => Err(Error::not_found("registration")),
    }
}

fn stale(worker: &str, later: i64) -> Error {
    metrics::counter!("tidegate_stale_workers_total").increment(1);
    Error::refused_field(
        Code::IncarnationStale,
        Some("incarnation"),
        format!(
            "incarnation {later} of worker {worker} has joined since; this one has passed and changes nothing: stop it"
        ),
    )
}

pub(super) fn check_protocol(version: i32) -> Result<(), Error> {
    if version < PROTOCOL_VERSION {
        return Err(Error::refused(
            Code::ProtocolTooOld,
            format!("this server speaks protocol {PROTOCOL_VERSION} and later; upgrade the worker"),
        ));
    }
    if version > PROTOCOL_VERSION {
        return Err(Error::invalid(
            "protocolVersion",
            format!("this server speaks protocol {PROTOCOL_VERSION}; upgrade the server first"),
        ));
    }
    Ok(())
}

pub(super) fn check_incarnation(incarnation: i64) -> Result<(), Error> {
    if incarnation < 0 {
        return Err(Error::invalid(
            "incarnation",
            "a whole number from 0, which rises with each start of the worker",
        ));
    }
    Ok(())
}

/// What a worker has shown before it claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    incarnation: i64,
    /// The epoch that it has joined under, where it has.
    epoch: Option<i64>,
}

impl Shown {
    /// Looks for a worker's registration. The built-in executor needs none: it is the server itself.
    pub(super) async fn look(
        engine: &Engine,
        pool: &PoolId,
        worker: &str,
        incarnation: i64,
    ) -> Result<Self, Error> {
        if *pool == PoolId::builtin() {
            return Ok(Self {
                incarnation,
                epoch: None,
            });
        }
        let joined = engine.store().joined(pool, worker).await?;
        match joined {
            Some(joined) if joined.incarnation > incarnation => {
                Err(stale(worker, joined.incarnation))
            }
            Some(joined) if joined.incarnation == incarnation && !joined.left => Ok(Self {
                incarnation,
                epoch: Some(joined.epoch),
            }),
            Some(_) | None => Ok(Self {
                incarnation,
                epoch: None,
            }),
        }
    }

    /// Whether it may be given work of a pool as it is now: what it runs is that of the epoch in force.
    pub(super) fn check(self, pool: &PoolId, served: &Served) -> Result<(), Error> {
        let in_force = served.epoch();
        match self.epoch {
            Some(epoch) if epoch != in_force => Err(Error::refused_field(
                Code::DescriptorEpochStale,
                None,
                format!(
                    "epoch {in_force} of pool {pool} is in force, and incarnation {} has joined under epoch {epoch}; start the \
                     worker with the runtime of epoch {in_force} and have it register",
                    self.incarnation
                ),
            )),
            None if served.descriptor.runtime_digest.is_some() => Err(Error::refused_field(
                Code::RuntimeDigestMismatch,
                None,
                format!(
                    "the descriptor of pool {pool} names a runtime: register with it first (POST /v1/worker/register)"
                ),
            )),
            Some(_) | None => Ok(()),
        }
    }
}

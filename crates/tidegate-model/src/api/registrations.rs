//! Workers that join and leave their pool (R5.2).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{PoolId, WorkerId};

/// `POST /v1/worker/register`: a worker joins the pool of its key and shows what it runs. The same again changes nothing; a
/// higher incarnation takes the place of a lower one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegisterWorker {
    /// The worker's name.
    pub worker_id: WorkerId,
    /// Rises with each start of a worker of this name.
    pub incarnation: i64,
    /// The pool of its key.
    pub pool_id: PoolId,
    /// What the worker speaks; 1.
    pub protocol_version: i32,
    /// The epoch whose descriptor it was built for; the one in force.
    pub descriptor_epoch: i64,
    /// What it runs; that of the descriptor where it names one. Where it names none, it is kept and compared with nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_digest: Option<String>,
}

/// A worker that has joined its pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// Its name.
    pub worker_id: WorkerId,
    /// Which start of it.
    pub incarnation: i64,
    /// The epoch under which it works.
    pub descriptor_epoch: i64,
    /// How many runs it said that it works on.
    pub occupied: i64,
    /// When it joined.
    pub registered_at: DateTime<Utc>,
    /// When it was last heard of.
    pub seen_at: DateTime<Utc>,
}

/// `POST /v1/worker/heartbeat`: occupancy and nothing else. Whatever would raise a right is refused and counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerHeartbeat {
    /// The worker's name.
    pub worker_id: WorkerId,
    /// Which start of it.
    pub incarnation: i64,
    /// How many runs it works on.
    pub occupied: i64,
}

/// `DELETE /v1/worker/registration`: a worker leaves its pool. Those of an incarnation that has passed change nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeavePool {
    /// The worker's name.
    pub worker_id: WorkerId,
    /// Which start of it.
    pub incarnation: i64,
}

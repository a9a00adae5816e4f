//! `POST /v1/worker/renew`: all that a worker holds in one statement (R4.3).

use std::collections::{HashMap, HashSet};

use tidegate_model::{
    Fence, RunId,
    api::{LeaseRef, RenewAnswer, RenewRequest},
};

use super::close::TOKENS_MAX;
use crate::{Engine, Error, Principal};

/// The most leases of one renewal.
const RENEW_MAX: usize = 1_000;

/// Renews leases; says which are lost and which are to stop.
pub async fn renew(
    engine: &Engine,
    principal: &Principal,
    request: RenewRequest,
) -> Result<RenewAnswer, Error> {
    if request.leases.len() > RENEW_MAX {
        return Err(Error::invalid("leases", format!("at most {RENEW_MAX}")));
    }
    let lease_ms = i64::from(engine.settings().lease_ms);
    let mut leases = Vec::with_capacity(request.leases.len());
    let mut used: HashMap<(RunId, Fence), i64> = HashMap::with_capacity(request.leases.len());
    for (index, lease) in request.leases.iter().enumerate() {
        let tokens = lease.usage.map_or(0, |usage| usage.tokens);
        if !(0..=TOKENS_MAX).contains(&tokens) {
            return Err(Error::invalid(
                format!("leases[{index}].usage.tokens"),
                format!("0 to {TOKENS_MAX}"),
            ));
        }
        used.insert((lease.run_id, lease.fence), tokens);
        leases.push(lease.lease());
    }
    let held: Vec<_> = engine
        .held(principal, &leases)
        .await?
        .into_values()
        .collect();
    let used: Vec<i64> = held
        .iter()
        .map(|lease| used.get(&(lease.key.run_id, lease.fence)).copied())
        .map(Option::unwrap_or_default)
        .collect();
    let renewed = engine
        .store()
        .fleet()
        .renew_leases(&engine.settings().execution_scope, &held, &used, lease_ms)
        .await?;
    let mut answer = RenewAnswer {
        lease_ms,
        ..RenewAnswer::default()
    };
    let mut kept = HashSet::with_capacity(renewed.len());
    for lease in renewed {
        let lease_ref = LeaseRef {
            run_id: lease.run_id,
            fence: lease.fence,
        };
        kept.insert(lease_ref);
        answer.renewed.push(lease_ref);
        if lease.stop.is_some() {
            answer.cancel.push(lease_ref);
        }
    }
    answer.lost = leases
        .into_iter()
        .filter(|lease| !kept.contains(lease))
        .collect();
    Ok(answer)
}

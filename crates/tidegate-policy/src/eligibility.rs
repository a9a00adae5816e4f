//! Which pools may serve a requirement (R6.3, R5.4). One rule for claim, explain and display.
//!
//! Built so far: the capability and the epoch in force. The other clauses of R6.3 join here with the descriptors that
//! carry them; a clause is a hard filter, never a score.

use serde::{Deserialize, Serialize};
use tidegate_model::{Capability, PoolId};

/// What is known of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolOffer {
    /// The pool.
    pub pool: PoolId,
    /// The epoch in force; absent until one is activated.
    pub epoch: Option<i64>,
    /// What the descriptor in force offers; `None` where this release cannot read it (R6.2).
    pub capabilities: Option<Vec<Capability>>,
}

/// Why a pool may not serve a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PoolReason {
    /// No descriptor of it is in force.
    DescriptorEpochStale,
    /// Its descriptor is of a contract version that this release does not know.
    UnknownField,
    /// Its descriptor does not offer the capability.
    CapabilityMissing,
}

impl PoolReason {
    /// The stable code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DescriptorEpochStale => "DESCRIPTOR_EPOCH_STALE",
            Self::UnknownField => "UNKNOWN_FIELD",
            Self::CapabilityMissing => "CAPABILITY_MISSING",
        }
    }
}

/// A pool that was filtered out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedPool {
    /// The pool.
    pub pool: PoolId,
    /// The first clause that it fails.
    pub reason: PoolReason,
}

/// All pools, sorted by whether they may serve a requirement; each in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eligibility {
    /// May serve it at their total capacity.
    pub eligible: Vec<PoolId>,
    /// May not, with the reason.
    pub refused: Vec<RefusedPool>,
}

impl Eligibility {
    /// Whether some pool may serve it, now or when it is free.
    pub const fn is_satisfiable(&self) -> bool {
        !self.eligible.is_empty()
    }

    /// Whether the pool of the built-in executor may serve it and no other, so that what its runs hold is for that
    /// executor to say. Where another pool offers the capability too, its workers may read another shape.
    pub fn is_builtin_only(&self) -> bool {
        matches!(self.eligible.as_slice(), [pool] if *pool == PoolId::builtin())
    }
}

/// Whether a pool may serve a capability; the first clause that it fails otherwise. Matching is exact (R6.2).
pub fn matches(offer: &PoolOffer, capability: &Capability) -> Result<(), PoolReason> {
    if offer.epoch.is_none() {
        return Err(PoolReason::DescriptorEpochStale);
    }
    match &offer.capabilities {
        None => Err(PoolReason::UnknownField),
        Some(offered) if offered.contains(capability) => Ok(()),
        Some(_) => Err(PoolReason::CapabilityMissing),
    }
}

/// Sorts the pools by whether they may serve a capability.
pub fn sort<'a>(
    pools: impl IntoIterator<Item = &'a PoolOffer>,
    capability: &Capability,
) -> Eligibility {
    let mut sorted = Eligibility::default();
    for offer in pools {
        match matches(offer, capability) {
            Ok(()) => sorted.eligible.push(offer.pool.clone()),
            Err(reason) => sorted.refused.push(RefusedPool {
                pool: offer.pool.clone(),
                reason,
            }),
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offer(pool: &str, epoch: Option<i64>, capabilities: Option<&[&str]>) -> PoolOffer {
        PoolOffer {
            pool: pool.parse().unwrap(),
            epoch,
            capabilities: capabilities.map(|all| all.iter().map(|c| c.parse().unwrap()).collect()),
        }
    }

    /// R6.2, R6.3, R6.4: exact, and every pool that was filtered out has its reason.
    #[test]
    fn each_refused_pool_has_its_reason() {
        let pools = [
            offer("builtin", Some(1), Some(&["chat"])),
            offer("chatty", Some(1), Some(&["chat.v2", "chats"])),
            offer("new", None, None),
            offer("future", Some(3), None),
        ];
        let sorted = sort(&pools, &"chat".parse().unwrap());
        let refused: Vec<_> = sorted
            .refused
            .iter()
            .map(|refused| (refused.pool.as_str(), refused.reason.as_str()))
            .collect();
        assert_eq!(sorted.eligible, ["builtin".parse().unwrap()]);
        assert_eq!(
            refused,
            [
                ("chatty", "CAPABILITY_MISSING"),
                ("new", "DESCRIPTOR_EPOCH_STALE"),
                ("future", "UNKNOWN_FIELD")
            ]
        );
        assert!(sorted.is_builtin_only());
        assert!(!sort(&[], &"chat".parse().unwrap()).is_satisfiable());
        let both = [
            offer("builtin", Some(1), Some(&["chat"])),
            offer("gpu", Some(1), Some(&["chat", "ocr"])),
        ];
        for (capability, builtin_only) in [("chat", false), ("ocr", false), ("none", false)] {
            let sorted = sort(&both, &capability.parse().unwrap());
            assert_eq!(sorted.is_builtin_only(), builtin_only, "{capability}");
        }
    }

    proptest! {
        #[test]
        fn every_pool_is_sorted_once_and_eligible_ones_offer_it(
            pools in prop::collection::vec((prop::option::of(1_i64..3), prop::option::of(prop::collection::vec(0_u8..4, 0..4))), 0..6),
            wanted in 0_u8..4,
        ) {
            let name = |n: u8| -> Capability { format!("cap{n}").parse().unwrap() };
            let offers: Vec<_> = pools.into_iter().enumerate().map(|(n, (epoch, capabilities))| PoolOffer {
                pool: format!("pool{n}").parse().unwrap(),
                epoch,
                capabilities: capabilities.map(|all| all.into_iter().map(name).collect()),
            }).collect();
            let sorted = sort(&offers, &name(wanted));
            prop_assert_eq!(sorted.eligible.len() + sorted.refused.len(), offers.len());
            for offer in &offers {
                let offers_it = offer.epoch.is_some()
                    && offer.capabilities.as_ref().is_some_and(|all| all.contains(&name(wanted)));
                prop_assert_eq!(sorted.eligible.contains(&offer.pool), offers_it);
            }
        }
    }
}

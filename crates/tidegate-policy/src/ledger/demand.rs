//! What requirements take in a pool (R7.3).

use tidegate_model::{
    PoolId,
    contracts::{ResourceKind, ResourceName, Sandbox, TaskRequirements, TenantMeasure},
};

/// So much of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Which.
    pub resource: ResourceName,
    /// How much.
    pub amount: i64,
    /// Whether the requirements name it: then it has to be there. What follows by itself takes nothing where nobody has
    /// given it a bound.
    pub named: bool,
}

/// What requirements take where this pool serves them, in no order that matters.
pub fn demands(task: &TaskRequirements, pool: &PoolId) -> Vec<Demand> {
    let estimates = task.needs.estimates.unwrap_or_default();
    let mut all = vec![
        implied(ResourceName::pool(pool), 1),
        implied(ResourceName::tenant(&task.tenant, TenantMeasure::Slots), 1),
    ];
    if task.needs.sandbox > Sandbox::None {
        all.push(implied(ResourceName::sandbox(pool), 1));
    }
    if let Some(tokens) = estimates.tokens {
        let resource = ResourceName::tenant(&task.tenant, TenantMeasure::Tokens);
        all.push(implied(resource, tokens));
    }
    let mut tools: Vec<_> = task.needs.tools.iter().map(|need| &need.name).collect();
    tools.sort();
    tools.dedup();
    let slots = estimates.tool_slots.unwrap_or(1);
    all.extend(
        tools
            .into_iter()
            .map(|tool| implied(ResourceName::tool(tool), slots)),
    );
    all.extend(task.needs.resources.iter().map(|need| Demand {
        resource: need.resource.clone(),
        amount: need.amount,
        named: true,
    }));
    all
}

const fn implied(resource: ResourceName, amount: i64) -> Demand {
    Demand {
        resource,
        amount,
        named: false,
    }
}

/// Whether requirements may name a resource of this kind: slots of pools and of tenants are taken by themselves, and by
/// nobody else.
pub const fn may_be_named(kind: ResourceKind) -> bool {
    matches!(
        kind,
        ResourceKind::Model | ResourceKind::Tool | ResourceKind::Shared
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_model::contracts::Needs;

    use super::*;

    fn taken(needs: serde_json::Value) -> Vec<(String, i64)> {
        let needs: Needs = serde_json::from_value(needs).unwrap();
        let task = TaskRequirements::new("acme".parse().unwrap(), "ocr".parse().unwrap(), needs);
        let mut all: Vec<_> = demands(&task, &"gpu".parse().unwrap())
            .into_iter()
            .map(|demand| (demand.resource.to_string(), demand.amount))
            .collect();
        all.sort();
        all
    }

    fn expected(all: &[(&str, i64)]) -> Vec<(String, i64)> {
        all.iter()
            .map(|(name, amount)| ((*name).to_owned(), *amount))
            .collect()
    }

    /// R7.3: pool slots, sandboxes, tool permits, tenant budgets and what is named make the vector.
    #[test]
    fn a_vector_follows_from_pool_tools_and_tenant() {
        let plain = expected(&[("pool/gpu", 1), ("tenant/acme/slots", 1)]);
        assert_eq!(taken(json!({})), plain);
        let all = taken(json!({
            "sandbox": "container",
            "tools": [{"name": "web/search", "versions": "^1"}, {"name": "web/search", "versions": "^2"}],
            "estimates": {"tokens": 900, "toolSlots": 3},
            "resources": [{"resource": "model/fast", "amount": 2}],
        }));
        let wanted = expected(&[
            ("model/fast", 2),
            ("pool/gpu", 1),
            ("sandbox/gpu", 1),
            ("tenant/acme/slots", 1),
            ("tenant/acme/tokens", 900),
            ("tool/web/search", 3),
        ]);
        assert_eq!(all, wanted);
    }
}

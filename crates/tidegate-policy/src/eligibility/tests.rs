use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_model::{
    Capability,
    contracts::{Needs, Sandbox},
};

use super::*;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).unwrap()
}

/// Generation 3, second 1,000.
fn moment() -> Moment {
    Moment {
        now: at(1_000),
        policy_generation: 3,
    }
}

/// A descriptor that has everything that [`needs`] asks for, with some members changed.
fn descriptor(changes: &Value) -> Value {
    let digest = format!("sha256:{}", "ab".repeat(32));
    let mut written = json!({
        "contract": "capability-descriptor.v1", "poolId": "gpu", "descriptorEpoch": 4, "capabilities": ["ocr", "chat"],
        "schemas": [{"capability": "ocr", "task": ">=1, <3", "result": "^2"}],
        "tools": [
            {"name": "web/search", "version": "2.4.0", "schemaDigest": digest},
            {"name": "web/search", "version": "3.0.0", "schemaDigest": digest},
        ],
        "runtimes": [{"name": "chromium", "version": "130.0.1"}],
        "resourceScopes": ["repo:acme/web", "data:invoices"], "labels": ["pii", "internal"],
        "isolation": "allow:[acme,globex]", "regions": ["eu-1", "eu-2"],
        "model": {"contextTokens": 200_000, "modalities": ["text", "image"]}, "sandbox": "container",
        "policyGeneration": 3, "health": {"checkedAt": at(0), "validUntil": at(2_000)}, "expiresAt": at(3_000),
    });
    for (name, value) in changes.as_object().unwrap() {
        written[name] = value.clone();
    }
    written
}

fn offer(changes: &Value) -> PoolOffer {
    PoolOffer {
        pool: "gpu".parse().unwrap(),
        epoch: Some(4),
        descriptor: Some(Arc::new(
            serde_json::from_value(descriptor(changes)).unwrap(),
        )),
    }
}

/// Everything that can be asked for, with some members changed.
fn needs(changes: &Value) -> TaskRequirements {
    let mut written = json!({
        "inputLabels": ["pii"], "taskSchema": "1.2.0", "resultSchema": "2.0.1",
        "tools": [{"name": "web/search", "versions": "^2.1"}],
        "runtimes": [{"name": "chromium", "versions": ">=128"}],
        "resourceScopes": ["repo:acme/web"], "allowedRegions": ["eu-1", "eu-2", "eu-3"], "sandbox": "process",
        "model": {"contextTokens": 100_000, "modalities": ["image"]},
    });
    for (name, value) in changes.as_object().unwrap() {
        written[name] = value.clone();
    }
    task("acme", "ocr", serde_json::from_value(written).unwrap())
}

fn task(tenant: &str, capability: &str, needs: Needs) -> TaskRequirements {
    TaskRequirements::new(tenant.parse().unwrap(), capability.parse().unwrap(), needs)
}

/// The first clause that a pool fails.
fn first(pool: &PoolOffer, task: &TaskRequirements) -> Option<&'static str> {
    blocked(pool, task, moment()).next().map(PoolReason::as_str)
}

/// R6.3, R6.4: each clause alone filters a pool out, with its own reason.
#[test]
fn each_clause_has_its_reason() {
    let everything = needs(&json!({}));
    assert_eq!(first(&offer(&json!({})), &everything), None);
    let pools = [
        (json!({"capabilities": ["chat"]}), "CAPABILITY_MISSING"),
        (
            json!({"isolation": "dedicated:globex"}),
            "TENANT_ISOLATION_MISMATCH",
        ),
        (
            json!({"labels": ["internal", "PII"]}),
            "CLASSIFICATION_DENIED",
        ),
        (json!({"regions": ["eu-1", "us-1"]}), "REGION_NOT_ALLOWED"),
        (json!({"regions": []}), "REGION_NOT_ALLOWED"),
        (json!({"sandbox": "none"}), "SANDBOX_TOO_WEAK"),
        (
            json!({"resourceScopes": ["repo:acme/website"]}),
            "RESOURCE_SCOPE_DENIED",
        ),
        (json!({"schemas": []}), "SCHEMA_INCOMPATIBLE"),
        (json!({"tools": []}), "TOOL_MISSING"),
        (
            json!({"runtimes": [{"name": "chromium", "version": "127.0.0"}]}),
            "RUNTIME_MISMATCH",
        ),
        (json!({"model": null}), "MODEL_LIMIT_EXCEEDED"),
        (json!({"policyGeneration": 2}), "POLICY_GENERATION_STALE"),
        (json!({"policyGeneration": 4}), "POLICY_GENERATION_STALE"),
        (json!({"expiresAt": at(1_000)}), "DESCRIPTOR_EXPIRED"),
        (
            json!({"health": {"checkedAt": at(0), "validUntil": at(1_000)}}),
            "HEALTH_EVIDENCE_STALE",
        ),
    ];
    for (change, reason) in pools {
        let failed: Vec<_> = blocked(&offer(&change), &everything, moment()).collect();
        let codes: Vec<_> = failed.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(codes, [reason], "{change}");
    }
}

/// R6.3, R6.4: the same where the run asks for more.
#[test]
fn each_need_has_its_reason() {
    let other_digest = format!("sha256:{}", "cd".repeat(32));
    let asked = [
        (
            json!({"inputLabels": ["pii", "secret"]}),
            "CLASSIFICATION_DENIED",
        ),
        (json!({"allowedRegions": ["eu-1"]}), "REGION_NOT_ALLOWED"),
        (json!({"sandbox": "vm"}), "SANDBOX_TOO_WEAK"),
        (
            json!({"resourceScopes": ["data:payroll"]}),
            "RESOURCE_SCOPE_DENIED",
        ),
        (json!({"taskSchema": "3.0.0"}), "SCHEMA_INCOMPATIBLE"),
        (json!({"resultSchema": "1.9.0"}), "SCHEMA_INCOMPATIBLE"),
        (
            json!({"tools": [{"name": "web/fetch", "versions": "*"}]}),
            "TOOL_MISSING",
        ),
        (
            json!({"tools": [{"name": "web/search", "versions": "^4"}]}),
            "TOOL_VERSION_MISMATCH",
        ),
        (
            json!({"tools": [{"name": "web/search", "versions": "*", "schemaDigest": other_digest}]}),
            "TOOL_VERSION_MISMATCH",
        ),
        (
            json!({"runtimes": [{"name": "python", "versions": "*"}]}),
            "RUNTIME_MISMATCH",
        ),
        (
            json!({"model": {"contextTokens": 200_001}}),
            "MODEL_LIMIT_EXCEEDED",
        ),
        (
            json!({"model": {"modalities": ["audio"]}}),
            "MODEL_LIMIT_EXCEEDED",
        ),
    ];
    for (change, reason) in asked {
        let failed = first(&offer(&json!({})), &needs(&change));
        assert_eq!(failed, Some(reason), "{change}");
    }
}

/// R6.2, R6.4: all that block a pool are told, the first one is its reason; a pool without an epoch in force and one
/// whose descriptor this release cannot read are told apart.
#[test]
fn each_refused_pool_has_all_its_reasons() {
    let plain = task("acme", "ocr", Needs::default());
    let named = |pool: &str, mut offer: PoolOffer| {
        offer.pool = pool.parse().unwrap();
        offer
    };
    let pools = [
        named("builtin", offer(&json!({}))),
        named(
            "late",
            offer(
                &json!({"expiresAt": at(500), "policyGeneration": 1, "isolation": "dedicated:globex"}),
            ),
        ),
        named(
            "new",
            PoolOffer {
                epoch: None,
                descriptor: None,
                ..offer(&json!({}))
            },
        ),
        named(
            "future",
            PoolOffer {
                descriptor: None,
                ..offer(&json!({}))
            },
        ),
    ];
    let sorted = sort(&pools, &plain, moment());
    assert_eq!(sorted.eligible, [PoolId::builtin()]);
    assert!(sorted.is_builtin_only());
    assert_eq!(sorted.valid_until, Some(at(2_000)));
    assert_eq!(
        serde_json::to_value(&sorted.refused).unwrap(),
        json!([
            {"pool": "late", "reason": "TENANT_ISOLATION_MISMATCH", "also": ["POLICY_GENERATION_STALE", "DESCRIPTOR_EXPIRED"]},
            {"pool": "new", "reason": "DESCRIPTOR_EPOCH_STALE"},
            {"pool": "future", "reason": "UNKNOWN_FIELD"},
        ])
    );
    let nobody = sort(&[], &plain, moment());
    assert!(!nobody.is_satisfiable() && nobody.valid_until.is_none());
    let two = [
        named("builtin", offer(&json!({}))),
        named("gpu", offer(&json!({}))),
    ];
    assert!(!sort(&two, &plain, moment()).is_builtin_only());
}

/// O-09: a version is served by those that say they understand it, and by no other.
#[test]
fn a_version_is_served_by_those_that_have_it() {
    let old = offer(&json!({"schemas": [{"capability": "ocr", "task": "^1", "result": "^2"}]}));
    let both =
        offer(&json!({"schemas": [{"capability": "ocr", "task": ">=1, <3", "result": "^2"}]}));
    let elsewhere =
        offer(&json!({"schemas": [{"capability": "chat", "task": "*", "result": "*"}]}));
    for (version, served) in [
        ("1.0.0", [true, true, false]),
        ("2.0.0", [false, true, false]),
    ] {
        let asked = Needs {
            task_schema: Some(version.parse().unwrap()),
            ..Needs::default()
        };
        let asked = task("acme", "ocr", asked);
        let found = [&old, &both, &elsewhere].map(|pool| first(pool, &asked).is_none());
        assert_eq!(found, served, "{version}");
    }
}

/// A choice of members of a small set, by bits.
fn chosen(bits: u8, names: &[&str]) -> Vec<String> {
    let there = names.iter().enumerate();
    there
        .filter(|(index, _)| bits & (1 << index) != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect()
}

fn sandbox(number: u8) -> &'static str {
    Sandbox::ALL[usize::from(number) % Sandbox::ALL.len()].as_str()
}

proptest! {
    /// R6.3: adding to what is asked for never makes a pool eligible, adding to what is offered never makes one ineligible, and
    /// every pool is sorted once.
    #[test]
    fn asking_for_more_never_opens_a_pool(
        asked in any::<[u8; 3]>(), more in any::<[u8; 3]>(), had in any::<[u8; 3]>(), capability in 0_usize..3,
    ) {
        let labels = ["a", "b", "c", "d"];
        let needs_of = |bits: [u8; 3]| json!({
            "inputLabels": chosen(bits[0], &labels), "resourceScopes": chosen(bits[1], &labels),
            "sandbox": sandbox(bits[2]),
        });
        let both: [u8; 3] = std::array::from_fn(|index| asked[index] | more[index]);
        let name: Capability = ["ocr", "chat", "none"][capability].parse().unwrap();
        let read = |bits| task("acme", name.as_str(), serde_json::from_value(needs_of(bits)).unwrap());
        let pool = offer(&json!({"labels": chosen(had[0], &labels), "resourceScopes": chosen(had[1], &labels),
            "sandbox": sandbox(had[2])}));
        let (less, whole) = (read(asked), read(both));
        if first(&pool, &whole).is_none() && asked[2] % 4 <= both[2] % 4 {
            prop_assert!(first(&pool, &less).is_none());
        }
        let sorted = sort(std::slice::from_ref(&pool), &less, moment());
        prop_assert_eq!(sorted.eligible.len() + sorted.refused.len(), 1);
        let expected = capability < 2
            && chosen(asked[0], &labels).iter().all(|label| chosen(had[0], &labels).contains(label))
            && chosen(asked[1], &labels).iter().all(|label| chosen(had[1], &labels).contains(label))
            && asked[2] % 4 <= had[2] % 4;
        prop_assert_eq!(sorted.is_satisfiable(), expected);
    }
}

//! A key, a grant, and a verdict by the words alone.

use biscuit_auth::{
    Algorithm, AuthorizerBuilder, AuthorizerLimits, Biscuit, PublicKey,
    builder::{Term, fact, int, string},
};
use chrono::{DateTime, TimeDelta, Utc};
use tidegate_grants::{Demand, Entropy, SignedGrant, Signer, Verifier};
use tidegate_model::{
    AdmissionId, Fence,
    contracts::{AdmissionGrant, GrantId, GrantKeyId, GrantedAmount, ResourceName},
};

pub const RESOURCES: [&str; 4] = [
    "pool/builtin",
    "tool/crm/search",
    "tool/crm/write",
    "model/default",
];

/// The time of every test.
pub fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

pub fn after(seconds: i64) -> DateTime<Utc> {
    now() + TimeDelta::seconds(seconds)
}

pub fn resource(name: &str) -> ResourceName {
    name.parse().unwrap()
}

/// Bytes that differ from call to call.
pub fn entropy() -> Entropy {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    Entropy(bytes)
}

pub fn signer(id: u32, secret: u8) -> Signer {
    Signer::new(GrantKeyId(id), &[secret; 32]).unwrap()
}

pub fn verifier(signer: &Signer) -> Verifier {
    Verifier::new(&[signer.publish(Some(after(-60)))]).unwrap()
}

/// Ten of each resource, for five minutes.
pub fn grant() -> AdmissionGrant {
    let admission_id = AdmissionId::new();
    let held = |(index, name): (usize, &&str)| GrantedAmount {
        grant_id: GrantId {
            admission: admission_id,
            index: u16::try_from(index).unwrap(),
        },
        resource: resource(name),
        amount: 10,
    };
    AdmissionGrant {
        admission_id,
        tenant_id: "acme".parse().unwrap(),
        pool_id: "builtin".parse().unwrap(),
        descriptor_epoch: 3,
        policy_generation: 1,
        fence: fence(1, 42),
        grants: RESOURCES.iter().enumerate().map(held).collect(),
        run_id: None,
        issued_at: Some(now()),
        expires_at: after(300),
    }
}

pub const fn fence(generation: i32, number: i64) -> Fence {
    Fence { generation, number }
}

pub fn signed(signer: &Signer) -> SignedGrant {
    signer.sign(&grant(), &entropy()).unwrap()
}

/// The verdict of the words alone, as another language's library gives it.
pub fn by_the_words(signer: &Signer, token: &str, now: DateTime<Utc>, demand: &Demand) -> bool {
    let key = PublicKey::from_bytes_hex(&signer.public_key(), Algorithm::Ed25519).unwrap();
    let token = Biscuit::from_base64(token, key).unwrap();
    let date = Term::Date(u64::try_from(now.timestamp()).unwrap());
    let number = |number: u64| int(i64::try_from(number).unwrap());
    let known = |known: Option<Fence>| {
        let known = known.unwrap_or(fence(0, 0));
        [int(i64::from(known.generation)), int(known.number)]
    };
    let facts = [
        fact("time", &[date]),
        fact("resource", &[string(demand.resource.as_str())]),
        fact("amount", &[number(demand.amount)]),
        fact("calls", &[number(demand.calls)]),
        fact("known_fence", &known(demand.known_fence)),
        fact("known_lease_fence", &known(demand.known_lease_fence)),
    ];
    let authorizer = facts
        .into_iter()
        .fold(AuthorizerBuilder::new(), |all, fact| {
            all.fact(fact).unwrap()
        })
        .code("allow if grant($i, $r, $limit), resource($r), amount($n), $n <= $limit;")
        .unwrap()
        // As much time as a loaded machine may need; what is counted is bounded all the same.
        .set_limits(AuthorizerLimits {
            max_facts: 200,
            max_iterations: 10,
            max_time: std::time::Duration::from_secs(10),
        });
    authorizer.build(&token).unwrap().authorize().is_ok()
}

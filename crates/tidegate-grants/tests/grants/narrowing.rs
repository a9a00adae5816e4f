//! Whatever is added to a grant, it allows no more than before.

use proptest::{collection::vec, option, prelude::*, sample::select};
use tidegate_grants::{CallTerms, Demand, SignProblem};
use tidegate_model::contracts::CallLease;

use super::rig::{
    RESOURCES, after, by_the_words, entropy, fence, grant, now, resource, signed, signer, verifier,
};

fn terms() -> impl Strategy<Value = CallTerms> {
    let some = |max: u64| option::weighted(0.4, 0..max);
    (
        option::weighted(0.3, select(&RESOURCES[..])),
        some(14),
        some(6),
        option::weighted(0.4, -1..400_i64),
        option::weighted(0.3, (0..3_i32, 0..4_i64)),
    )
        .prop_map(|(only, max_amount, max_calls, life, lease)| CallTerms {
            resource: only.map(resource),
            max_amount,
            max_calls,
            expires_at: life.map(after),
            lease_fence: lease.map(|(generation, number)| fence(generation, number)),
        })
        .prop_filter("narrows", |terms| !terms.is_empty())
}

fn demand() -> impl Strategy<Value = (i64, Demand)> {
    let known = || option::of((0..3_i32, 0..4_i64));
    (
        0..320_i64,
        select([&RESOURCES[..], &["tool/other/one"]].concat()),
        0..13_u64,
        0..6_u64,
        option::weighted(0.2, (0..3_i32, 40..45_i64)),
        known(),
    )
        .prop_map(|(at, name, amount, calls, known, known_lease)| {
            let demand = Demand {
                resource: resource(name),
                amount,
                calls,
                known_fence: known.map(|(generation, number)| fence(generation, number)),
                known_lease_fence: known_lease
                    .map(|(generation, number)| fence(generation, number)),
            };
            (at, demand)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// R9.2: over random chains of narrowing, what is allowed only shrinks; and reading the words as types gives the verdict
    /// that running them gives, which is what other languages do.
    #[test]
    fn what_is_allowed_only_shrinks(chain in vec(terms(), 0..6), demands in vec(demand(), 1..12)) {
        let signer = signer(1, 1);
        let verifier = verifier(&signer);
        let mut token = signed(&signer);
        let mut allowed_before = vec![true; demands.len()];
        for step in 0..=chain.len() {
            if step > 0 {
                token = token.narrow(&chain[step - 1], &entropy()).unwrap();
            }
            let verified = verifier.signatures(token.as_str(), now()).unwrap();
            for ((at, demand), before) in demands.iter().zip(&mut allowed_before) {
                let verdict = verified.allows(after(*at), demand);
                let by_words = by_the_words(&signer, token.as_str(), after(*at), demand);
                prop_assert_eq!(verdict.is_ok(), by_words, "{:?}: {:?}", demand, verdict);
                prop_assert!(*before || verdict.is_err(), "{:?} came back", demand);
                *before = verdict.is_ok();
            }
        }
    }
}

/// R9.1: what is read is what was signed, and what narrows it stands beside it.
#[test]
fn what_was_signed_is_what_is_read() {
    let signer = signer(3, 1);
    let mut grant = grant();
    grant.run_id = Some(tidegate_model::RunId::new());
    let token = signer.sign(&grant, &entropy()).unwrap();
    let terms = CallTerms {
        max_calls: Some(2),
        ..CallTerms::default()
    };
    let narrowed = token.narrow(&terms, &entropy()).unwrap();
    let demand = Demand::of(resource("model/default"), 10, 2);
    let verified = verifier(&signer)
        .verify(narrowed.as_str(), now(), &demand)
        .unwrap();
    let claims = verified.claims();
    assert_eq!(claims.grant, grant);
    assert_eq!((claims.key.0, claims.narrowed.len()), (3, 1));
    assert_eq!(claims.narrowed[0].terms, terms);
    let again = token.narrow(&terms, &entropy()).unwrap();
    let other = verifier(&signer).signatures(again.as_str(), now()).unwrap();
    assert_ne!(
        other.claims().narrowed[0].id,
        claims.narrowed[0].id,
        "each block is counted by itself"
    );
}

/// R9.2: a call lease is bound in every way, lives 60 s at most, and can be narrowed further; a sealed one cannot.
#[test]
fn a_call_lease_is_bound_in_every_way() {
    let signer = signer(1, 1);
    let (verifier, token) = (verifier(&signer), signed(&signer));
    let lease = |seconds: i64, amount: i64| CallLease {
        resource: resource("tool/crm/search"),
        amount,
        max_calls: 3,
        lease_fence: fence(1, 7),
        expires_at: after(seconds),
    };
    let held = token.call_lease(&lease(60, 4), now(), &entropy()).unwrap();
    let proven = verifier.signatures(held.as_str(), now()).unwrap();
    proven.is_call_lease(now()).unwrap();
    assert!(
        verifier
            .signatures(token.as_str(), now())
            .unwrap()
            .is_call_lease(now())
            .is_err()
    );
    for (seconds, amount) in [(61, 4), (60, 11), (60, 0), (60, -1)] {
        let refused = token.call_lease(&lease(seconds, amount), now(), &entropy());
        assert!(refused.is_err(), "{seconds} s, {amount}");
    }
    let wider = held.call_lease(&lease(60, 5), now(), &entropy());
    assert!(
        matches!(wider, Err(SignProblem::Unreadable(_))),
        "{wider:?}"
    );
    let fewer = CallTerms {
        max_calls: Some(1),
        ..CallTerms::default()
    };
    let second = Demand::of(resource("tool/crm/search"), 1, 2);
    verifier.verify(held.as_str(), now(), &second).unwrap();
    let narrowed = held.narrow(&fewer, &entropy()).unwrap();
    assert!(verifier.verify(narrowed.as_str(), now(), &second).is_err());
    let sealed = held.seal().unwrap();
    verifier.verify(sealed.as_str(), now(), &second).unwrap();
    let refused = sealed.narrow(&fewer, &entropy());
    assert!(matches!(refused, Err(SignProblem::Sealed)), "{refused:?}");
}

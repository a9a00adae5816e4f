//! Each way to fail has a problem of its own.

use tidegate_grants::{
    BLOCKS_MAX, CallTerms, Demand, GrantProblem, SignProblem, TOKEN_MAX_BYTES, Verifier,
};
use tidegate_model::{
    Fence,
    contracts::{GrantId, GrantedAmount},
};

use super::rig::{after, entropy, fence, grant, now, resource, signed, signer, verifier};

fn demand(amount: u64, calls: u64) -> Demand {
    Demand::of(resource("model/default"), amount, calls)
}

/// R9.1: who checks is told which of the fields is not met.
#[test]
fn each_demand_that_is_too_much_has_its_own_problem() {
    let signer = signer(1, 1);
    let verifier = verifier(&signer);
    let terms = CallTerms {
        max_amount: Some(5),
        max_calls: Some(2),
        lease_fence: Some(fence(1, 7)),
        ..CallTerms::default()
    };
    let token = signed(&signer).narrow(&terms, &entropy()).unwrap();
    let stale = |known_fence: Option<Fence>, known_lease_fence: Option<Fence>| Demand {
        known_fence,
        known_lease_fence,
        ..demand(1, 1)
    };
    let cases = [
        (0, demand(5, 2), None),
        (0, demand(6, 2), Some("amount_above")),
        (0, demand(5, 3), Some("calls_above")),
        (299, demand(5, 2), None),
        (300, demand(5, 2), Some("expired")),
        (
            0,
            Demand::of(resource("model/other"), 1, 1),
            Some("not_granted"),
        ),
        (0, stale(Some(fence(1, 42)), Some(fence(1, 7))), None),
        (0, stale(Some(fence(1, 43)), None), Some("fence_stale")),
        (0, stale(Some(fence(2, 0)), None), Some("fence_stale")),
        (0, stale(None, Some(fence(1, 8))), Some("fence_stale")),
        (0, stale(None, Some(fence(0, 900))), None),
        (0, demand(u64::MAX, u64::MAX), Some("amount_above")),
    ];
    for (at, demand, expected) in cases {
        let found = verifier.verify(token.as_str(), after(at), &demand);
        let found = found.as_ref().err().map(GrantProblem::word);
        assert_eq!(found, expected, "{demand:?} after {at} s");
    }
}

/// R9.1: keys rotate. A key counts until it is retired, and only under its own number; one that
/// is published ahead of its time already.
#[test]
fn keys_count_by_their_number_and_in_their_time() {
    let (ours, foreign) = (signer(1, 1), signer(1, 2));
    let token = signed(&ours);
    let check = |verifier: &Verifier, at| {
        verifier
            .verify(token.as_str(), after(at), &demand(1, 1))
            .err()
            .map(|problem| problem.word())
    };
    assert_eq!(check(&verifier(&ours), 0), None);
    assert_eq!(check(&verifier(&foreign), 0), Some("bad_signature"));
    assert_eq!(check(&verifier(&signer(2, 1)), 0), Some("unknown_key"));
    let mut published = ours.publish(None);
    published.retire_at = Some(after(10));
    let verifier = Verifier::new(&[published.clone()]).unwrap();
    for (at, expected) in [(-11, None), (9, None), (10, Some("unknown_key"))] {
        assert_eq!(check(&verifier, at), expected, "at {at}");
    }
    published.public_key = "ab".to_owned();
    assert!(Verifier::new(&[published]).is_err());
}

/// R9.1: nothing is signed that would be refused when it is read, and no bound is passed.
#[test]
fn what_cannot_be_read_is_not_signed() {
    let signer = signer(1, 1);
    let good = grant();
    let mut many = good.clone();
    many.grants = (0..65)
        .map(|index| GrantedAmount {
            grant_id: GrantId {
                admission: good.admission_id,
                index,
            },
            resource: resource(&format!("tool/t/{index}")),
            amount: 1,
        })
        .collect();
    let mut long = many.clone();
    long.grants.truncate(60);
    for (index, held) in long.grants.iter_mut().enumerate() {
        held.resource = resource(&format!("tool/{}/{index}", "a".repeat(100)));
    }
    let mut twice = good.clone();
    twice.grants[1].resource = twice.grants[0].resource.clone();
    let mut none = good.clone();
    none.grants.clear();
    let mut zero = good.clone();
    zero.grants[0].amount = 0;
    let mut other = good.clone();
    other.grants[0].grant_id.admission = tidegate_model::AdmissionId::new();
    for (what, bad) in [
        ("many", many),
        ("long", long),
        ("twice", twice),
        ("none", none),
        ("zero", zero),
        ("other", other),
    ] {
        assert!(signer.sign(&bad, &entropy()).is_err(), "{what}");
    }
    let terms = CallTerms {
        max_calls: Some(1),
        ..CallTerms::default()
    };
    let mut token = signed(&signer);
    for _ in 1..BLOCKS_MAX {
        token = token.narrow(&terms, &entropy()).unwrap();
    }
    let refused = token.narrow(&terms, &entropy());
    assert!(
        matches!(refused, Err(SignProblem::TooLarge { what: "blocks", .. })),
        "{refused:?}"
    );
    verifier(&signer)
        .verify(token.as_str(), now(), &demand(1, 1))
        .unwrap();
    let empty = token.narrow(&CallTerms::default(), &entropy());
    assert!(
        matches!(empty, Err(SignProblem::Invalid { .. })),
        "{empty:?}"
    );
}

/// R9.1: a token that is too long is refused before anything of it is decoded.
#[test]
fn a_long_text_is_refused_at_once() {
    let verifier = verifier(&signer(1, 1));
    let check = |token: &str| {
        verifier
            .verify(token, now(), &demand(1, 1))
            .unwrap_err()
            .word()
    };
    assert_eq!(check(&"A".repeat(TOKEN_MAX_BYTES + 1)), "too_large");
    for bad in [
        "",
        "not a grant",
        "AAAA",
        "\u{e4}",
        &"A".repeat(TOKEN_MAX_BYTES),
    ] {
        assert_eq!(check(bad), "malformed", "{bad:.20}");
    }
}

/// R9.1: a credential does not reach a log by way of `Debug` or an error.
#[test]
fn nothing_prints_a_grant() {
    let signer = signer(1, 1);
    let token = signed(&signer);
    let shown = format!(
        "{token:?} {signer:?} {:?} {:?}",
        entropy(),
        verifier(&signer)
    );
    assert!(!shown.contains(&token.as_str()[..20]), "{shown}");
    assert!(!shown.contains(&"01".repeat(8)), "{shown}");
}

//! Who holds a grant may add any block that the library can write. Only what narrows in our words is taken.

use biscuit_auth::{
    Algorithm, Biscuit, KeyPair, PublicKey,
    builder::{BiscuitBuilder, BlockBuilder, Scope},
};
use tidegate_grants::{Demand, GrantProblem, SignedGrant};
use tidegate_model::contracts::GrantKeyId;

use super::rig::{by_the_words, now, resource, signed, signer, verifier};

fn verdict(token: &str) -> Option<&'static str> {
    let demand = Demand::of(resource("model/default"), 1, 1);
    let verdict = verifier(&signer(1, 1)).verify(token, now(), &demand);
    verdict.as_ref().err().map(GrantProblem::word)
}

fn biscuit() -> Biscuit {
    let signer = signer(1, 1);
    let key = PublicKey::from_bytes_hex(&signer.public_key(), Algorithm::Ed25519).unwrap();
    Biscuit::from_base64(signed(&signer).as_str(), key).unwrap()
}

fn with(code: &str) -> String {
    let block = BlockBuilder::new().code(code).unwrap();
    biscuit().append(block).unwrap().to_base64().unwrap()
}

/// R9.2: a block that another library wrote in our words narrows as ours does.
#[test]
fn our_words_are_taken_from_anybody() {
    let code = r#"
        check if resource("model/default");
        check if amount($n), $n <= 5;
        check if calls($c), $c <= 1;
        check if time($x), $x < 2030-01-01T00:00:00Z;
        check if known_lease_fence($g, $n), $g < 1 or known_lease_fence(1, $n), $n <= 7;"#;
    let token = with(code);
    assert_eq!(verdict(&token), None);
    let signer = signer(1, 1);
    for (amount, calls) in [(5, 1), (6, 1), (5, 2)] {
        let demand = Demand::of(resource("model/default"), amount, calls);
        let ours = verifier(&signer).verify(&token, now(), &demand).is_ok();
        assert_eq!(ours, (amount, calls) == (5, 1));
        assert_eq!(ours, by_the_words(&signer, &token, now(), &demand));
    }
    assert!(SignedGrant::received(&token).is_ok());
}

/// R9.2: nothing that could widen is read past: no rule, no fact, no other kind of check, no trust in another key.
#[test]
fn everything_else_is_refused() {
    for code in [
        r#"grant(9, "model/default", 1000);"#,
        r#"check if amount($n), $n <= 5; grant(9, "model/default", 1000);"#,
        "check if amount($n), $n <= 5; amount($n) <- resource($r), calls($n);",
        "time(2000-01-01T00:00:00Z);",
        "amount(0);",
        "amount($n) <- resource($r), calls($n);",
        "check if amount($n), $n < 5;",
        "check if amount($n), $n >= 0;",
        "check if amount($n), $n <= 5 || $n <= 1000;",
        "check if amount($n), $n <= 5, $n <= 6;",
        "check if amount($n), calls($m), $n <= 5;",
        "check if amount($n), $n <= 5 or calls($n), $n <= 5;",
        "check if amount($n), calls($n);",
        "check all amount($n), $n <= 5;",
        "reject if amount($n), $n <= 5;",
        r#"check if resource($r), $r.starts_with("model/");"#,
        r#"check if resource("model/default") or resource("pool/builtin");"#,
        r#"check if resource("not a name");"#,
        "check if known_fence($g, $n), $g < 1 or known_fence(1, $n), $n <= 7;",
        "check if known_lease_fence($g, $n), $g < 1 or known_lease_fence(2, $n), $n <= 7;",
        "check if known_lease_fence($g, $g), $g < 1 or known_lease_fence(1, $n), $n <= 7;",
        "check if amount($n), $n <= 5; check if amount($n), $n <= 50;",
        "check if amount($n), $n <= 5 trusting previous;",
        "check if true;",
    ] {
        assert_eq!(verdict(&with(code)), Some("foreign"), "{code}");
    }
    assert_eq!(
        verdict(&with("check if amount($n), $n <= -5;")),
        Some("malformed")
    );
    let plain = || {
        BlockBuilder::new()
            .code("check if amount($n), $n <= 5")
            .unwrap()
    };
    for block in [
        plain().context("x".to_owned()),
        plain().scope(Scope::Previous),
    ] {
        let token = biscuit().append(block).unwrap().to_base64().unwrap();
        assert_eq!(verdict(&token), Some("foreign"));
    }
}

/// R9.2: a block that somebody else signed is refused, whatever it says.
#[test]
fn blocks_of_third_parties_are_refused() {
    let theirs = KeyPair::new();
    let token = biscuit();
    let request = token.third_party_request().unwrap();
    let block = BlockBuilder::new()
        .code("check if amount($n), $n <= 5")
        .unwrap();
    let signed = request.create_block(&theirs.private(), block).unwrap();
    let token = token.append_third_party(theirs.public(), signed).unwrap();
    assert_eq!(verdict(&token.to_base64().unwrap()), Some("foreign"));
}

/// R9.1: even under our own key, what is no grant is none: a key that signs two things must not mistake one for the other.
#[test]
fn another_token_of_our_key_is_no_grant() {
    let root =
        KeyPair::from(&biscuit_auth::PrivateKey::from_bytes(&[1; 32], Algorithm::Ed25519).unwrap());
    let make = |code: &str| {
        let builder = BiscuitBuilder::new()
            .code(code)
            .unwrap()
            .root_key_id(GrantKeyId(1).0);
        builder.build(&root).unwrap().to_base64().unwrap()
    };
    for (code, expected) in [
        (r#"user("acme");"#, "foreign"),
        ("tidegate_grant(2);", "foreign"),
        (r#"tidegate_grant(1); tenant("acme");"#, "malformed"),
        (r#"tenant("acme"); tenant("globex");"#, "foreign"),
        (r#"tenant("Acme");"#, "foreign"),
    ] {
        assert_eq!(verdict(&make(code)), Some(expected), "{code}");
    }
    let grant = super::rig::grant();
    let all = format!(
        r#"tidegate_grant(1); admission("{}"); tenant("acme"); pool("builtin"); descriptor_epoch(1); policy_generation(1);
        fence(1, 1); grant(0, "model/default", 1); expires(2030-01-01T00:00:00Z);"#,
        grant.admission_id
    );
    let fence = "check if known_fence($g, $n), $g < 1 or known_fence(1, $n), $n <= 1;";
    let time = "check if time($t), $t < 2030-01-01T00:00:00Z;";
    let later = "check if time($t), $t < 2031-01-01T00:00:00Z;";
    assert_eq!(verdict(&make(&format!("{all} {fence} {time}"))), None);
    for checks in [
        String::new(),
        fence.to_owned(),
        time.to_owned(),
        format!("{fence} {later}"),
    ] {
        assert_eq!(
            verdict(&make(&format!("{all} {checks}"))),
            Some("malformed"),
            "{checks}"
        );
    }
}

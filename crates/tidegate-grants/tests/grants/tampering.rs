//! A changed token is refused, whatever was changed.

use base64::{Engine as _, engine::general_purpose::URL_SAFE};
use biscuit_auth::format::schema::{self, proof};
use prost::Message as _;
use tidegate_grants::{CallTerms, Demand, SignedGrant};

use super::rig::{entropy, now, resource, signed, signer, verifier};

fn narrowed(blocks: usize) -> (SignedGrant, Vec<SignedGrant>) {
    let signer = signer(1, 1);
    let terms = CallTerms {
        max_amount: Some(3),
        ..CallTerms::default()
    };
    let mut all = vec![signed(&signer)];
    for _ in 0..blocks {
        let last = all[all.len() - 1].narrow(&terms, &entropy()).unwrap();
        all.push(last);
    }
    (all[blocks].clone(), all)
}

fn passes(token: &str) -> bool {
    let demand = Demand::of(resource("model/default"), 1, 1);
    verifier(&signer(1, 1))
        .verify(token, now(), &demand)
        .is_ok()
}

fn decoded(token: &SignedGrant) -> schema::Biscuit {
    schema::Biscuit::decode(&URL_SAFE.decode(token.as_str()).unwrap()[..]).unwrap()
}

fn encoded(token: &schema::Biscuit) -> String {
    URL_SAFE.encode(token.encode_to_vec())
}

/// R9.1: each bit of each byte counts, sealed or not.
#[test]
fn no_bit_may_change() {
    let (token, _) = narrowed(2);
    for token in [token.seal().unwrap(), token] {
        assert!(passes(token.as_str()));
        let bytes = URL_SAFE.decode(token.as_str()).unwrap();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << (place % 8);
            assert!(!passes(&URL_SAFE.encode(&changed)), "byte {place}");
        }
    }
}

/// R9.1: neither a part of a token passes, nor a token with something after it, nor another spelling of it.
#[test]
fn no_part_passes_and_nothing_may_follow() {
    let (token, _) = narrowed(1);
    let bytes = URL_SAFE.decode(token.as_str()).unwrap();
    for length in 0..bytes.len() {
        assert!(
            !passes(&URL_SAFE.encode(&bytes[..length])),
            "{length} bytes"
        );
    }
    for more in [&[0][..], &[0x40, 1], &[0x72, 0]] {
        assert!(
            !passes(&URL_SAFE.encode([&bytes, more].concat())),
            "{more:?}"
        );
    }
    let text = token.as_str();
    for other in [
        format!(" {text}"),
        format!("{text}\n"),
        format!("{text}="),
        text.trim_end_matches('=').to_owned() + "%3D",
    ] {
        assert!(!passes(&other), "{other:?}");
    }
}

/// R9.2: a block that narrows cannot be taken away again: not by dropping it, not with the proof of a longer token, not by
/// putting it elsewhere. Only who kept the wider token has that.
#[test]
fn what_narrows_cannot_be_taken_away() {
    let (token, all) = narrowed(3);
    let whole = decoded(&token);
    let sealed = decoded(&token.seal().unwrap());
    for proof in [whole.proof.clone(), sealed.proof] {
        for drop in 0..3 {
            let mut without = whole.clone();
            without.blocks.remove(drop);
            without.proof = proof.clone();
            assert!(!passes(&encoded(&without)), "without block {drop}");
        }
        let mut bare = whole.clone();
        bare.blocks.clear();
        bare.proof = proof;
        assert!(!passes(&encoded(&bare)), "without any");
    }
    let mut swapped = whole.clone();
    swapped.blocks.swap(0, 1);
    assert!(!passes(&encoded(&swapped)), "in another order");
    let mut other = whole.clone();
    other.blocks[2] = decoded(&narrowed(3).0).blocks[2].clone();
    assert!(!passes(&encoded(&other)), "with a block of another grant");
    let mut guessed = whole;
    guessed.proof.content = Some(proof::Content::NextSecret(vec![9; 32]));
    assert!(!passes(&encoded(&guessed)), "with a guessed secret");
    assert!(all.iter().all(|token| passes(token.as_str())));
}

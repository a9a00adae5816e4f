//! R9.1: keys of grants as the operator and as strangers see them.

use reqwest::StatusCode;
use serde_json::Value;
use tidegate_model::principal::Role;

use crate::rig::{Rig, answer};

fn numbers(keys: &Value) -> Vec<(u64, Option<&str>)> {
    let keys = keys.as_array().unwrap();
    let shown = |key: &Value| key["keyId"].as_u64().unwrap();
    keys.iter()
        .map(|key| (shown(key), key["state"].as_str()))
        .collect()
}

/// R9.1: anybody reads the public keys, may keep them for a minute, and sees one that will sign before it does. No answer
/// shows a private half.
#[tokio::test]
async fn published_keys_are_anybodys() {
    let rig = Rig::new().await;
    let published = answer(rig.request("GET", "/.well-known/tidegate-keys")).await;
    assert_eq!(published.status, StatusCode::OK);
    assert_eq!(published.headers["cache-control"], "public, max-age=60");
    let keys = published.json()["keys"].clone();
    assert_eq!(numbers(&keys), [(1, None), (2, None)]);
    for key in keys.as_array().unwrap() {
        let fields: Vec<_> = key
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let expected: &[&str] = match key["keyId"].as_u64() {
            Some(1) => &["algorithm", "keyId", "notBefore", "publicKey"],
            _ => &["algorithm", "keyId", "publicKey"],
        };
        assert_eq!(fields, expected);
        assert_eq!(key["algorithm"], "ed25519");
        assert_eq!(key["publicKey"].as_str().unwrap().len(), 64);
    }
}

/// R9.1: the operator rotates; while a key waits for its time, another rotation is refused with when to come again.
#[tokio::test]
async fn an_operator_rotates_the_keys() {
    let rig = Rig::new().await;
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let listed = rig.get("/v1/admin/grant-keys", &operator).await.json();
    let states = |first, second| [(1, Some(first)), (2, Some(second))];
    assert_eq!(numbers(&listed["items"]), states("active", "next"));
    let rotate = "/v1/admin/grant-keys/rotate";
    let rotated = rig.call("POST", rotate, &operator, Value::Null).await;
    assert_eq!(rotated.status, StatusCode::OK, "{rotated:?}");
    let after = rotated.json();
    let mut expected = states("retiring", "starting").to_vec();
    expected.push((3, Some("next")));
    assert_eq!(numbers(&after["items"]), expected);
    let again = rig.call("POST", rotate, &operator, Value::Null).await;
    assert_eq!(again.refusal(), "STATE_CONFLICT");
    assert!(again.body.contains("key 2 signs from"), "{}", again.body);
    let published = answer(rig.request("GET", "/.well-known/tidegate-keys")).await;
    assert_eq!(
        numbers(&published.json()["keys"]).len(),
        3,
        "at once on this instance"
    );
}

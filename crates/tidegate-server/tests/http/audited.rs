//! R2.5: every administrative write leaves an entry in the audit log, whichever route it came by.

use serde_json::{Value, json};
use tidegate_model::principal::Role;
use tidegate_server::routes::{ROUTES, Verb};

use crate::rig::{Answer, Rig};

/// A write that changes something: the route, the path with its names, the body.
fn writes(key_id: &str) -> Vec<(&'static str, &'static str, String, Value)> {
    let provider = json!({"kind": "openai_compatible", "baseUrl": "http://127.0.0.1:9/v1"});
    let model = json!({"provider": "p", "upstreamModel": "x"});
    let stdio = json!({"stdio": {"command": "/bin/true"}});
    let named = |verb, route, path: &str, body| (verb, route, path.to_owned(), body);
    let plain = |route, body| named("POST", route, route, body);
    let tenant = "/v1/admin/tenants/{tenant}/state";
    let key = "/v1/admin/keys/{keyId}";
    let gone = format!("/v1/admin/keys/{key_id}");
    vec![
        plain("/v1/admin/tenants", json!({"tenant": "globex"})),
        named(
            "POST",
            tenant,
            "/v1/admin/tenants/globex/state",
            json!({"state": "suspended"}),
        ),
        plain("/v1/admin/keys", json!({"role": "super_admin"})),
        ("DELETE", key, gone, Value::Null),
        named(
            "PUT",
            "/v1/admin/providers/{name}",
            "/v1/admin/providers/p",
            provider,
        ),
        named(
            "PUT",
            "/v1/admin/models/{name}",
            "/v1/admin/models/m",
            model,
        ),
        named(
            "DELETE",
            "/v1/admin/models/{name}",
            "/v1/admin/models/m",
            Value::Null,
        ),
        named(
            "DELETE",
            "/v1/admin/providers/{name}",
            "/v1/admin/providers/p",
            Value::Null,
        ),
        named(
            "PUT",
            "/v1/admin/tool-servers/{name}",
            "/v1/admin/tool-servers/t",
            json!({"transport": stdio, "tools": {"look": "read"}}),
        ),
        named(
            "DELETE",
            "/v1/admin/tool-servers/{name}",
            "/v1/admin/tool-servers/t",
            Value::Null,
        ),
    ]
}

fn writes_of_tenants_and_pools() -> Vec<(&'static str, &'static str, String, Value)> {
    let descriptor = crate::rig::descriptor("gpu", "ocr");
    let named = |verb, route, path: &str, body| (verb, route, path.to_owned(), body);
    vec![
        named(
            "PUT",
            "/v1/admin/tenants/{tenant}/override",
            "/v1/admin/tenants/acme/override",
            json!({"weight": 2}),
        ),
        named(
            "DELETE",
            "/v1/admin/tenants/{tenant}/override",
            "/v1/admin/tenants/acme/override",
            Value::Null,
        ),
        named(
            "PUT",
            "/v1/pools/{poolId}/descriptors/{epoch}",
            "/v1/pools/gpu/descriptors/1",
            descriptor,
        ),
        named(
            "POST",
            "/v1/pools/{poolId}/epoch",
            "/v1/pools/gpu/epoch",
            json!({"active": 1}),
        ),
        named(
            "POST",
            "/v1/pools/{poolId}/revoke",
            "/v1/pools/gpu/revoke",
            json!({"epoch": 1}),
        ),
        named(
            "PUT",
            "/v1/admin/resources/{resource}",
            "/v1/admin/resources/pool%2Fgpu",
            json!({"capacity": 4}),
        ),
        named(
            "DELETE",
            "/v1/admin/resources/{resource}",
            "/v1/admin/resources/pool%2Fgpu",
            Value::Null,
        ),
        named(
            "POST",
            "/v1/admin/policy-generation",
            "/v1/admin/policy-generation",
            json!({"expected": 1, "active": 2}),
        ),
        named(
            "POST",
            "/v1/admin/grant-keys/rotate",
            "/v1/admin/grant-keys/rotate",
            Value::Null,
        ),
    ]
}

async fn last(rig: &Rig) -> (i64, Option<String>, String) {
    sqlx::query_as("SELECT seq, request_id, actor FROM audit_log ORDER BY seq DESC LIMIT 1")
        .fetch_optional(rig.db.pool())
        .await
        .expect("the audit log")
        .unwrap_or_default()
}

fn request_id(answer: &Answer) -> Option<&str> {
    answer.headers.get("x-request-id")?.to_str().ok()
}

/// R2.5: a new write of administration needs a line in `writes` above, or this fails.
#[tokio::test]
async fn every_administrative_write_is_audited() {
    let rig = Rig::new().await;
    rig.tenant("acme").await;
    rig.with_tiers().await;
    let operator = rig.key(Role::SuperAdmin, "", "").await;
    let controller = rig.key(Role::PoolController, "", "gpu").await;
    let spare = rig.get("/v1/admin/keys", &operator).await.json();
    let spare = spare["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|key| key["role"] == "member")
        .unwrap()["keyId"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut writes = writes(&spare);
    writes.extend(writes_of_tenants_and_pools());
    for route in ROUTES {
        let administrative = ["/v1/admin/", "/v1/pools/"]
            .iter()
            .any(|prefix| route.path.starts_with(prefix));
        let known = writes
            .iter()
            .any(|(verb, path, ..)| (*verb, *path) == (route.verb.as_str(), route.path));
        assert!(
            !administrative || route.verb == Verb::Get || known,
            "no sample for {route:?}"
        );
    }
    for (verb, route, path, body) in writes {
        let before = last(&rig).await;
        let key = if route.starts_with("/v1/pools") {
            &controller
        } else {
            &operator
        };
        let answer = rig.call(verb, &path, key, body).await;
        assert!(answer.status.is_success(), "{verb} {path}: {answer:?}");
        let (seq, request, actor) = last(&rig).await;
        assert!(seq > before.0, "{verb} {route} left no entry");
        assert_eq!(request.as_deref(), request_id(&answer), "{verb} {route}");
        assert!(actor.starts_with("key_"), "{verb} {route}: {actor}");
    }
}

//! Bad input, one table: each is refused with a code and the field, and nothing is half done.

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{Code, principal::Role};

use tidegate_server::routes::ROUTES;

use crate::{
    rig::{Answer, Rig, answer},
    roles::path_of,
};

/// How many runs the tenant of a key has.
async fn runs(rig: &Rig, key: &str) -> usize {
    rig.get("/v1/runs", key).await.json()["items"]
        .as_array()
        .unwrap()
        .len()
}

/// A time near now, as a client with a clock of its own would write it.
#[expect(
    clippy::disallowed_methods,
    reason = "a client's wall clock is what is tested"
)]
fn from_now(delta: TimeDelta) -> String {
    DateTime::to_rfc3339(&(Utc::now() + delta))
}

const JSON: &str = "application/json";

/// Submits a run with any bytes.
async fn raw(rig: &Rig, key: &str, media: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = rig.request("POST", "/v1/runs").bearer_auth(key);
    answer(request.header("content-type", media).body(body)).await
}

/// The code, the field at fault, and the body that is sent.
const BODIES: &str = r#"
    INVALID_ARGUMENT capability      {}
    INVALID_ARGUMENT $               []
    INVALID_ARGUMENT $               ["chat"]
    INVALID_ARGUMENT $               null
    INVALID_ARGUMENT capability      {"capability":"Chat!"}
    INVALID_ARGUMENT capability      {"capability":"chat","capability":"chat"}
    UNKNOWN_FIELD    kind            {"capability":"chat","kind":"background_work.v1"}
    UNKNOWN_FIELD    quotaBucket     {"capability":"chat","quotaBucket":"uncounted"}
    UNKNOWN_FIELD    tenant          {"capability":"chat","tenant":"globex"}
    INVALID_ARGUMENT budget.tokens   {"capability":"chat","budget":{"tokens":-1}}
    INVALID_ARGUMENT budget.tokens   {"capability":"chat","budget":{"tokens":1e30}}
    UNKNOWN_FIELD    budget.credits  {"capability":"chat","budget":{"credits":1}}
    INVALID_ARGUMENT budget          {"capability":"chat","input":"hi","budget":[1000]}
    INVALID_ARGUMENT requirements.sandbox {"capability":"chat","input":"hi","requirements":{"sandbox":null}}
    INVALID_ARGUMENT serviceClass    {"capability":"chat","input":"hi","serviceClass":7}
    INVALID_ARGUMENT requirements    {"capability":"chat","input":"hi","requirements":[["pii"]]}
    INVALID_ARGUMENT requirements.tools[0] {"capability":"chat","input":"hi","requirements":{"tools":[["web/search","*"]]}}
    INVALID_ARGUMENT maxAttempts     {"capability":"chat","maxAttempts":0}
    INVALID_ARGUMENT maxAttempts     {"capability":"chat","maxAttempts":1000000}
    INVALID_ARGUMENT maxAttempts     {"capability":"chat","maxAttempts":"5"}
    INVALID_ARGUMENT priority        {"capability":"chat","input":"hi","priority":100000}
    INVALID_ARGUMENT deadline        {"capability":"chat","input":"hi","deadline":"PAST"}
    INVALID_ARGUMENT deadline        {"capability":"chat","deadline":"9999-12-31T23:59:59Z"}
    INVALID_ARGUMENT deadline        {"capability":"chat","deadline":"soon"}
    INVALID_ARGUMENT runAt           {"capability":"chat","runAt":"9999-12-31T23:59:59Z"}
    INVALID_ARGUMENT serviceClass    {"capability":"chat","serviceClass":"gold"}
    INVALID_ARGUMENT input           {"capability":"chat"}
    INVALID_ARGUMENT input           {"capability":"chat","input":7}
    INVALID_ARGUMENT input           {"capability":"chat","input":""}
    INVALID_ARGUMENT input           {"capability":"chat","input":{}}
    INVALID_ARGUMENT input.text      {"capability":"chat","input":{"text":1}}
    INVALID_ARGUMENT input.a[0]      {"capability":"chat","input":{"a":["\u0000"]}}
    INVALID_ARGUMENT $               {"capability":"chat"
    INVALID_ARGUMENT $               {"capability":"chat"}x
    INVALID_ARGUMENT $               [[[[
    INVALID_ARGUMENT $               nul
"#;

#[tokio::test]
async fn malformed_bodies_are_refused_by_field() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let past = from_now(TimeDelta::seconds(-1));
    for case in BODIES
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let mut words = case.split_whitespace();
        let expected = format!("{} {}", words.next().unwrap(), words.next().unwrap());
        let body = words.next().unwrap().replace("PAST", &past);
        let answer = raw(&rig, &acme, JSON, body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{case} {answer:?}");
        assert_eq!(answer.refusal(), expected, "{case}");
    }
    assert_eq!(runs(&rig, &acme).await, 0);
}

/// Bad input: a field of any length is named, by its beginning and its end.
#[tokio::test]
async fn a_long_field_is_named_shortly() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let name = "x".repeat(5_000);
    let nul = format!(r#"{{"capability":"chat","input":{{"{name}":{{"its last":"\u0000"}}}}}}"#);
    let unknown = format!(r#"{{"capability":"chat","budget":{{"{name} its last":1}}}}"#);
    for (body, first) in [(nul, "input.x"), (unknown, "budget.x")] {
        let field = raw(&rig, &acme, JSON, body).await.problem().field.unwrap();
        assert_eq!(field.chars().count(), 200, "{field}");
        assert!(field.starts_with(first) && field.contains("x…x"), "{field}");
        assert!(field.ends_with("its last"), "{field}");
    }
}

#[tokio::test]
async fn what_is_no_json_is_refused() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let deep = format!(r#"{{"capability":"chat","input":{open}1{close}}}"#);
    for bytes in [
        Vec::new(),
        b"\0".to_vec(),
        b"{\"\xff\":1}".to_vec(),
        deep.into_bytes(),
    ] {
        let answer = raw(&rig, &acme, JSON, bytes).await;
        assert_eq!(answer.problem().code, Code::InvalidArgument);
    }
    for media in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/json; charset=utf-16",
    ] {
        let answer = raw(&rig, &acme, media, "{}").await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(answer.refusal(), "UNSUPPORTED_MEDIA_TYPE content-type");
    }
    for (encoding, refused) in [("gzip", true), ("identity", false)] {
        let request = rig.request("POST", "/v1/runs").bearer_auth(&acme);
        let request = request
            .header("content-encoding", encoding)
            .json(&json!({}));
        let told = answer(request).await.refusal();
        let field = told == "UNSUPPORTED_MEDIA_TYPE content-encoding";
        assert_eq!(field, refused, "{told}");
    }
    assert_eq!(runs(&rig, &acme).await, 0);
}

/// Bad input: what is accepted can be read again by everybody, however deep it stands in an answer.
#[tokio::test]
async fn nesting_is_bounded_at_the_door() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    for (levels, accepted) in [(63, true), (64, false), (120, false)] {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        let run = format!(r#""capability":"chat","input":{open}"}}]"{close}"#);
        let answer = raw(&rig, &acme, JSON, format!("{{{run}}}")).await;
        assert_eq!(
            answer.status == StatusCode::ACCEPTED,
            accepted,
            "{answer:?}"
        );
        if !accepted {
            assert_eq!(answer.refusal(), "INVALID_ARGUMENT $");
        }
    }
    assert_eq!(runs(&rig, &acme).await, 1);
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let lease = rig.claim(&worker).await;
    assert!(lease["run"]["input"].is_array());
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_with_and_without_its_length() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let large = format!(
        r#"{{"capability":"chat","input":"{}"}}"#,
        "a".repeat(1 << 20)
    );
    let pieces: Vec<Result<_, std::io::Error>> = large
        .as_bytes()
        .chunks(4096)
        .map(|piece| Ok(piece.to_vec()))
        .collect();
    let unannounced = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    for body in [large.into(), unannounced] {
        let answer = raw(&rig, &acme, JSON, body).await;
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(answer.problem().code, Code::PayloadTooLarge);
    }
    assert_eq!(runs(&rig, &acme).await, 0);
}

#[tokio::test]
async fn bad_parameters_and_headers_are_refused_by_name() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let run = rig.submit(&acme).await;
    let cases = [
        ("/v1/runs/run_1", "INVALID_ARGUMENT runId"),
        ("/v1/runs/conv_0193", "INVALID_ARGUMENT runId"),
        (
            "/v1/conversations/x/messages",
            "INVALID_ARGUMENT conversationId",
        ),
        ("/v1/runs?limit=0", "INVALID_ARGUMENT limit"),
        ("/v1/runs?limit=100000", "INVALID_ARGUMENT limit"),
        ("/v1/runs?limit=ten", "INVALID_ARGUMENT limit"),
        ("/v1/runs?cursor=garbage", "INVALID_ARGUMENT cursor"),
        ("/v1/runs?cursor=%00", "INVALID_ARGUMENT query"),
        ("/v1/runs?state=flying", "INVALID_ARGUMENT state"),
        ("/v1/runs?order=up", "UNKNOWN_FIELD order"),
    ];
    for (path, expected) in cases {
        assert_eq!(rig.get(path, &acme).await.refusal(), expected, "{path}");
    }
    for bad in ["-1", "x", "1e3", "99999999999999999999"] {
        let request = rig
            .request("GET", &format!("/v1/runs/{run}/events"))
            .bearer_auth(&acme);
        let answer = answer(request.header("last-event-id", bad)).await;
        assert_eq!(answer.refusal(), "INVALID_ARGUMENT last-event-id", "{bad}");
    }
    for bad in ["", "two words", &"k".repeat(201)] {
        let request = rig
            .request("POST", "/v1/runs")
            .bearer_auth(&acme)
            .json(&json!({"capability": "chat", "input": "hello"}));
        let answer = answer(request.header("idempotency-key", bad)).await;
        assert_eq!(
            answer.refusal(),
            "INVALID_ARGUMENT idempotency-key",
            "{bad}"
        );
    }
    let answer = rig
        .post(
            &format!("/v1/runs/{run}/cancel"),
            &acme,
            json!({"force": true}),
        )
        .await;
    assert_eq!(answer.refusal(), "UNKNOWN_FIELD force");
}

/// R4.6: a body that is not of its kind's shape would be shown to everybody who reads the stream.
#[tokio::test]
async fn bodies_of_events_are_of_their_kind() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let first = lease["nextSeq"].as_i64().unwrap();
    let note = json!({"seq": first, "kind": "worker.note", "body": "free"});
    let append = async |kind: &str, body: Value| {
        let events = json!([note, {"seq": first + 1, "kind": kind, "body": body}]);
        let body = json!({"fence": lease["fence"], "events": events});
        rig.post(&format!("/v1/worker/runs/{run}/events"), &worker, body)
            .await
    };
    for (kind, body) in [
        ("message.delta", json!("zz")),
        ("message.completed", Value::Null),
        ("model.called", json!([1])),
        ("tool.called", json!({"tool": "t"})),
        ("tool.finished", json!({"callId": "c", "tool": "t"})),
    ] {
        let refusal = append(kind, body).await.refusal();
        assert_eq!(refusal, "INVALID_ARGUMENT events[1].body", "{kind}");
    }
    // Nothing of what was refused was written: the same numbers are still free.
    let good = append("message.delta", json!({"text": "hello"})).await;
    assert!(good.status.is_success(), "{good:?}");
}

/// R3.1: the same key and body is the same run, another body a conflict; what is refused is not remembered.
#[tokio::test]
async fn a_replayed_key_with_another_body_is_a_conflict() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let submit = async |body: Value| {
        let request = rig.request("POST", "/v1/runs").bearer_auth(&acme);
        answer(request.header("idempotency-key", "k-1").json(&body)).await
    };
    let refused = submit(json!({"capability": "chat", "maxAttempts": 0})).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let first = submit(json!({"capability": "chat", "input": "1"})).await;
    assert_eq!(first.status, StatusCode::ACCEPTED, "{first:?}");
    let again = submit(json!({"input": "1", "capability": "chat"})).await;
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(again.json()["runId"], first.json()["runId"]);
    assert_eq!(again.json()["repeated"], true);
    let other = submit(json!({"capability": "chat", "input": "2"})).await;
    assert_eq!(other.status, StatusCode::CONFLICT);
    assert_eq!(other.problem().code, Code::IdempotencyConflict);
    assert_eq!(runs(&rig, &acme).await, 1);
}

/// R2.1: an expired and a revoked key open nothing.
#[tokio::test]
async fn expired_and_revoked_keys_are_refused() {
    let rig = Rig::new().await;
    rig.tenant("acme").await;
    let admin = rig.key(Role::TenantAdmin, "acme", "").await;
    let soon = from_now(TimeDelta::milliseconds(1500));
    let body = json!({"role": "member", "tenant": "acme", "expiresAt": soon});
    let made = rig.post("/v1/admin/keys", &admin, body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    let short = made.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(rig.get("/v1/me", &short).await.status, StatusCode::OK);
    crate::rig::eventually("the key runs out", async || {
        let answer = rig.get("/v1/me", &short).await;
        (answer.status == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    let made = rig
        .post(
            "/v1/admin/keys",
            &admin,
            json!({"role": "member", "tenant": "acme"}),
        )
        .await
        .json();
    let (id, secret) = (
        made["key"]["keyId"].as_str().unwrap(),
        made["secret"].as_str().unwrap(),
    );
    assert_eq!(rig.get("/v1/me", secret).await.status, StatusCode::OK);
    let revoked = rig
        .call(
            "DELETE",
            &format!("/v1/admin/keys/{id}"),
            &admin,
            Value::Null,
        )
        .await;
    assert_eq!(revoked.status, StatusCode::OK, "{revoked:?}");
    crate::rig::eventually("the key is revoked", async || {
        let answer = rig.get("/v1/me", secret).await;
        (answer.status == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
}

/// Bad input: a parameter that no route knows is refused by each of them, and nothing is done.
#[tokio::test]
async fn unknown_parameters_are_refused_everywhere() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let mut keys = vec![(Role::Member, acme.clone())];
    for role in Role::ALL.iter().filter(|role| **role != Role::Member) {
        keys.push((*role, rig.key(*role, "acme", "builtin").await));
    }
    for route in ROUTES.iter().filter(|route| route.path.starts_with("/v1/")) {
        let roles = route.access.roles();
        let (_, key) = keys.iter().find(|(role, _)| roles.contains(role)).unwrap();
        let path = format!("{}?colour=blue", path_of(route));
        let answer = rig.call(route.verb.as_str(), &path, key, json!({})).await;
        assert_eq!(answer.refusal(), "UNKNOWN_FIELD colour", "{route:?}");
    }
    let run = rig.submit(&acme).await;
    let path = format!("/v1/runs/{run}/events?after=3");
    let detail = rig.get(&path, &acme).await.problem().detail.unwrap();
    assert!(detail.contains("Last-Event-ID"), "{detail}");
}

/// Bad input: what the built-in executor cannot ask a model is refused at every door (R3.2, R3.14, R20.3), and nowhere
/// where another pool offers the capability, whose workers may read another shape.
#[tokio::test]
async fn an_input_that_asks_nothing_is_refused_at_every_door() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let children = format!(
        "/v1/worker/runs/{}/children",
        lease["run"]["runId"].as_str().unwrap()
    );
    let child = |input: &Value| json!({"fence": lease["fence"], "key": "a", "capability": "chat", "input": input});
    let scheduled =
        |input: &Value| json!({"cron": "@daily", "run": {"capability": "chat", "input": input}});
    let doors = |input: Value| {
        let run = json!({"capability": "chat", "input": input});
        [
            ("POST", "/v1/runs", &acme, run, ""),
            ("PUT", "/v1/schedules/a", &acme, scheduled(&input), "run."),
            ("POST", children.as_str(), &worker, child(&input), ""),
        ]
    };
    for (input, field) in [
        (Value::Null, "input"),
        (json!(1), "input"),
        (json!({"text": " "}), "input.text"),
    ] {
        for (verb, path, key, body, within) in doors(input.clone()) {
            let refused = rig.call(verb, path, key, body).await;
            let expected = format!("INVALID_ARGUMENT {within}{field}");
            assert_eq!(refused.refusal(), expected, "{path} {input}");
            let detail = refused.problem().detail.unwrap();
            assert!(detail.contains(r#"{"text": "…"}"#), "{detail}");
        }
    }
    let controller = rig.key(Role::PoolController, "", "gpu").await;
    let descriptor = crate::rig::descriptor("gpu", "chat");
    let published = "/v1/pools/gpu/descriptors/1";
    rig.call("PUT", published, &controller, descriptor).await;
    let in_force = json!({"expected": null, "active": 1});
    rig.post("/v1/pools/gpu/epoch", &controller, in_force).await;
    for (verb, path, key, body, _) in doors(Value::Null) {
        let answer = rig.call(verb, path, key, body).await;
        assert!(answer.status.is_success(), "{path}: {answer:?}");
    }
}

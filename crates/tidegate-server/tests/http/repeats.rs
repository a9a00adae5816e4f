//! R3.1: every write may be sent again under its `Idempotency-Key`.

use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{Code, KeyId, principal::Role};
use tidegate_server::routes::{ROUTES, Repeats, Route, Verb};

use crate::rig::{Answer, Rig, answer, claim_body};

/// A write that succeeds, with the key that may send it.
pub struct Sample {
    pub by: String,
    path: String,
    body: Value,
}

impl Sample {
    fn by(key: &str, path: impl Into<String>, body: Value) -> Self {
        Self {
            by: key.to_owned(),
            path: path.into(),
            body,
        }
    }
}

/// A world in which each write can be tried.
pub struct World {
    pub rig: Rig,
    pub operator: String,
    pub controller: String,
    pub member: String,
    pub worker: String,
}

impl World {
    pub async fn new() -> Self {
        let rig = Rig::new().await;
        let member = rig.tenant("acme").await;
        Self {
            operator: rig.key(Role::SuperAdmin, "", "").await,
            controller: rig.key(Role::PoolController, "", "").await,
            worker: rig.key(Role::Worker, "", "builtin").await,
            member,
            rig,
        }
    }

    /// Sends a write under an idempotency key.
    pub async fn send(&self, verb: &str, sample: &Sample, key: &str) -> Answer {
        let request = self.rig.request(verb, &sample.path).bearer_auth(&sample.by);
        let request = request.header("idempotency-key", key);
        let request = if sample.body.is_null() {
            request
        } else {
            request.json(&sample.body)
        };
        answer(request).await
    }

    async fn made(&self, verb: &str, by: &str, path: &str, body: Value) -> Value {
        let answer = self.rig.call(verb, path, by, body).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer.json()
    }

    /// A dead letter; whatever else was queued is cancelled.
    pub async fn failed_run(&self) -> String {
        let by = self.member.as_str();
        self.made("POST", by, "/v1/runs:cancel", json!({})).await;
        let run = self.rig.submit(&self.member).await;
        let lease = self.rig.claim(&self.worker).await;
        assert_eq!(lease["run"]["runId"], run);
        let body = json!({"fence": lease["fence"], "code": "WORKER_FAILED", "retryable": false});
        let path = format!("/v1/worker/runs/{run}/fail");
        self.made("POST", &self.worker, &path, body).await;
        run
    }

    /// A run whose attempt ended with an effect in question.
    pub async fn run_in_review(&self) -> String {
        let by = self.member.as_str();
        self.made("POST", by, "/v1/runs:cancel", json!({})).await;
        let run = self.rig.submit(by).await;
        let fence = self.rig.claim(&self.worker).await["fence"].take();
        let digest = format!("sha256:{}", "0".repeat(64));
        let intent = json!({
            "fence": fence, "callId": "c1", "tool": "files/write", "argumentsDigest": digest, "idempotent": false,
        });
        let path = format!("/v1/worker/runs/{run}/effects");
        self.made("POST", &self.worker, &path, intent).await;
        let body = json!({"fence": fence, "code": "WORKER_FAILED", "retryable": true});
        let path = format!("/v1/worker/runs/{run}/fail");
        self.made("POST", &self.worker, &path, body).await;
        run
    }

    /// A run that waits for a person.
    pub async fn asking_run(&self) -> String {
        let by = self.member.as_str();
        self.made("POST", by, "/v1/runs:cancel", json!({})).await;
        let run = self.rig.submit(by).await;
        let fence = self.rig.claim(&self.worker).await["fence"].take();
        let body = json!({"fence": fence, "input": {"kind": "text", "prompt": "Which colour?"}});
        let path = format!("/v1/worker/runs/{run}/wait");
        self.made("POST", &self.worker, &path, body).await;
        run
    }

    async fn pool(&self, name: &str) {
        let path = format!("/v1/pools/{name}/descriptors/1");
        self.made("PUT", &self.controller, &path, descriptor(name))
            .await;
    }

    async fn provider(&self, name: &str) {
        let path = format!("/v1/admin/providers/{name}");
        self.made("PUT", &self.operator, &path, provider()).await;
    }

    /// What a route of the table is tried with. A new route that is not here fails the test: say how it is tried.
    pub async fn sample(&self, route: &Route) -> Sample {
        let (member, operator) = (self.member.as_str(), self.operator.as_str());
        match (route.verb.as_str(), route.path) {
            ("POST", "/v1/conversations") => Sample::by(member, route.path, json!({"title": "t"})),
            ("POST", "/v1/runs/{runId}/cancel") => {
                let run = self.rig.submit(member).await;
                Sample::by(member, format!("/v1/runs/{run}/cancel"), Value::Null)
            }
            ("POST", "/v1/runs/{runId}/requeue") => {
                let run = self.failed_run().await;
                Sample::by(member, format!("/v1/runs/{run}/requeue"), Value::Null)
            }
            ("POST", "/v1/runs/{runId}/resolve") => {
                let run = self.run_in_review().await;
                let body = json!({"verdict": "confirmDone"});
                Sample::by(member, format!("/v1/runs/{run}/resolve"), body)
            }
            ("POST", "/v1/runs/{runId}/inputs") => {
                let run = self.asking_run().await;
                Sample::by(
                    member,
                    format!("/v1/runs/{run}/inputs"),
                    json!({"text": "blue"}),
                )
            }
            ("POST", "/v1/runs:cancel" | "/v1/runs:requeue") => {
                self.failed_run().await;
                Sample::by(member, route.path, json!({}))
            }
            (_, path) if path.contains("pool") || path.contains("polic") => {
                self.pool_sample(route).await
            }
            ("POST", "/v1/admin/tenants") => {
                Sample::by(operator, route.path, json!({"tenant": "initech"}))
            }
            ("PUT", "/v1/admin/tenants/{tenant}/override") => {
                self.rig.with_tiers().await;
                let path = "/v1/admin/tenants/acme/override";
                Sample::by(operator, path, json!({"tier": "plus", "weight": 3}))
            }
            ("POST", "/v1/admin/tenants/{tenant}/state") => {
                self.rig.tenant("hooli").await;
                let path = "/v1/admin/tenants/hooli/state";
                Sample::by(operator, path, json!({"state": "suspended"}))
            }
            (_, path) if path.starts_with("/v1/schedules/") => {
                let member = member.to_owned();
                let path = path.replace("{name}", "nightly");
                self.made("PUT", &member, "/v1/schedules/nightly", schedule("@daily"))
                    .await;
                let body = if route.verb == Verb::Put {
                    schedule("@hourly")
                } else {
                    Value::Null
                };
                Sample::by(&member, path, body)
            }
            _ => self.catalogue_sample(route).await,
        }
    }

    async fn pool_sample(&self, route: &Route) -> Sample {
        let operator = self.operator.as_str();
        match (route.verb.as_str(), route.path) {
            ("PUT", "/v1/pools/{poolId}/descriptors/{epoch}") => {
                let path = "/v1/pools/one/descriptors/1";
                Sample::by(&self.controller, path, descriptor("one"))
            }
            ("POST", "/v1/pools/{poolId}/epoch") => {
                self.pool("two").await;
                let body = json!({"expected": null, "active": 1});
                Sample::by(&self.controller, "/v1/pools/two/epoch", body)
            }
            ("POST", "/v1/pools/{poolId}/revoke") => {
                self.pool("three").await;
                let path = "/v1/pools/three/revoke";
                Sample::by(&self.controller, path, json!({"epoch": 1}))
            }
            ("POST", "/v1/admin/policy-generation") => {
                Sample::by(operator, route.path, json!({"expected": 1, "active": 2}))
            }
            other => panic!("{other:?} is a write that this test does not know how to try"),
        }
    }

    async fn catalogue_sample(&self, route: &Route) -> Sample {
        let operator = self.operator.as_str();
        let named = |name: &str| route.path.replace("{name}", name);
        match (route.verb.as_str(), route.path) {
            ("POST", "/v1/admin/keys") => Sample::by(
                operator,
                route.path,
                json!({"role": "member", "tenant": "acme"}),
            ),
            ("DELETE", "/v1/admin/keys/{keyId}") => {
                let body = json!({"role": "member", "tenant": "acme"});
                let made = self.made("POST", operator, "/v1/admin/keys", body).await;
                let id = made["key"]["keyId"].as_str().unwrap();
                Sample::by(operator, format!("/v1/admin/keys/{id}"), Value::Null)
            }
            ("DELETE", "/v1/admin/tenants/{tenant}/override") => {
                self.rig.with_tiers().await;
                let path = "/v1/admin/tenants/acme/override";
                self.made("PUT", operator, path, json!({"weight": 3})).await;
                Sample::by(operator, path, Value::Null)
            }
            ("PUT", "/v1/admin/resources/{resource}") => {
                let path = "/v1/admin/resources/pool%2Fone";
                Sample::by(operator, path, json!({"capacity": 3}))
            }
            ("DELETE", "/v1/admin/resources/{resource}") => {
                let path = "/v1/admin/resources/pool%2Ftwo";
                self.made("PUT", operator, path, json!({"capacity": 3}))
                    .await;
                Sample::by(operator, path, Value::Null)
            }
            ("PUT", "/v1/admin/providers/{name}") => Sample::by(operator, named("one"), provider()),
            ("DELETE", "/v1/admin/providers/{name}") => {
                self.provider("gone").await;
                Sample::by(operator, named("gone"), Value::Null)
            }
            ("PUT", "/v1/admin/models/{name}") => {
                self.provider("host").await;
                Sample::by(operator, named("one"), model())
            }
            ("DELETE", "/v1/admin/models/{name}") => {
                self.provider("host").await;
                self.made("PUT", operator, &named("gone"), model()).await;
                Sample::by(operator, named("gone"), Value::Null)
            }
            ("PUT", "/v1/admin/tool-servers/{name}") => Sample::by(
                operator,
                named("one"),
                json!({"transport": {"stdio": {"command": "true"}}}),
            ),
            ("DELETE", "/v1/admin/tool-servers/{name}") => {
                let body = json!({"transport": {"stdio": {"command": "true"}}});
                self.made("PUT", operator, &named("gone"), body).await;
                Sample::by(operator, named("gone"), Value::Null)
            }
            ("POST", "/v1/admin/grant-keys/rotate") => {
                Sample::by(operator, route.path, Value::Null)
            }
            other => panic!("{other:?} is a write that this test does not know how to try"),
        }
    }
}

fn descriptor(pool: &str) -> Value {
    crate::rig::descriptor(pool, "chat")
}

fn schedule(cron: &str) -> Value {
    json!({"cron": cron, "timeZone": "Europe/Berlin", "run": {"capability": "chat", "input": "hello"}})
}

fn provider() -> Value {
    json!({"kind": "openai_compatible", "baseUrl": "http://127.0.0.1:9/v1", "apiKey": "canary-of-a-provider"})
}

fn model() -> Value {
    json!({"provider": "host", "upstreamModel": "m"})
}

fn is_replayed(answer: &Answer) -> bool {
    answer.headers.contains_key("idempotent-replayed")
}

/// An answer without what a repeat marks or leaves out; of a run, which one it is: it goes on meanwhile.
fn lasting(answer: &Answer) -> Value {
    if answer.body.is_empty() {
        return Value::Null;
    }
    let mut body = answer.json();
    if body.get("runId").is_some() {
        return body["runId"].take();
    }
    body.as_object_mut().unwrap().remove("secret");
    body
}

/// R3.1: over the table of routes: the same key and request is the same answer, marked; anything else under it a conflict.
#[tokio::test]
async fn every_write_is_done_once_under_its_key() {
    let world = World::new().await;
    let mut tried = 0;
    for route in ROUTES {
        if route.repeats() != Repeats::Key {
            continue;
        }
        let (verb, key) = (route.verb.as_str(), format!("key-{tried}"));
        let sample = world.sample(route).await;
        let first = world.send(verb, &sample, &key).await;
        assert!(first.status.is_success(), "{verb} {first:?}");
        assert!(!is_replayed(&first), "{route:?}");
        let again = world.send(verb, &sample, &key).await;
        assert_eq!(again.status, first.status, "{route:?} {again:?}");
        assert!(is_replayed(&again), "{route:?}: not kept under its key");
        assert_eq!(lasting(&again), lasting(&first), "{route:?}");
        let elsewhere = if sample.by == world.member {
            Sample::by(&sample.by, "/v1/conversations", json!({"title": key}))
        } else {
            Sample::by(&world.operator, "/v1/admin/tenants", json!({"tenant": key}))
        };
        let other = world.send("POST", &elsewhere, &key).await;
        assert_eq!(
            other.refusal(),
            "IDEMPOTENCY_CONFLICT idempotency-key",
            "{route:?}"
        );
        tried += 1;
    }
    assert!(tried >= 23, "{tried}");
}

/// R3.1: a key belongs to its tenant and to one request, whether that is a run or not.
#[tokio::test]
async fn a_key_stands_for_one_request_of_one_tenant() {
    let world = World::new().await;
    let globex = world.rig.tenant("globex").await;
    let begin = Sample::by(&world.member, "/v1/conversations", json!({"title": "t"}));
    let task = Sample::by(
        &world.member,
        "/v1/runs",
        json!({"capability": "chat", "input": "hello"}),
    );
    let theirs = Sample::by(&globex, "/v1/conversations", json!({"title": "t"}));
    let ours = world.send("POST", &begin, "k").await.json();
    let other = world.send("POST", &theirs, "k").await;
    assert!(!is_replayed(&other), "another tenant's key is its own");
    assert_ne!(other.json()["conversationId"], ours["conversationId"]);
    let run = world.send("POST", &task, "k").await;
    assert_eq!(run.refusal(), "IDEMPOTENCY_CONFLICT idempotency-key");
    assert_eq!(
        world.send("POST", &task, "r").await.status,
        StatusCode::ACCEPTED
    );
    assert!(is_replayed(&world.send("POST", &task, "r").await));
    let reused = world.send("POST", &begin, "r").await;
    assert_eq!(reused.problem().code, Code::IdempotencyConflict);
    let renamed = Sample::by(&world.member, "/v1/conversations", json!({"title": "u"}));
    let renamed = world.send("POST", &renamed, "k").await;
    assert_eq!(renamed.problem().code, Code::IdempotencyConflict);
    // The same JSON in another form is the same request.
    let request = world.rig.request("POST", "/v1/conversations");
    let request = request
        .bearer_auth(&world.member)
        .header("idempotency-key", "k")
        .header("content-type", "application/json")
        .body("{ \"title\" : \"\\u0074\" }");
    assert_eq!(answer(request).await.json(), ours);
}

/// R3.1, O-33: many at once do one thing, and all are told of that one.
#[tokio::test]
async fn fifty_at_once_do_one_thing() {
    let world = World::new().await;
    let begin = Sample::by(&world.member, "/v1/conversations", json!({}));
    let answers = join_all((0..50).map(|_| world.send("POST", &begin, "begin"))).await;
    let first = answers[0].json();
    assert!(answers.iter().all(|answer| answer.json() == first));
    let fresh = answers.iter().filter(|answer| !is_replayed(answer)).count();
    assert_eq!(fresh, 1);
    let make = json!({"role": "member", "tenant": "acme"});
    let make = Sample::by(&world.operator, "/v1/admin/keys", make);
    let answers = join_all((0..50).map(|_| world.send("POST", &make, "make"))).await;
    let secrets = answers.iter().filter_map(|answer| {
        let body = answer.json();
        body["secret"].as_str().map(str::to_owned)
    });
    let secrets: Vec<String> = secrets.collect();
    let [secret] = secrets.as_slice() else {
        panic!("one answer has the secret: {answers:?}");
    };
    let me = world.rig.get("/v1/me", secret).await.json();
    for answer in &answers {
        assert_eq!(answer.json()["key"]["keyId"], me["keyId"]);
    }
}

/// R3.1: a write in several transactions is done once too, and each caller is told of all of it.
#[tokio::test]
async fn a_bulk_action_counts_each_run_once() {
    let world = World::new().await;
    let runs = 210;
    join_all((0..runs).map(|_| world.rig.submit(&world.member))).await;
    let cancel = Sample::by(&world.member, "/v1/runs:cancel", json!({}));
    let answers = join_all((0..10).map(|_| world.send("POST", &cancel, "all"))).await;
    for answer in answers {
        assert_eq!(answer.json(), json!({"changed": runs, "requested": 0}));
    }
    world.rig.submit(&world.member).await;
    let again = world.send("POST", &cancel, "all").await;
    assert!(is_replayed(&again));
    assert_eq!(again.json(), json!({"changed": runs, "requested": 0}));
}

/// R3.1: what is refused is not remembered: the same request succeeds once its cause is gone.
#[tokio::test]
async fn a_refusal_may_be_tried_again_under_its_key() {
    let world = World::new().await;
    let body = json!({"expected": null, "active": 1});
    let set = Sample::by(&world.controller, "/v1/pools/late/epoch", body);
    let refused = world.send("POST", &set, "k").await;
    assert_eq!(refused.problem().code, Code::NotFound);
    world.pool("late").await;
    let done = world.send("POST", &set, "k").await;
    assert_eq!(done.status, StatusCode::OK, "{done:?}");
    assert!(!is_replayed(&done));
    // A body that is not whole is refused before its key counts.
    let request = world.rig.request("POST", "/v1/conversations");
    let request = request.bearer_auth(&world.member);
    let cut = request
        .header("idempotency-key", "cut")
        .header("content-type", "application/json");
    assert_eq!(
        answer(cut.body("{\"title\":")).await.refusal(),
        "INVALID_ARGUMENT $"
    );
    let whole = Sample::by(&world.member, "/v1/conversations", json!({}));
    assert_eq!(
        world.send("POST", &whole, "cut").await.status,
        StatusCode::CREATED
    );
}

/// R1.8, R3.1: no secret is kept with an answer, and the digest is keyed.
#[tokio::test]
async fn no_secret_is_kept_with_an_answer() {
    let world = World::new().await;
    let put = Sample::by(&world.operator, "/v1/admin/providers/one", provider());
    let first = world.send("PUT", &put, "put").await;
    assert_eq!(first.json()["apiKey"], "sealed");
    assert_eq!(world.send("PUT", &put, "put").await.json(), first.json());
    let body = json!({"role": "member", "tenant": "acme"});
    let post = Sample::by(&world.operator, "/v1/admin/keys", body);
    let made = world.send("POST", &post, "make").await.json();
    let rows: Vec<String> = sqlx::query_scalar("SELECT r::text FROM idempotency_records r")
        .fetch_all(world.rig.db.pool())
        .await
        .unwrap();
    assert_eq!(rows.len(), 2);
    let secret = made["secret"].as_str().unwrap();
    for row in rows {
        assert!(
            !row.contains("canary-of-a-provider") && !row.contains(&secret[3..]),
            "{row}"
        );
    }
}

/// R4.2: in the worker protocol the fence tells a repeat; a key may be sent and changes nothing.
#[tokio::test]
async fn the_worker_protocol_takes_a_key_and_needs_none() {
    let world = World::new().await;
    for route in ROUTES
        .iter()
        .filter(|route| route.path.starts_with("/v1/worker/"))
    {
        assert_eq!(route.repeats(), Repeats::Fence);
    }
    for _ in 0..2 {
        world.rig.submit(&world.member).await;
        let claim = Sample::by(&world.worker, "/v1/worker/claim", claim_body(10_000));
        let claimed = world.send("POST", &claim, "same").await;
        assert_eq!(claimed.json()["leases"].as_array().unwrap().len(), 1);
        assert!(!is_replayed(&claimed));
    }
    let nobody = Sample::by(
        &world.operator,
        format!("/v1/admin/keys/{}", KeyId::new()),
        Value::Null,
    );
    let refused = world.send("DELETE", &nobody, "same").await;
    assert_eq!(refused.problem().code, Code::NotFound);
}

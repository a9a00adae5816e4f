//! What the server answers is what its document says.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Validator;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{
    Code, admission,
    api::{catalog, conversations, grant_keys, tenants, tools},
    contracts, effect, event, pool_reason, principal, queue_reason, run, schedule,
};
use tidegate_server::{
    openapi,
    routes::{ROUTES, Repeats, Route, Verb},
};

use crate::{
    repeats::World,
    rig::{Answer, Rig, claim_body},
};

/// The document as the server serves it.
struct Contract(Value);

impl Contract {
    async fn served_by(rig: &Rig) -> Self {
        Self(rig.get("/openapi.json", "").await.json())
    }

    /// What an answer of an operation must be.
    fn schema(&self, verb: &str, path: &str, status: StatusCode) -> Option<Value> {
        let operation = &self.0["paths"][path][verb.to_lowercase()];
        let response = &operation["responses"][status.as_str()];
        assert!(response.is_object(), "{verb} {path}: {status} is not in it");
        let schema = &response["content"]["application/json"]["schema"];
        schema.is_object().then(|| schema.clone())
    }

    fn validator(&self, mut schema: Value) -> Validator {
        schema["components"] = self.0["components"].clone();
        jsonschema::validator_for(&schema).expect("a schema of JSON")
    }

    /// Fails unless the answer is one that the document tells of.
    fn check(&self, verb: &str, path: &str, answer: &Answer) {
        let place = format!("{verb} {path}");
        assert!(answer.status.is_success(), "{place}: {answer:?}");
        let Some(schema) = self.schema(verb, path, answer.status) else {
            assert_eq!(
                answer.body, "",
                "{place} answers what is not in the document"
            );
            return;
        };
        let (validator, body) = (self.validator(schema), answer.json());
        let wrong: Vec<String> = validator
            .iter_errors(&body)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{place}: {wrong:#?}\n{body:#}");
    }
}

/// A key that may call a route.
fn caller<'a>(world: &'a World, route: &Route) -> &'a str {
    if route.path.starts_with("/v1/admin") || route.path == "/v1/pools" {
        &world.operator
    } else {
        &world.member
    }
}

/// Turns, runs of every fate, and what a look at them may show.
async fn populate(world: &World) -> Vec<String> {
    let turns = format!(
        "/v1/conversations/{}/turns",
        world.rig.conversation(&world.member).await
    );
    let all = world
        .rig
        .post("/v1/runs:cancel", &world.member, json!({}))
        .await;
    assert!(all.status.is_success(), "{all:?}");
    for _ in 0..2 {
        let turn = world
            .rig
            .post(&turns, &world.member, json!({"input": "hello"}))
            .await;
        assert!(turn.status.is_success(), "{turn:?}");
    }
    let lease = world.rig.claim(&world.worker).await;
    let run = lease["run"]["runId"].as_str().unwrap().to_owned();
    let complete =
        json!({"fence": lease["fence"], "messages": [{"role": "assistant", "content": "hi"}]});
    let path = format!("/v1/worker/runs/{run}/complete");
    let done = world.rig.post(&path, &world.worker, complete).await;
    assert!(done.status.is_success(), "{done:?}");
    let mut runs = vec![run];
    runs.push(world.failed_run().await);
    runs.push(world.run_in_review().await);
    runs.push(world.asking_run().await);
    runs.push(world.rig.submit(&world.member).await);
    runs
}

/// A client made from the document can read every answer to a write and every list and thing.
#[tokio::test]
async fn every_answer_is_what_the_document_says() {
    let world = World::new().await;
    let contract = Contract::served_by(&world.rig).await;
    let mut checked = BTreeSet::new();
    for (number, route) in ROUTES.iter().enumerate() {
        if route.repeats() == Repeats::Key {
            let sample = world.sample(route).await;
            let verb = route.verb.as_str();
            let answer = world.send(verb, &sample, &format!("k{number}")).await;
            contract.check(verb, route.path, &answer);
            checked.insert((route.verb, route.path));
        }
    }
    let put =
        world.sample(tidegate_server::routes::find(Verb::Put, "/v1/schedules/{name}").unwrap());
    let put = put.await;
    assert!(world.send("PUT", &put, "again").await.status.is_success());
    let runs = populate(&world).await;
    let list = world.rig.get("/v1/runs", &world.member).await.json();
    let mut listed = list["items"].as_array().unwrap().iter();
    let turn = listed.find(|run| run["conversationId"].is_string());
    let conversation = turn.unwrap()["conversationId"].as_str().unwrap();
    for route in ROUTES.iter().filter(|route| route.verb == Verb::Get) {
        let place = &contract.0["paths"][route.path]["get"]["responses"]["200"]["content"];
        // Admissions have a test of their own.
        if place["application/json"]["schema"].get("$ref").is_none()
            || route.path.starts_with("/v1/admissions")
        {
            continue;
        }
        for run in &runs {
            let path = route.path.replace("{runId}", run);
            let path = path.replace("{conversationId}", conversation);
            let path = path
                .replace("{tenant}", "acme")
                .replace("{resource}", "pool%2Fone")
                .replace("{name}", "nightly");
            let answer = world.rig.get(&path, caller(&world, route)).await;
            contract.check("GET", route.path, &answer);
            checked.insert((route.verb, route.path));
            if path == route.path {
                break;
            }
        }
    }
    assert!(checked.len() >= 45, "{}", checked.len());
}

/// A worker of which every answer is looked at.
struct Watched<'a> {
    world: &'a World,
    contract: Contract,
    checked: BTreeSet<(Verb, &'static str)>,
}

impl Watched<'_> {
    /// A call of the worker protocol; `run` and `c1` stand for what the path names.
    async fn call(&mut self, verb: Verb, end: &str, run: &str, body: Value) -> Value {
        let mut routes = ROUTES.iter();
        let route = routes
            .find(|route| route.verb == verb && route.path.strip_prefix("/v1/worker/") == Some(end))
            .expect(end);
        let path = route.path.replace("{runId}", run).replace("{callId}", "c1");
        let worker = &self.world.worker;
        let answer = self
            .world
            .rig
            .call(verb.as_str(), &path, worker, body)
            .await;
        self.contract.check(verb.as_str(), route.path, &answer);
        self.checked.insert((route.verb, route.path));
        match answer.status {
            StatusCode::NO_CONTENT => Value::Null,
            _ => answer.json(),
        }
    }

    async fn post(&mut self, end: &str, run: &str, body: Value) -> Value {
        self.call(Verb::Post, end, run, body).await
    }

    /// A new run under a lease: its id and its fence.
    async fn claimed(&mut self) -> (String, Value) {
        self.world.rig.submit(&self.world.member).await;
        let leases = self.post("claim", "", claim_body(10_000)).await;
        let run = leases["leases"][0]["run"]["runId"].as_str().unwrap();
        (run.to_owned(), leases["leases"][0]["fence"].clone())
    }
}

/// R4.1: a worker made from the document can read every answer of its protocol.
#[tokio::test]
async fn every_answer_to_a_worker_is_what_the_document_says() {
    let world = World::new().await;
    let contract = Contract::served_by(&world.rig).await;
    let pools = world.rig.get("/v1/pools", &world.controller).await.json();
    let epoch = pools["items"][0]["activeDescriptorEpoch"].clone();
    let mut worker = Watched {
        world: &world,
        contract,
        checked: BTreeSet::new(),
    };
    let joins = json!({"workerId": "w1", "incarnation": 1, "poolId": "builtin", "protocolVersion": 1,
        "descriptorEpoch": epoch});
    worker.post("register", "", joins).await;
    let beat = json!({"workerId": "w1", "incarnation": 1, "occupied": 1});
    worker.post("heartbeat", "", beat).await;
    worker.post("claim", "", claim_body(0)).await;
    lives_of_attempts(&mut worker).await;
    let leaves = json!({"workerId": "w1", "incarnation": 1});
    worker.call(Verb::Delete, "registration", "", leaves).await;
    let all = ROUTES
        .iter()
        .filter(|route| route.path.starts_with("/v1/worker/"));
    let all: BTreeSet<_> = all.map(|route| (route.verb, route.path)).collect();
    assert_eq!(worker.checked, all);
}

/// One attempt that does everything and waits, and one for each other end; what is answered again, too.
async fn lives_of_attempts(worker: &mut Watched<'_>) {
    let (run, fence) = worker.claimed().await;
    let event = json!({"seq": 3, "kind": "worker.note", "body": {"n": 1}});
    for _ in 0..2 {
        let events = json!({"fence": fence, "events": [event]});
        worker.post("runs/{runId}/events", &run, events).await;
        worker
            .post(
                "runs/{runId}/context",
                &run,
                json!({"fence": fence, "limit": 10}),
            )
            .await;
        let digest = format!("sha256:{}", "0".repeat(64));
        let intent = json!({"fence": fence, "callId": "c1", "tool": "files/write", "argumentsDigest": digest,
            "idempotent": false});
        worker.post("runs/{runId}/effects", &run, intent).await;
        let done = json!({"fence": fence, "outcome": "done", "result": {"text": "ok"}});
        worker
            .post("runs/{runId}/effects/{callId}", &run, done)
            .await;
        let child = json!({"fence": fence, "key": "a", "capability": "chat", "input": "hello"});
        worker.post("runs/{runId}/children", &run, child).await;
    }
    let lost = json!({"runId": run, "fence": "9.9"});
    let held = json!({"runId": run, "fence": fence});
    let path = format!("/v1/runs/{run}/cancel");
    for lease in [&held, &lost] {
        worker.post("renew", "", json!({"leases": [lease]})).await;
    }
    let asks = json!({"fence": fence, "input": {"kind": "text", "prompt": "which?"}});
    worker.post("runs/{runId}/wait", &run, asks).await;
    let member = &worker.world.member;
    worker.world.rig.post(&path, member, Value::Null).await;
    let ends = [
        (
            "complete",
            json!({"result": {"text": "hi"}, "usage": {"tokens": 3}}),
        ),
        (
            "fail",
            json!({"code": "WORKER_FAILED", "retryable": true, "usage": {"tokens": 3}}),
        ),
        ("release", json!({})),
    ];
    for (end, mut body) in ends {
        let (run, fence) = worker.claimed().await;
        if end == "release" {
            let path = format!("/v1/runs/{run}/cancel");
            worker
                .world
                .rig
                .post(&path, &worker.world.member, Value::Null)
                .await;
            let told = json!({"leases": [{"runId": run, "fence": fence}]});
            let told = worker.post("renew", "", told).await;
            assert_eq!(told["cancel"].as_array().map(Vec::len), Some(1), "{told}");
        }
        body["fence"] = fence;
        for _ in 0..if end == "release" { 1 } else { 2 } {
            worker
                .post(&format!("runs/{{runId}}/{end}"), &run, body.clone())
                .await;
        }
    }
}

/// What a coordinator does with an admission; fences are put in as they are answered.
fn life_of_an_admission(id: &str) -> Vec<(&'static str, String, Value)> {
    let wanted = json!({"capability": "chat", "estimates": {"tokens": 5}});
    let admit = json!({"admissionId": id, "requirements": wanted, "ttlMs": 5000});
    let one = "/v1/admissions/{admissionId}";
    vec![
        (
            "POST",
            "/v1/admissions/explain".to_owned(),
            json!({"requirements": wanted}),
        ),
        ("POST", "/v1/admissions".to_owned(), admit),
        ("GET", one.to_owned(), Value::Null),
        (
            "POST",
            format!("{one}/verify"),
            json!({"grant": "x", "resource": "pool/builtin"}),
        ),
        ("POST", format!("{one}/renew"), json!({})),
        (
            "POST",
            format!("{one}/phase"),
            json!({"settle": [{"grantId": format!("{id}/1"), "amount": 1}]}),
        ),
        ("POST", format!("{one}/phase"), json!({"next": wanted})),
        ("POST", format!("{one}/release"), json!({})),
        ("GET", one.to_owned(), Value::Null),
    ]
}

/// R7.3: so is every answer to a coordinator.
#[tokio::test]
async fn every_answer_to_a_coordinator_is_what_the_document_says() {
    let world = World::new().await;
    let contract = Contract::served_by(&world.rig).await;
    let coordinator = world
        .rig
        .key(principal::Role::Coordinator, "acme", "")
        .await;
    for name in ["pool%2Fbuiltin", "tenant%2Facme%2Ftokens"] {
        let path = format!("/v1/admin/resources/{name}");
        let body = json!({"capacity": 90});
        let made = world.rig.call("PUT", &path, &world.operator, body).await;
        contract.check("PUT", "/v1/admin/resources/{resource}", &made);
    }
    let id = tidegate_model::AdmissionId::new().to_string();
    let mut fence = Value::Null;
    for (verb, route, mut body) in life_of_an_admission(&id) {
        if body.is_object() && route.contains("{admissionId}") && body.get("grant").is_none() {
            body["fence"] = fence.clone();
        }
        let path = route.replace("{admissionId}", &id);
        let answer = world.rig.call(verb, &path, &coordinator, body).await;
        contract.check(verb, &route, &answer);
        if let Some(answered) = answer.json().get("fence") {
            fence = answered.clone();
        }
    }
    for (route, path) in [
        (
            "/v1/admin/resources/{resource}/holders",
            "/v1/admin/resources/pool%2Fbuiltin/holders",
        ),
        ("/v1/admin/ledger", "/v1/admin/ledger"),
    ] {
        let answer = world.rig.get(path, &world.operator).await;
        contract.check("GET", route, &answer);
    }
}

/// What an enum of the document is called there, and the texts of its members as they are sent.
macro_rules! wire {
    ($($of:ty),+ $(,)?) => {
        BTreeMap::from([$((
            stringify!($of).rsplit("::").next().unwrap().trim().to_owned(),
            <$of>::ALL.iter().map(|member| serde_json::to_value(member).unwrap()).collect::<Vec<_>>(),
        )),+])
    };
}

fn enums(value: &Value, place: &str, found: &mut BTreeMap<String, Vec<Value>>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(members)) = fields.get("enum") {
                found.insert(place.to_owned(), members.clone());
            }
            for (name, field) in fields {
                enums(field, name, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| enums(item, place, found)),
        _ => {}
    }
}

/// The members of an enum stand in the document as they are sent. A new enum of the document belongs in this list.
#[test]
fn every_enum_of_the_document_is_the_one_that_is_sent() {
    let sent = wire![
        Code,
        admission::AdmissionState,
        admission::EndReason,
        admission::GrantState,
        catalog::ProviderKind,
        catalog::SecretState,
        contracts::DescriptorContract,
        contracts::Modality,
        contracts::ResourceKind,
        contracts::Sandbox,
        conversations::MessageRole,
        effect::EffectOutcome,
        effect::EffectSource,
        effect::ReviewVerdict,
        event::EventKind,
        grant_keys::GrantKeyState,
        contracts::GrantAlgorithm,
        pool_reason::PoolReason,
        principal::KeyScope,
        principal::Role,
        principal::TenantState,
        queue_reason::QueueReason,
        run::AskKind,
        run::AttemptOutcome,
        run::PrioritySource,
        run::QuotaBucket,
        run::RunKind,
        run::RunState,
        run::ServiceClass,
        run::WaitMode,
        run::WaitOn,
        schedule::MissedRuns,
        schedule::Overlap,
        schedule::SkipReason,
        tenants::LimitScope,
        tools::HttpMethod,
        tools::SideEffectLevel,
        tools::StatusMeaning,
        tools::ToolServerPhase,
    ];
    let mut written = BTreeMap::new();
    let document = serde_json::to_value(openapi()).unwrap();
    enums(&document, "", &mut written);
    assert_eq!(written, sent);
}

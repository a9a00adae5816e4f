//! Probes, metrics, request ids, unknown routes.

use reqwest::StatusCode;
use serde_json::Value;
use tidegate_model::{Code, principal::Role};
use tidegate_server::routes::ROUTES;

use crate::rig::{CHAT, Rig, answer, eventually};

#[tokio::test]
async fn a_server_lives_and_becomes_ready() {
    let rig = Rig::new().await;
    let live = answer(rig.request("GET", "/livez")).await;
    assert_eq!((live.status, live.body.as_str()), (StatusCode::OK, "ok\n"));
    eventually("ready", async || {
        let ready = answer(rig.request("GET", "/readyz")).await;
        (ready.status == StatusCode::OK && ready.json()["ready"] == true).then_some(())
    })
    .await;
    rig.shutdown.drain();
    let ready = answer(rig.request("GET", "/readyz")).await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ready.json()["ready"], false);
    assert_eq!(
        answer(rig.request("GET", "/livez")).await.status,
        StatusCode::OK
    );
}

/// R21.4: liveness never depends on the database, readiness does.
#[tokio::test]
async fn without_a_database_a_server_lives_but_is_not_ready() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    rig.db.pool().close().await;
    assert_eq!(
        answer(rig.request("GET", "/livez")).await.status,
        StatusCode::OK
    );
    eventually("not ready", async || {
        let ready = answer(rig.request("GET", "/readyz")).await;
        (ready.status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
    let refused = rig.get("/v1/runs", &acme).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    let problem = refused.problem();
    assert_eq!(
        (problem.code, problem.retryable),
        (Code::DatabaseUnavailable, true)
    );
    assert!(
        !refused.body.to_lowercase().contains("pool"),
        "nothing of the inside: {}",
        refused.body
    );
}

#[tokio::test]
async fn the_contract_is_served() {
    let rig = Rig::new().await;
    let contract = answer(rig.request("GET", "/openapi.json")).await;
    assert_eq!(contract.headers["content-type"], "application/json");
    let made = serde_json::to_value(tidegate_server::openapi()).unwrap();
    assert_eq!(contract.json(), made);
    let head = answer(rig.request("HEAD", "/openapi.json")).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
}

#[tokio::test]
async fn unknown_routes_and_methods_are_problems() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    for path in [
        "/",
        "/v1",
        "/v1/runs/",
        "/v2/runs",
        "/v1/runs:explode",
        "//livez",
        "/v1/%ff",
    ] {
        let answer = rig.get(path, &acme).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(answer.problem().code, Code::NotFound);
    }
    for (method, path, allow) in [
        ("PATCH", "/v1/runs", "POST, GET, HEAD"),
        ("DELETE", "/livez", "GET, HEAD"),
    ] {
        let answer = rig.call(method, path, &acme, Value::Null).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.problem().code, Code::MethodNotAllowed);
        assert_eq!(answer.headers["allow"], allow);
    }
}

/// R1.5: an instance serves the routes of its roles and says so about the others.
#[tokio::test]
async fn an_instance_without_a_role_does_not_serve_its_routes() {
    let rig = Rig::with(|settings| settings.roles = CHAT).await;
    let acme = rig.tenant("acme").await;
    assert_eq!(rig.get("/v1/runs", &acme).await.status, StatusCode::OK);
    assert_eq!(rig.get("/v1/me", &acme).await.status, StatusCode::OK);
    let root = rig.key(Role::SuperAdmin, "", "").await;
    let answer = rig.get("/v1/admin/tenants", &root).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(answer.problem().detail.unwrap().contains("role"));
}

#[tokio::test]
async fn request_ids_come_back_and_harmful_ones_are_replaced() {
    let rig = Rig::new().await;
    let ask = async |id: &str| {
        let answer = answer(rig.request("GET", "/nothing").header("x-request-id", id)).await;
        answer.problem().request_id.unwrap()
    };
    assert_eq!(ask("trace-7f.1").await, "trace-7f.1");
    for bad in ["", "two words", "<script>", &"a".repeat(129)] {
        let id = ask(bad).await;
        assert!(id.starts_with("req_"), "{id}");
    }
}

/// The registry is the process's, other tests write to it too: what bounds it is that each label is of a closed set.
fn only_known_labels(exposition: &str) {
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\"")).expect("the label");
        rest.split_once('"').expect("its end").0.to_owned()
    };
    let methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "other"];
    let mut seen = 0;
    for line in exposition.lines() {
        if !line.starts_with("tidegate_http_requests_total{") {
            continue;
        }
        seen += 1;
        let (method, route) = (label(line, "method"), label(line, "route"));
        assert!(methods.contains(&method.as_str()), "{line}");
        assert!(
            route == "other" || ROUTES.iter().any(|known| known.path == route),
            "{line}"
        );
    }
    assert!(seen > 1, "{exposition}");
}

/// R21.1, O-35: metrics stand on the operator's listener, or behind a scope; what clients make up adds no series.
#[tokio::test]
async fn metrics_are_served_and_their_series_are_bounded() {
    let rig =
        Rig::with(|settings| settings.metrics_listen = Some(([127, 0, 0, 1], 0).into())).await;
    let scrape = async || {
        let url = format!("http://{}/metrics", rig.metrics.unwrap());
        answer(rig.http.get(url)).await.body
    };
    let acme = rig.tenant("acme").await;
    rig.get("/v1/me", &acme).await;
    let before = scrape().await;
    assert!(before.contains("tidegate_http_requests_total{"), "{before}");
    for n in 0..200 {
        let request = rig
            .request("GET", &format!("/v1/runs/made-up-{n}"))
            .bearer_auth(&acme);
        answer(
            request
                .header("x-request-id", format!("id-{n}"))
                .header("user-agent", format!("agent-{n}")),
        )
        .await;
        answer(rig.request(&format!("VERB{n}"), &format!("/path/{n}"))).await;
    }
    let after = scrape().await;
    assert!(!after.contains("made-up") && !after.contains("VERB1") && !after.contains("/path/"));
    only_known_labels(&after);
    for line in after.lines() {
        // `promtool check metrics` wants a text for each.
        if let Some(name) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split(' ').next())
        {
            assert!(
                after.contains(&format!("# HELP {name} ")),
                "{name} is not described"
            );
        }
    }
    let elsewhere = format!("http://{}/v1/me", rig.metrics.unwrap());
    assert_eq!(
        answer(rig.http.get(elsewhere)).await.status,
        StatusCode::NOT_FOUND
    );
}

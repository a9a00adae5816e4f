//! R2.1, R2.2: which role may call which route, asked of the server and compared with the committed matrix.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{
    Code,
    principal::{KeyScope, Role},
};
use tidegate_server::routes::{Access, ROUTES, Route};

use crate::rig::{Rig, answer};

/// The path with ids that nobody has.
pub fn path_of(route: &Route) -> String {
    route
        .path
        .replace("{runId}", &tidegate_model::RunId::new().to_string())
        .replace(
            "{conversationId}",
            &tidegate_model::ConversationId::new().to_string(),
        )
        .replace("{keyId}", &tidegate_model::KeyId::new().to_string())
        .replace("{tenant}", "nobody")
        .replace("{poolId}", "nowhere")
        .replace("{epoch}", "1")
        .replace("{name}", "nothing")
}

/// A body that no route accepts, so that the matrix changes nothing.
fn harmless() -> Value {
    json!({"noSuchField": true})
}

async fn may(rig: &Rig, route: &Route, key: &str) -> bool {
    let body = if route.verb.as_str() == "GET" {
        Value::Null
    } else {
        harmless()
    };
    let answer = rig
        .call(route.verb.as_str(), &path_of(route), key, body)
        .await;
    if answer.status.is_success() {
        return true;
    }
    match answer.problem().code {
        Code::Forbidden => false,
        Code::Unauthenticated | Code::Internal => panic!("{route:?}: {answer:?}"),
        _ => true,
    }
}

/// The committed matrix is read by reviewers; `TIDEGATE_BLESS=1` writes it anew.
#[tokio::test]
async fn the_matrix_of_roles_and_routes_is_the_committed_one() {
    let rig = Rig::new().await;
    rig.tenant("acme").await;
    let mut keys = Vec::new();
    for role in Role::ALL {
        keys.push((role, rig.key(*role, "acme", "builtin").await));
    }
    let names: Vec<&str> = keys.iter().map(|(role, _)| role.as_str()).collect();
    let mut lines = vec![
        "# Who may call what. + may, - may not (403), o open to all.".to_owned(),
        names.join(" "),
    ];
    for route in ROUTES {
        let mut marks = String::new();
        for (_, key) in &keys {
            marks.push(match route.access {
                Access::Anyone => 'o',
                _ if may(&rig, route, key).await => '+',
                _ => '-',
            });
        }
        let scope = route.access.scope().map(|scope| format!("  scope {scope}"));
        let (verb, scope) = (route.verb.as_str(), scope.unwrap_or_default());
        lines.push(format!("{marks} {verb} {}{scope}", route.path));
    }
    let matrix = lines.join("\n") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/roles.txt");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(path, &matrix).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == matrix,
        "roles.txt is out of date; TIDEGATE_BLESS=1 writes it anew. Now:\n{matrix}"
    );
}

/// R2.1: no key, a malformed one and an unknown one are told apart by nobody.
#[tokio::test]
async fn every_route_that_is_not_open_wants_a_key() {
    let rig = Rig::new().await;
    let unknown = format!("tg_{}", "A".repeat(43));
    for route in ROUTES {
        let request = || rig.request(route.verb.as_str(), &path_of(route));
        let answers = [
            answer(request()).await,
            answer(request().bearer_auth(&unknown)).await,
            answer(request().bearer_auth("nonsense")).await,
            answer(request().header("authorization", "Basic dTpw")).await,
        ];
        for answer in answers {
            if route.access == Access::Anyone {
                assert!(answer.status.is_success(), "{route:?} {answer:?}");
                continue;
            }
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{route:?}");
            assert_eq!(answer.problem().code, Code::Unauthenticated);
            assert!(answer.headers.contains_key("www-authenticate"));
        }
    }
}

/// R3.2, R21.1: a role alone does not give what a scope must.
#[tokio::test]
async fn scopes_are_asked_for_besides_the_role() {
    let rig = Rig::new().await;
    rig.tenant("acme").await;
    let bare = rig.key_with(Role::Member, "acme", "", Vec::new()).await;
    let body = json!({"capability": "chat", "input": "hello"});
    let refused = rig.post("/v1/runs", &bare, body.clone()).await;
    assert_eq!(refused.problem().code, Code::Forbidden);
    assert!(refused.problem().detail.unwrap().contains("runs:business"));
    assert_eq!(
        rig.get("/metrics", &bare).await.problem().code,
        Code::Forbidden
    );
    let business = rig
        .key_with(Role::Member, "acme", "", vec![KeyScope::RunsBusiness])
        .await;
    assert_eq!(
        rig.post("/v1/runs", &business, body).await.status,
        StatusCode::ACCEPTED
    );
    let scraper = rig
        .key_with(Role::Member, "acme", "", vec![KeyScope::MetricsRead])
        .await;
    assert_eq!(rig.get("/metrics", &scraper).await.status, StatusCode::OK);
}

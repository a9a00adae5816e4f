//! Tool servers of every transport, as an administrator keeps them and as instances report on them.

use std::{collections::BTreeMap, time::Duration};

use secrecy::ExposeSecret as _;
use serde_json::json;
use tidegate_engine::{Engine, Error, catalog};
use tidegate_model::api::{
    HttpMethod, HttpTool, HttpTransport, PutToolServer, SideEffectLevel, StdioTransport,
    StreamableHttpTransport, ToolServerPhase, ToolState, ToolTransport, ToolTransportView,
};
use tidegate_store::catalog::ToolServerReport;

use crate::{
    catalog::tool_server,
    rig::{World, eventually, id, operator, tenant, whole_database},
};

const CANARY: &str = "Bearer canary-77aa";

fn mcp(url: &str) -> PutToolServer {
    let headers = BTreeMap::from([("Authorization".to_owned(), CANARY.to_owned())]);
    PutToolServer {
        transport: ToolTransport::StreamableHttp(StreamableHttpTransport {
            url: url.to_owned(),
            headers,
        }),
        tenants: None,
        ..tool_server(&[])
    }
}

fn api(path: &str, schema: serde_json::Value) -> PutToolServer {
    let tool = HttpTool {
        description: "one item".to_owned(),
        method: HttpMethod::Get,
        path: path.to_owned(),
        schema,
        statuses: BTreeMap::new(),
        max_bytes: None,
    };
    PutToolServer {
        transport: ToolTransport::Http(HttpTransport {
            base_url: "https://api.example/v1".to_owned(),
            headers: BTreeMap::new(),
            tools: BTreeMap::from([("item".to_owned(), tool)]),
        }),
        tools: BTreeMap::from([("item".to_owned(), SideEffectLevel::Read)]),
        tenants: None,
        ..tool_server(&[])
    }
}

fn by_id() -> serde_json::Value {
    json!({"type": "object", "properties": {"id": {}}, "required": ["id"]})
}

async fn put(engine: &Engine, name: &str, request: PutToolServer) -> Result<(), Error> {
    let operator = operator();
    let put = catalog::put_tool_server(engine, &operator, id(name), request);
    put.await.map(|_| ())
}

async fn refused_field(engine: &Engine, request: PutToolServer) -> (String, String) {
    let error = put(engine, "t", request).await.unwrap_err();
    let field = error.problem().field.clone().unwrap_or_default();
    let text = error.to_string();
    assert!(!text.contains("s3cret"), "{text}");
    (field, text)
}

fn changed(mut request: PutToolServer, change: impl FnOnce(&mut PutToolServer)) -> PutToolServer {
    change(&mut request);
    request
}

fn stdio(change: impl FnOnce(&mut StdioTransport)) -> PutToolServer {
    changed(tool_server(&[]), |request| {
        if let ToolTransport::Stdio(stdio) = &mut request.transport {
            change(stdio);
        }
    })
}

fn header(name: &str, value: &str) -> PutToolServer {
    changed(mcp("https://tools.example/mcp"), |request| {
        if let ToolTransport::StreamableHttp(http) = &mut request.transport {
            http.headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        }
    })
}

async fn all_refused(requests: Vec<(PutToolServer, &str)>) {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    for (request, field) in requests {
        let (found, text) = refused_field(&engine, request).await;
        assert_eq!(found, field, "{text}");
    }
    assert_eq!(engine.store().list_tool_servers().await.unwrap().len(), 0);
}

#[tokio::test]
async fn malformed_programs_and_rules_are_refused_by_field() {
    let with = |change: fn(&mut PutToolServer)| changed(tool_server(&[]), change);
    let program = |change: fn(&mut StdioTransport)| stdio(change);
    let field = |field: &'static str| move |request| (request, field);
    all_refused(vec![
        field("transport.stdio.command")(program(|stdio| stdio.command = " ".to_owned())),
        field("transport.stdio.args[2]")(program(|stdio| stdio.args.push("a\0".to_owned()))),
        field("transport.stdio.env")(tool_server(&[("A-B", "x")])),
        field("transport.stdio.env.TOKEN")(tool_server(&[("TOKEN", "s3cret\0")])),
        field("callTimeoutMs")(with(|r| r.call_timeout_ms = Some(0))),
        field("idleTimeoutMs")(with(|r| r.idle_timeout_ms = Some(60_001))),
        field("mount.deny")(with(|r| r.mount.deny = vec!["a*b".to_owned()])),
        field("mount.allow")(with(|r| r.mount.allow = Some(vec![String::new()]))),
    ])
    .await;
}

#[tokio::test]
async fn malformed_addresses_and_calls_are_refused_by_field() {
    let url = "transport.streamableHttp.url";
    let path = "transport.http.tools.item.path";
    let nothing_required = json!({"type": "object", "properties": {"id": {}}});
    let mut of_nobody = api("/items", by_id());
    of_nobody
        .tools
        .insert("x".to_owned(), SideEffectLevel::Read);
    all_refused(vec![
        (mcp("tools.example"), url),
        (mcp("ftp://tools.example"), url),
        (mcp("https://user:s3cret@tools.example"), url),
        (header("a b", "x"), "transport.streamableHttp.headers"),
        (header("Host", "x"), "transport.streamableHttp.headers.Host"),
        (
            header("Mcp-Session-Id", "x"),
            "transport.streamableHttp.headers.Mcp-Session-Id",
        ),
        (
            header("X-Key", "s3cret\n"),
            "transport.streamableHttp.headers.X-Key",
        ),
        (api("items/{id}", by_id()), path),
        (api("/../{id}", by_id()), path),
        (api("/items/{other}", by_id()), path),
        (api("/items/{id}", nothing_required), path),
        (api("/items", json!([])), "transport.http.tools.item.schema"),
        (of_nobody, "tools"),
    ])
    .await;
}

/// O-27: an address that is not public is refused when it is written down, in every form, unless the operator allows
/// its network; the refusal names the setting.
#[tokio::test]
async fn internal_addresses_are_refused_when_they_are_set() {
    let world = World::new().await;
    let shut = world.engine(World::settings()).await;
    let mut settings = World::settings();
    settings.tool_networks = vec!["10.7.0.0/16".parse().unwrap()];
    let open = world.engine(settings).await;
    for address in [
        "10.7.0.1",
        "168230913",
        "0x0a.7.1",
        "012.7.0.1",
        "[::ffff:10.7.0.1]",
    ] {
        let url = format!("http://{address}/mcp");
        let (field, text) = refused_field(&shut, mcp(&url)).await;
        assert_eq!(field, "transport.streamableHttp.url", "{text}");
        assert!(text.contains("TIDEGATE_TOOL_NETWORKS"), "{text}");
        put(&open, "t", mcp(&url)).await.unwrap();
    }
    for address in ["127.0.0.1", "169.254.169.254", "[::1]", "[fe80::1]"] {
        refused_field(&open, mcp(&format!("http://{address}/"))).await;
    }
}

/// R20.1: tools of which two would look alike to a model are refused when they are set, with both names.
#[tokio::test]
async fn names_that_collide_are_refused_with_both() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    put(&engine, "git", tool_server(&[])).await.unwrap();
    put(&engine, "git", tool_server(&[])).await.unwrap();
    let same_domain = |r: &mut PutToolServer| r.mount.prefix = Some(id("git"));
    let (field, text) = refused_field(&engine, changed(tool_server(&[]), same_domain)).await;
    assert_eq!(field, "tools");
    assert!(
        text.contains("git/git_log cannot be mounted") && text.contains("of the server git"),
        "{text}"
    );
    let (_, text) = refused_field(
        &engine,
        changed(tool_server(&[]), |r| {
            r.tools.insert("git-log".to_owned(), SideEffectLevel::Write);
        }),
    )
    .await;
    assert!(
        text.contains("t/git-log") && text.contains("t/git_log"),
        "{text}"
    );
    let denied = changed(tool_server(&[]), |r| {
        same_domain(r);
        r.mount.deny = vec!["git_*".to_owned()];
    });
    put(&engine, "other", denied).await.unwrap();
}

/// O-25, R1.8: headers are sealed like an environment, and shown by name only.
#[tokio::test]
async fn headers_are_sealed_and_never_shown() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    put(&engine, "notes", mcp("https://tools.example/mcp"))
        .await
        .unwrap();
    for (table, row) in whole_database(&world.db).await {
        assert!(!row.contains("canary-77aa"), "{table}: {row}");
    }
    let listed = catalog::list_tool_servers(&engine, &operator())
        .await
        .unwrap();
    let ToolTransportView::StreamableHttp { headers, .. } = &listed[0].transport else {
        panic!("{listed:?}");
    };
    assert_eq!(headers, &["Authorization"]);
    let resolved = catalog::resolved(&engine).await.unwrap();
    assert!(!format!("{resolved:?} {listed:?}").contains("canary-77aa"));
    assert_eq!(
        resolved.tool_servers[0].secrets["Authorization"].expose_secret(),
        CANARY
    );
}

fn report(phase: ToolServerPhase, detail: Option<&str>) -> ToolServerReport {
    ToolServerReport {
        server: id("git"),
        phase,
        detail: detail.map(ToOwned::to_owned),
        tools: vec![ToolState {
            name: "git_log".to_owned(),
            offered_as: Some("git__git_log".to_owned()),
            level: SideEffectLevel::Read,
            refused: None,
        }],
    }
}

/// Operators see how a tool server stands on each instance that lives, and nothing of one that has left.
#[tokio::test]
async fn instances_report_how_tool_servers_stand() {
    use ToolServerPhase::{Down, Ready};
    let world = World::new().await;
    let node = world.node().await;
    let engine = &node.engine;
    put(engine, "git", tool_server(&[])).await.unwrap();
    let tell = async |reports| catalog::report_tool_servers(engine, reports).await.unwrap();
    let patience = Duration::from_secs(10);
    eventually("the instance has a row", patience, async || {
        tell(vec![report(Down, Some("no such program"))]).await
    })
    .await;
    let states = async || {
        let listed = catalog::list_tool_servers(engine, &operator()).await;
        listed.unwrap().into_iter().next().unwrap().states
    };
    let down = states().await.remove(0);
    assert_eq!((down.instance_id, down.phase), (engine.instance(), Down));
    assert_eq!(down.detail.as_deref(), Some("no such program"));
    assert_eq!(down.tools[0].offered_as.as_deref(), Some("git__git_log"));
    tell(vec![report(Down, Some("still none"))]).await;
    let since = states().await[0].since;
    assert_eq!(since, down.since, "since when it has been down");
    tell(vec![report(Ready, None)]).await;
    assert!(states().await[0].since > down.since);
    tell(Vec::new()).await;
    assert_eq!(states().await, vec![]);
    let store = engine.store().clone();
    tell(vec![report(Ready, None)]).await;
    node.stop().await;
    let left = store.tool_server_states(60_000).await.unwrap();
    assert!(left.is_empty(), "gone with the instance");
}

/// Bad input: a tenant that does not exist is refused by its place, and nothing is kept.
#[tokio::test]
async fn tools_are_offered_to_tenants_that_exist() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    let only = |tenants: &[&str]| PutToolServer {
        tenants: Some(tenants.iter().map(|name| id(name)).collect()),
        ..tool_server(&[])
    };
    let (field, detail) = refused_field(&engine, only(&["acme", "nope"])).await;
    assert_eq!(field, "tenants[1]");
    assert!(detail.contains("there is no tenant nope"), "{detail}");
    put(&engine, "git", only(&["acme"])).await.unwrap();
}

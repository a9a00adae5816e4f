//! Tool servers from the command line: every transport, what is shown of them, and what is wrong with them.

use serde_json::{Value, json};
use tidegate_testkit::{Proc, Running, TestDb};

use crate::rig::{Ended, eventually, ready, run, serve, with_database};

const CANARY: &str = "Bearer canary-31d9";

struct World {
    _server: Running,
    _db: TestDb,
    url: String,
    admin: String,
}

impl World {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let secret = run(with_database(&db, &["key", "bootstrap", "--json"])).await;
        let mut server = serve(&db)
            .env("TIDEGATE_TOOL_NETWORKS", "127.0.0.1")
            .start();
        let said = ready(&mut server).await;
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        Self {
            url: text(&said["url"]),
            admin: text(&secret.succeeded().json()["secret"]),
            _server: server,
            _db: db,
        }
    }

    async fn tool(&self, args: &[&str]) -> Ended {
        let proc = Proc::tidegate(&[&["--json", "tool"], args].concat())
            .env("TIDEGATE_URL", &self.url)
            .env("TIDEGATE_KEY", &self.admin)
            .env("TOOL_TOKEN", CANARY);
        run(proc).await
    }

    async fn doctor(&self) -> Vec<Value> {
        let proc = Proc::tidegate(&["doctor", "--json"])
            .env("TIDEGATE_URL", &self.url)
            .env("TIDEGATE_KEY", &self.admin);
        let said = run(proc).await.json();
        said.as_array().cloned().unwrap_or_default()
    }

    /// The state of a server on the one instance.
    async fn state(&self, name: &str) -> Value {
        let listed = self.tool(&["list"]).await.succeeded().json();
        let items = listed["items"].as_array().expect("items");
        let server = items.iter().find(|server| server["name"] == name);
        server.expect("the server")["states"][0].clone()
    }
}

const STDIO: &str = "set files --read look --deny drop_* --prefix disk -- /bin/false";
const URL: &str = "set tracker --idempotent put --mcp-url http://127.0.0.1:9/mcp --header Authorization=@TOOL_TOKEN";
const HTTP: &str = "set shop --read item --header X-Key=@TOOL_TOKEN --http";
const WRONG: [&str; 4] = [
    "set t",
    "set t --mcp-url http://127.0.0.1/ -- /bin/false",
    "set t --mcp-url http://127.0.0.1/ --header canary-31d9",
    "set t --read x --write x -- /bin/false",
];

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// R20.1, R22.2: each transport is set from the command line; secrets come from the shell and are shown nowhere.
#[tokio::test]
async fn every_transport_is_set_and_shown() {
    let world = World::new().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("shop.json");
    let described = json!({"baseUrl": "http://127.0.0.1:9/v1", "tools": {"item": {
        "description": "Reads an item.", "method": "GET", "path": "/items/{id}",
        "schema": {"type": "object", "properties": {"id": {}}, "required": ["id"]},
    }}});
    std::fs::write(&file, described.to_string()).expect("a file");
    let http = [&words(HTTP)[..], &[file.to_str().expect("a path")]].concat();
    for args in [words(STDIO), words(URL), http] {
        let done = world.tool(&args).await.succeeded();
        assert!(!done.stdout.contains("canary-31d9"), "{}", done.stdout);
    }
    let listed = world.tool(&["list"]).await.succeeded();
    assert!(!listed.stdout.contains("canary-31d9"), "{}", listed.stdout);
    let items = &listed.json()["items"];
    let mount = json!({"deny": ["drop_*"], "prefix": "disk"});
    assert_eq!(items[0]["mount"], mount);
    assert_eq!(items[1]["transport"]["http"]["headers"], json!(["X-Key"]));
    let url = &items[2]["transport"]["streamableHttp"]["url"];
    assert_eq!(url, "http://127.0.0.1:9/mcp");
    assert_eq!(items[2]["tools"], json!({"put": "idempotent"}));
    eventually("the described tool is offered", async || {
        let state = world.state("shop").await;
        state["tools"][0]["offeredAs"] == "shop__item" && state["phase"] == "ready"
    })
    .await;
    for line in WRONG {
        let ended = world.tool(&words(line)).await.failed_with(2);
        assert!(!ended.stderr.contains("canary-31d9"), "{}", ended.stderr);
    }
}

/// O-26, O-27: what is wrong with a tool server is said by `doctor`, with its reason and what to do.
#[tokio::test]
async fn doctor_says_what_is_wrong_with_a_tool_server() {
    let world = World::new().await;
    let refused = world
        .tool(&["set", "inside", "--mcp-url", "http://169.254.169.254/"])
        .await;
    assert!(
        refused.stderr.contains("TIDEGATE_TOOL_NETWORKS"),
        "{}",
        refused.stderr
    );
    world
        .tool(&["set", "files", "--", "/no/such/program"])
        .await
        .succeeded();
    world
        .tool(&["set", "tracker", "--mcp-url", "http://127.0.0.1:9/mcp"])
        .await
        .succeeded();
    for server in ["files", "tracker"] {
        eventually("the server is down", async || {
            world.state(server).await["phase"] == "down"
        })
        .await;
    }
    let findings = world.doctor().await;
    for (server, why) in [("files", "/no/such/program"), ("tracker", "check the URL")] {
        let finding = findings.iter().find(|finding| {
            let found = finding["found"].as_str().unwrap_or_default();
            found.starts_with(&format!("{server} is down on ins_"))
        });
        let finding = finding.unwrap_or_else(|| panic!("{server}: {findings:?}"));
        assert_eq!(finding["state"], "fail");
        assert!(
            finding["found"]
                .as_str()
                .is_some_and(|found| found.contains(why)),
            "{finding}"
        );
        assert!(
            finding["remedy"]
                .as_str()
                .is_some_and(|remedy| remedy.contains("tidegate tool")),
            "{finding}"
        );
    }
    world.tool(&["delete", "files"]).await.succeeded();
    world.tool(&["delete", "tracker"]).await.succeeded();
    eventually("nothing is wrong any more", async || {
        !world
            .doctor()
            .await
            .iter()
            .any(|finding| finding["check"] == "tool servers")
    })
    .await;
}

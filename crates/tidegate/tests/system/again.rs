//! Commands that may be sent again, conversations, and the way back in.

use serde_json::Value;
use tidegate_testkit::{Proc, Running, TestDb};

use crate::rig::{Ended, OTHER_KEY, ready, run, serve, with_database};

struct World {
    _server: Running,
    db: TestDb,
    url: String,
    admin: String,
}

impl World {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let secret = run(with_database(&db, &["key", "bootstrap", "--json"])).await;
        let mut server = serve(&db).start();
        let said = ready(&mut server).await;
        Self {
            _server: server,
            db,
            url: text(&said, "url"),
            admin: text(&secret.succeeded().json(), "secret"),
        }
    }

    async fn with_key(&self, key: &str, args: &[&str]) -> Ended {
        let proc = Proc::tidegate(args)
            .env("TIDEGATE_URL", &self.url)
            .env("TIDEGATE_KEY", key);
        run(proc).await
    }

    /// The answer of a command that succeeds.
    async fn told(&self, key: &str, args: &[&str]) -> Value {
        let args = [&["--json"], args].concat();
        self.with_key(key, &args).await.succeeded().json()
    }

    /// The tenant's key.
    async fn acme(&self) -> String {
        self.told(&self.admin, &["tenant", "create", "acme"]).await;
        let member = ["key", "create", "--role", "member", "--tenant", "acme"];
        text(&self.told(&self.admin, &member).await, "secret")
    }
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().expect(name).to_owned()
}

/// R3.1: a script that starts again with the same key repeats the answer and not the work.
#[tokio::test]
async fn writes_take_a_key_of_their_own() {
    let world = World::new().await;
    let acme = world.acme().await;
    let admin = world.admin.as_str();
    let under =
        |args: &[&'static str], key: &'static str| [args, &["--idempotency-key", key]].concat();
    let begin = under(&["conversation", "new"], "begin");
    let first = world.told(&acme, &begin).await;
    assert_eq!(world.told(&acme, &begin).await, first);
    let make = ["key", "create", "--role", "member", "--tenant", "acme"];
    let make = under(&make, "make");
    let first = world.told(admin, &make).await;
    let again = world.told(admin, &make).await;
    assert_eq!(again["key"]["keyId"], first["key"]["keyId"]);
    let tenant = under(&["tenant", "create", "globex"], "tenant");
    let first = world.told(admin, &tenant).await;
    assert_eq!(world.told(admin, &tenant).await, first);
    let other = under(&["tenant", "create", "initech"], "tenant");
    let refused = world.with_key(admin, &other).await.failed_with(1);
    assert!(
        refused.stderr.contains("[IDEMPOTENCY_CONFLICT]"),
        "{}",
        refused.stderr
    );
    let commands: [&[&str]; 5] = [
        &["run", "input"],
        &["run", "resolve"],
        &["run", "requeue"],
        &["schedule", "put"],
        &["provider", "set"],
    ];
    for command in commands {
        let help = run(Proc::tidegate(&[command, &["--help"]].concat())).await;
        let help = help.succeeded().stdout;
        assert!(help.contains("--idempotency-key"), "{command:?}");
    }
}

/// R3.7: conversations are listed and shown; one that nothing can be said in is not begun.
#[tokio::test]
async fn conversations_are_listed_and_shown() {
    let world = World::new().await;
    let acme = world.acme().await;
    let empty = ["conversation", "say", "new", ""];
    let refused = world.with_key(&acme, &empty).await.failed_with(2);
    assert!(
        refused.stderr.contains("needs a text"),
        "{}",
        refused.stderr
    );
    let late = [
        "conversation",
        "say",
        "new",
        "hi",
        "--deadline",
        "2020-01-01T00:00:00Z",
    ];
    let refused = world.with_key(&acme, &late).await;
    assert!(
        refused.stderr.contains("deadline has passed"),
        "{}",
        refused.stderr
    );
    let list = world.told(&acme, &["conversation", "list"]).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(0), "{list}");
    let titled = ["conversation", "new", "--title", "Sales"];
    let made = world.told(&acme, &titled).await;
    let id = text(&made, "conversationId");
    let list = world.with_key(&acme, &["conversation", "list"]).await;
    let list = list.succeeded().stdout;
    assert!(list.contains(&id) && list.contains("Sales"), "{list}");
    let shown = world.told(&acme, &["conversation", "get", &id]).await;
    assert_eq!(shown, made);
}

/// R2.1: a lost first secret is no end, for whoever has the key of the database's secrets.
#[tokio::test]
async fn a_lost_first_key_is_recovered_with_the_key_of_the_secrets() {
    let world = World::new().await;
    let recover = ["key", "bootstrap", "--recover", "--json"];
    // Where there has been none, there is nothing to recover, whether the tables are there or not.
    for nobodys in [TestDb::empty().await, TestDb::new().await] {
        let refused = run(with_database(&nobodys, &recover)).await;
        assert_ne!(refused.code(), 0);
        assert!(
            refused.stderr.contains("`tidegate key bootstrap`"),
            "{}",
            refused.stderr
        );
    }
    let refused = run(with_database(&world.db, &["key", "bootstrap"])).await;
    let refused = refused.failed_with(1);
    assert!(refused.stderr.contains("--recover"), "{}", refused.stderr);
    let wrong = with_database(&world.db, &recover).env("CONFIG_ENC_KEY", OTHER_KEY);
    let refused = run(wrong).await.failed_with(2);
    assert!(!refused.stdout.contains("tg_"));
    let made = run(with_database(&world.db, &recover)).await.succeeded();
    let secret = text(&made.json(), "secret");
    let me = world.told(&secret, &["me"]).await;
    assert_eq!(me["role"], "super_admin");
}

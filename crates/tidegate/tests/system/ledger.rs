//! The ledger and admissions on the command line.

use serde_json::{Value, json};

use crate::{commands::World, pools::secret, rig::Ended};

struct Desk {
    world: World,
    coordinator: String,
}

impl Desk {
    async fn new() -> Self {
        let world = World::new().await;
        world.admin(&["tenant", "create", "acme"]).await.succeeded();
        let coordinator = secret(&world, &["--role", "coordinator", "--tenant", "acme"]).await;
        Self { world, coordinator }
    }

    async fn ledger(&self, args: &[&str]) -> Value {
        let args = [&["--json", "ledger"], args].concat();
        self.world.admin(&args).await.succeeded().json()
    }

    async fn admission(&self, args: &[&str]) -> Value {
        let args = [&["--json", "admission"], args].concat();
        let ended = self.world.with_key(&self.coordinator, &args).await;
        ended.succeeded().json()
    }

    /// The same for people, however it ends.
    async fn run(&self, args: &[&str]) -> Ended {
        let args = [&["admission"], args].concat();
        self.world.with_key(&self.coordinator, &args).await
    }
}

fn text<'a>(view: &'a Value, member: &str) -> &'a str {
    view[member].as_str().expect("a text")
}

/// R6.5, R7.3: bound something, explain, admit; what is short is said with its remedy.
#[tokio::test]
async fn an_admission_is_made_on_the_command_line() {
    let desk = Desk::new().await;
    desk.ledger(&["set", "pool/builtin", "1"]).await;
    let explained = desk.admission(&["explain", "chat"]).await;
    assert_eq!(explained["admits"], true);
    let view = desk.admission(&["admit", "chat"]).await;
    let held = desk.ledger(&["get", "pool/builtin"]).await;
    assert_eq!(held["holders"][0]["admissionId"], view["admissionId"]);

    let full = desk.run(&["admit", "chat"]).await.failed_with(1);
    let short = "pool/builtin has 0 free of 1";
    assert!(full.stderr.contains(short), "{}", full.stderr);
    let shown = desk.run(&["explain", "chat"]).await.succeeded();
    let remedy = "wait until 1 more of pool/builtin";
    assert!(shown.stdout.contains(remedy), "{}", shown.stdout);
}

/// R9.1, R10.1: settle, renew, give back; the grant is worth nothing afterwards.
#[tokio::test]
async fn an_admission_ends_on_the_command_line() {
    let desk = Desk::new().await;
    desk.ledger(&["set", "tenant/acme/tokens", "1000"]).await;
    let wanted = r#"{"estimates": {"tokens": 400}}"#;
    let admit = ["admit", "chat", "--requirements", wanted];
    let view = desk.admission(&admit).await;
    let (id, fence) = (text(&view, "admissionId"), text(&view, "fence"));
    let verify = ["verify", id, text(&view, "grant"), "--resource"];
    let verify = [&verify[..], &["tenant/acme/tokens"]].concat();
    let good = desk.run(&verify).await.succeeded();
    let said = "may be consumed until";
    assert!(good.stdout.contains(said), "{}", good.stdout);
    let phase = ["phase", id, "--fence", fence, "--settle", "0=250"];
    let settled = desk.admission(&phase).await;
    assert_eq!(settled["grants"][0]["settled"], 250);
    let renewed = desk.admission(&["renew", id, "--fence", fence]).await;
    assert_eq!(renewed["state"], "ACTIVE");
    let released = desk.admission(&["release", id, "--fence", fence]).await;
    assert_eq!(released["state"], "RELEASED");
    let over = desk.run(&verify).await.failed_with(1);
    assert!(over.stdout.contains("admission_ended"), "{}", over.stdout);
    let list = desk.ledger(&["list"]).await;
    assert_eq!(list["items"][0]["inUse"], json!(0));
    let nothing = ["phase", id, "--fence", fence];
    let nothing = desk.run(&nothing).await.failed_with(2);
    assert!(nothing.stderr.contains("--settle"), "{}", nothing.stderr);
}

/// R7.4: `ledger verify` ends with 0 where it adds up, use above a shrunk capacity included, and with 1 on any difference,
/// which it names.
#[tokio::test]
async fn the_ledger_is_verified_from_outside() {
    let desk = Desk::new().await;
    desk.ledger(&["set", "pool/builtin", "2"]).await;
    desk.admission(&["admit", "chat"]).await;
    desk.admission(&["admit", "chat"]).await;
    desk.ledger(&["set", "pool/builtin", "1"]).await;
    let fine = desk.world.admin(&["ledger", "verify"]).await.succeeded();
    assert!(
        fine.stdout.contains("OVER_CAPACITY since"),
        "{}",
        fine.stdout
    );
    assert!(
        fine.stdout.contains("the ledger adds up"),
        "{}",
        fine.stdout
    );

    sqlx::query("UPDATE resources SET in_use = in_use - 1 WHERE name = 'pool/builtin'")
        .execute(desk.world.db.pool())
        .await
        .expect("tampered with");
    let wrong = desk.world.admin(&["ledger", "verify"]).await.failed_with(1);
    assert!(
        wrong
            .stdout
            .contains("DIFFERENCE pool/builtin: the counter says 1, 2 are held"),
        "{}",
        wrong.stdout
    );
}

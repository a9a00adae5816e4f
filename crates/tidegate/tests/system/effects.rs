//! A review from its cause to its end with the command line alone (R4.5).

use serde_json::json;
use tidegate_client::{Client, WorkerApi as _};
use tidegate_model::{
    Code, RunId,
    api::{ClaimRequest, FailRun, Lease, PROTOCOL_VERSION, RecordIntent, SubmitRun},
    digest::canonical_digest,
};
use tidegate_testkit::{Proc, TestDb};

use crate::rig::{ready, run, serve, with_database};

/// A tenant's key and a worker, on a server that executes nothing itself.
struct World {
    url: String,
    acme: String,
    worker: Client,
    _server: tidegate_testkit::Running,
}

impl World {
    async fn new(db: &TestDb) -> Self {
        let mut server = serve(db).env("RUN_EXECUTION_CONCURRENCY", "0").start();
        let url = ready(&mut server).await["url"].to_string();
        let url = url.trim_matches('"').to_owned();
        let made = run(with_database(db, &["key", "bootstrap", "--json"])).await;
        let root = made.succeeded().json()["secret"].to_string();
        let root = root.trim_matches('"').to_owned();
        let admin = async |args: &[&str]| {
            let proc = Proc::tidegate(args).env("TIDEGATE_URL", &url);
            run(proc.env("TIDEGATE_KEY", &root)).await.succeeded()
        };
        admin(&["tenant", "create", "acme", "--json"]).await;
        let key = async |args: &[&str]| {
            let made = admin(&[&["key", "create", "--json"], args].concat()).await;
            made.json()["secret"].as_str().expect("secret").to_owned()
        };
        let member = [
            "--role",
            "member",
            "--tenant",
            "acme",
            "--scope",
            "runs:business",
        ];
        let acme = key(&member).await;
        let worker = key(&["--role", "worker", "--pool", "builtin"]).await;
        Self {
            worker: Client::new(&url, worker).expect("client"),
            url,
            acme,
            _server: server,
        }
    }

    /// What a command says to a person.
    async fn say(&self, args: &[&str]) -> String {
        let proc = Proc::tidegate(args).env("TIDEGATE_URL", &self.url);
        let ended = run(proc.env("TIDEGATE_KEY", &self.acme)).await;
        ended.succeeded().stdout
    }

    async fn claim(&self) -> Lease {
        let claim = ClaimRequest {
            worker_id: "w".parse().expect("worker"),
            incarnation: 1,
            protocol_version: PROTOCOL_VERSION,
            max: 1,
            max_background: None,
            wait_ms: 20_000,
        };
        let mut answer = self.worker.claim(claim).await.expect("claim");
        answer.leases.pop().expect("a lease")
    }

    /// A run whose attempt ends between a call and its outcome.
    async fn in_review(&self) -> RunId {
        let acme = Client::new(&self.url, self.acme.clone()).expect("client");
        let submit: SubmitRun =
            serde_json::from_value(json!({"capability": "chat", "input": "hello"})).expect("body");
        let run = acme.submit_run(&submit, None).await.expect("run").run_id;
        let lease = self.claim().await;
        let intent = RecordIntent {
            fence: lease.fence,
            call_id: "call_7".parse().expect("call id"),
            tool: "ledger/post".to_owned(),
            arguments_digest: canonical_digest(&json!({"amount": 5})).expect("digest"),
            idempotent: false,
        };
        let taken = self.worker.record_intent(run, intent.clone()).await;
        assert_eq!(taken.expect("intent").recorded, None);
        let fail = FailRun {
            fence: lease.fence,
            code: Code::ToolTimeout,
            detail: None,
            retryable: true,
            retry_after_ms: None,
            usage: tidegate_model::api::AttemptUsage { tokens: 12 },
        };
        self.worker.fail(run, fail).await.expect("fail");
        run
    }
}

/// R4.5, R2.5: the list, the run and its explanation name the call in question and what to do; doing it queues the run,
/// and stands in the journal.
#[tokio::test]
async fn a_review_is_resolved_with_the_command_line() {
    let db = TestDb::new().await;
    let world = World::new(&db).await;
    let run = world.in_review().await.to_string();
    let listed = world.say(&["run", "list", "--state", "review"]).await;
    assert!(
        listed.contains(&run) && listed.contains("ledger/post"),
        "{listed}"
    );
    let shown = world.say(&["run", "get", &run]).await;
    assert!(shown.contains("call_7"), "{shown}");
    let remedy = format!("tidegate run resolve {run} done");
    assert!(shown.contains(&remedy), "{shown}");
    let note = ["--call", "call_7", "--note", "it is booked"];
    let resolve = [&["run", "resolve", &run, "done"][..], &note].concat();
    let resolved = world.say(&resolve).await;
    assert!(resolved.contains("queued"), "{resolved}");
    let explained = world.say(&["run", "explain", &run]).await;
    assert!(
        explained.contains("person") && explained.contains("it is booked"),
        "{explained}"
    );
    assert_eq!(world.claim().await.run.run_id.to_string(), run);
    let other = world.in_review().await.to_string();
    let given_up = world.say(&["run", "resolve", &other, "abandon"]).await;
    assert!(given_up.contains("ABANDONED"), "{given_up}");
    let back = world.say(&["run", "requeue", &other]).await;
    assert!(back.contains("review"), "{back}");
}

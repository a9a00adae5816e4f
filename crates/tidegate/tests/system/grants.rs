//! R9.1, R9.2: what a server signs is checked offline in Python and TypeScript, by the published keys alone.

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;
use tidegate_engine::{Engine, grants, secrets::Keyring, settings::Settings};
use tidegate_grants::{CallTerms, Demand, Entropy, SignedGrant, Verifier};
use tidegate_model::{
    AdmissionId, Fence, InstanceId,
    api::PublishedGrantKeys,
    contracts::{AdmissionGrant, CallLease, GrantId, GrantedAmount, ResourceName},
};
use tidegate_store::{ConnectOptions, Store, connect};
use tidegate_testkit::{Proc, Running, TestDb};

use crate::rig::{Ended, KEY, checkout, ready, run, serve, with_database};

const TOOL: &str = "tool/crm/search";

fn resource(name: &str) -> ResourceName {
    name.parse().expect("a resource")
}

fn entropy() -> Entropy {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("random bytes");
    Entropy(bytes)
}

#[expect(clippy::disallowed_methods, reason = "a ledger would ask the database")]
fn in_seconds(seconds: i64) -> chrono::DateTime<chrono::Utc> {
    chrono::Utc::now() + chrono::TimeDelta::seconds(seconds)
}

/// A real server, and a part of another one in this process that signs with the same keys.
struct Signing {
    _server: Running,
    url: String,
    grant: SignedGrant,
    place: tempfile::TempDir,
}

impl Signing {
    async fn new(db: &TestDb) -> Self {
        let mut server = serve(db).start();
        let url = ready(&mut server).await["url"]
            .as_str()
            .expect("an address")
            .to_owned();
        let pool = connect(&ConnectOptions::new(db.url())).expect("a pool");
        let keyring = Keyring::new(&KEY.to_owned().into(), None).expect("a key");
        let settings = Arc::new(Settings::default());
        let engine = Engine::start(settings, Store::new(pool), keyring, InstanceId::new())
            .await
            .expect("an engine");
        let grant = grants::sign(&engine, &admission()).await.expect("signed");
        Self {
            _server: server,
            url,
            grant,
            place: tempfile::tempdir().expect("a directory"),
        }
    }

    fn lease(&self, seconds: i64) -> SignedGrant {
        let lease = CallLease {
            resource: resource(TOOL),
            amount: 5,
            max_calls: 3,
            lease_fence: Fence {
                generation: 1,
                number: 7,
            },
            expires_at: in_seconds(seconds),
        };
        let now = in_seconds(0);
        self.grant
            .call_lease(&lease, now, &entropy())
            .expect("a call lease")
    }

    /// Runs an example with a lease on its standard input.
    async fn example(&self, program: &[String], lease: &SignedGrant, args: &[&str]) -> Ended {
        let input = self.place.path().join("lease");
        std::fs::write(&input, lease.as_str()).expect("written");
        let mut words = vec!["exec \"$@\" < \"$INPUT\"".to_owned(), "sh".to_owned()];
        words.extend_from_slice(program);
        words.push(self.url.clone());
        words.extend(args.iter().map(|&arg| arg.to_owned()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let shell = Proc::new("sh").args([&["-c"][..], &words].concat());
        run(shell.env("INPUT", input.display().to_string())).await
    }

    /// What each example must say of leases.
    async fn judge(&self, program: &[String]) {
        let lease = self.lease(50);
        let fewer = CallTerms {
            max_calls: Some(1),
            ..CallTerms::default()
        };
        let narrowed = lease.narrow(&fewer, &entropy()).expect("narrowed");
        let mut changed = lease.as_str().to_owned();
        // Its signature differs then, and its form does not.
        let at = changed.len() / 2;
        let other = if &changed[at..=at] == "A" { "B" } else { "A" };
        changed.replace_range(at..=at, other);
        for (token, args, good) in [
            (&lease, [TOOL, "5", "3"], true),
            (&lease, [TOOL, "6", "3"], false),
            (&lease, [TOOL, "5", "4"], false),
            (&lease, ["model/default", "1", "1"], false),
            (&narrowed, [TOOL, "5", "1"], true),
            (&narrowed, [TOOL, "5", "2"], false),
            (&self.lease(-1), [TOOL, "1", "1"], false),
            (&self.grant, [TOOL, "1", "1"], false),
        ] {
            let said = self.example(program, token, &args).await;
            assert_eq!(said.status.success(), good, "{args:?}: {}", said.stderr);
            let last = said.stdout.lines().last().unwrap_or_default();
            assert_eq!(last == "good", good, "{args:?}: {}", said.stdout);
        }
        if let Ok(changed) = SignedGrant::received(&changed) {
            let said = self.example(program, &changed, &[TOOL, "1", "1"]).await;
            assert!(!said.status.success(), "{}", said.stdout);
        }
        let theirs = self.example(program, &lease, &[TOOL, "1", "1", "2"]).await;
        self.narrowed_elsewhere(theirs.succeeded()).await;
    }

    /// What an example narrowed is read and checked here.
    async fn narrowed_elsewhere(&self, said: Ended) {
        let token = said.stdout.lines().last().unwrap_or_default();
        let keys: PublishedGrantKeys = tidegate_client::Client::builder(&self.url)
            .build()
            .expect("a client")
            .published_grant_keys()
            .await
            .expect("keys");
        let verifier = Verifier::new(&keys.keys).expect("keys");
        let ask = |calls| {
            let demand = Demand::of(resource(TOOL), 1, calls);
            verifier.verify(token, in_seconds(0), &demand)
        };
        ask(2)
            .expect("allowed")
            .is_call_lease(in_seconds(0))
            .expect("a call lease");
        assert_eq!(ask(3).expect_err("one call too many").word(), "calls_above");
    }
}

fn admission() -> AdmissionGrant {
    let admission = AdmissionId::new();
    let held = |(index, name): (u16, &str)| GrantedAmount {
        grant_id: GrantId { admission, index },
        resource: resource(name),
        amount: 10,
    };
    AdmissionGrant {
        admission_id: admission,
        tenant_id: "acme".parse().expect("a tenant"),
        pool_id: "builtin".parse().expect("a pool"),
        descriptor_epoch: 1,
        policy_generation: 1,
        fence: Fence {
            generation: 1,
            number: 5,
        },
        grants: [(0, TOOL), (1, "model/default")].map(held).to_vec(),
        run_id: None,
        issued_at: Some(in_seconds(0)),
        expires_at: in_seconds(600),
    }
}

fn in_checkout(path: &str) -> String {
    let path = checkout().join(path);
    assert!(path.exists(), "{} is missing: `make setup`", path.display());
    path.display().to_string()
}

/// R9.1, R9.2: `examples/verify_grant.py`.
#[tokio::test]
async fn a_call_lease_is_checked_and_narrowed_in_python() {
    let db = TestDb::new().await;
    let signing = Signing::new(&db).await;
    let program = [".tidegate/venv/bin/python", "examples/verify_grant.py"];
    signing.judge(&program.map(in_checkout)).await;
}

/// R9.1, R9.2: `examples/verify_grant.ts`, as its compiler takes it.
#[tokio::test]
async fn a_call_lease_is_checked_and_narrowed_in_typescript() {
    let db = TestDb::new().await;
    let signing = Signing::new(&db).await;
    let node = in_checkout(".tidegate/node/bin/node");
    let modules = in_checkout(".tidegate/node/node_modules");
    let place = signing.place.path();
    std::os::unix::fs::symlink(&modules, place.join("node_modules")).expect("linked");
    std::fs::write(place.join("package.json"), r#"{"type":"module"}"#).expect("written");
    let source = place.join("verify_grant.ts");
    std::fs::copy(in_checkout("examples/verify_grant.ts"), &source).expect("copied");
    let compiler = format!("{modules}/typescript/bin/tsc");
    let source = source.display().to_string();
    let flags = "--strict --target es2022 --module nodenext --skipLibCheck --types node";
    let mut words = vec![compiler.as_str()];
    words.extend(flags.split(' '));
    words.push(&source);
    run_in(&node, &words, place.to_owned()).await;
    let script = source.replace(".ts", ".js");
    let program = [
        &*node,
        "--no-warnings",
        "--experimental-wasm-modules",
        &script,
    ];
    signing.judge(&program.map(str::to_owned)).await;
}

async fn run_in(program: &str, args: &[&str], place: PathBuf) {
    crate::rig::run_where_it_is(Proc::new(program).args(args).current_dir(&place))
        .await
        .succeeded();
}

/// R9.1: the operator's commands: keys are listed and rotated, and a grant is looked at with a server or with its keys in a
/// file. It is shown nowhere, and one that is not good fails the command.
#[tokio::test]
async fn an_operator_looks_at_grants_and_keys() {
    let db = TestDb::new().await;
    let bootstrap = run(with_database(&db, &["key", "bootstrap", "--json"])).await;
    let admin = bootstrap.succeeded().json()["secret"].clone();
    let signing = Signing::new(&db).await;
    let as_admin = |args: &[&str]| {
        Proc::tidegate(args)
            .env("TIDEGATE_URL", signing.url.clone())
            .env("TIDEGATE_KEY", admin.as_str().expect("a secret"))
    };
    let listed = run(as_admin(&["grant-key", "list", "--json"]))
        .await
        .succeeded()
        .json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));
    let rotated = run(as_admin(&["grant-key", "rotate"])).await.succeeded();
    assert!(rotated.stdout.contains("starting"), "{}", rotated.stdout);
    let token = signing.place.path().join("grant");
    std::fs::write(&token, signing.lease(50).as_str()).expect("written");
    let at_token = format!("@{}", token.display());
    let seen = run(as_admin(&["grant", "inspect", &at_token, "--json"]))
        .await
        .succeeded();
    assert_eq!(seen.json()["good"], true);
    assert_eq!(seen.json()["narrowed"][0]["maxCalls"], 3);
    assert!(!seen.stdout.contains(signing.grant.as_str()));
    let keys = signing.place.path().join("keys.json");
    std::fs::write(&keys, r#"{"keys": []}"#).expect("written");
    let keys = keys.display().to_string();
    let offline = Proc::tidegate(&["grant", "inspect", &at_token, "--keys", &keys, "--json"]);
    let unproven = run(offline).await.failed_with(1).json();
    assert_eq!(unproven["good"], Value::Bool(false));
    let told = run(as_admin(&["grant", "inspect", &at_token]))
        .await
        .succeeded();
    assert!(
        told.stdout.contains("narrowed to tool/crm/search"),
        "{}",
        told.stdout
    );
    let nothing = run(as_admin(&["grant", "inspect", "nothing"]))
        .await
        .failed_with(1);
    assert!(nothing.stderr.contains("not a grant"), "{}", nothing.stderr);
}

use std::time::Duration;

use tidegate_engine::{
    Engine, Error, Principal, conversations::create::create_conversation, keys, me, ops, runs,
    tenants, worker,
};
use tidegate_model::{
    Capability, Code, PoolId,
    api::{
        AttemptUsage, ClaimRequest, CompleteRun, CreateConversation, Lease, LeaseRef, PageQuery,
        RenewRequest, SetTenantState, SubmitRun,
    },
    principal::{KeyScope, Role, TenantState},
};

use crate::{
    pooler::Pooler,
    rig::{World, caller, eventually, id, key, operator, refused, tenant},
};

async fn submit(engine: &Engine, caller: &Principal) -> tidegate_model::RunId {
    let request = SubmitRun {
        capability: Capability::chat(),
        requirements: None,
        input: serde_json::json!({"text": "hello"}),
        service_class: None,
        priority: None,
        deadline: None,
        run_at: None,
        max_attempts: None,
        budget: None,
        user: None,
    };
    runs::submit::submit(engine, caller, request, None)
        .await
        .unwrap()
        .run_id
}

fn claim(max: u32) -> ClaimRequest {
    ClaimRequest {
        worker_id: id("w1"),
        incarnation: 1,
        protocol_version: 1,
        max,
        max_background: None,
        wait_ms: 2_000,
    }
}

fn reference(lease: &Lease) -> LeaseRef {
    LeaseRef {
        run_id: lease.run.run_id,
        fence: lease.fence,
    }
}

async fn complete(engine: &Engine, worker: &Principal, lease: &Lease) -> Result<(), Error> {
    let request = CompleteRun {
        fence: lease.fence,
        result: serde_json::json!({}),
        messages: Vec::new(),
        usage: AttemptUsage::default(),
    };
    worker::close::complete(engine, worker, lease.run.run_id, request)
        .await
        .map(|_| ())
}

/// R2.6: deleting a tenant stops what runs: its holder is told that the lease is lost, and nothing it writes is accepted.
/// Other tenants' runs go on.
#[tokio::test]
async fn a_deletion_stops_what_runs() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    for name in ["acme", "globex"] {
        tenant(&engine, name).await;
        let member = caller(&engine, Role::Member, Some(name), &[KeyScope::RunsBusiness]).await;
        submit(&engine, &member).await;
        submit(&engine, &member).await;
    }
    let builtin = Principal::built_in_worker(PoolId::builtin());
    let take = async |max| {
        let answer = worker::claim::claim(&engine, &builtin, claim(max)).await;
        answer.unwrap().leases
    };
    let leases = take(2).await;
    let of = |name| {
        leases
            .iter()
            .find(|lease| lease.run.tenant == id(name))
            .unwrap()
    };
    let (doomed, spared) = (of("acme"), of("globex"));
    let state = SetTenantState {
        state: TenantState::Deleted,
    };
    tenants::set_state(&engine, &operator(), &id("acme"), state)
        .await
        .unwrap();

    let renewal = RenewRequest {
        leases: vec![reference(doomed).into(), reference(spared).into()],
    };
    let renewed = worker::renew::renew(&engine, &builtin, renewal)
        .await
        .unwrap();
    assert_eq!(renewed.lost, [reference(doomed)]);
    assert_eq!(renewed.renewed, [reference(spared)]);
    assert_eq!(
        refused(complete(&engine, &builtin, doomed).await),
        Code::LeaseLost
    );
    complete(&engine, &builtin, spared).await.unwrap();
    let next = take(5).await;
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].run.tenant, id("globex"));
}

/// O-34: two tenants over one server session of a pooler, with callers that go away in the middle: nobody ever sees a row
/// of the other. No context is kept in the session, so that none can be carried over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_that_share_a_session_never_meet() {
    let world = World::new().await;
    let pooler = Pooler::start(world.db.target(), world.db.name()).await;
    let engine = world
        .engine_at(&world.db.url_at(pooler.address()), World::settings())
        .await;
    let mut tasks = tokio::task::JoinSet::new();
    for name in ["acme", "globex"] {
        tenant(&engine, name).await;
        key(&engine, Role::Member, Some(name)).await;
        let admin = caller(&engine, Role::TenantAdmin, Some(name), &[]).await;
        for worker in 0..2_u64 {
            let (engine, admin) = (engine.clone(), admin.clone());
            tasks.spawn(async move {
                for round in 0..40_u64 {
                    let limit = Duration::from_micros((round * 37 + worker * 511) % 4_000);
                    // Every second round goes away at an odd moment.
                    let limit = if round % 2 == 0 {
                        Duration::from_secs(10)
                    } else {
                        limit
                    };
                    let _ = tokio::time::timeout(limit, look(&engine, &admin)).await;
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    for name in ["acme", "globex"] {
        let made: i64 = sqlx::query_scalar("SELECT count(*) FROM conversations WHERE tenant = $1")
            .bind(name)
            .fetch_one(world.db.pool())
            .await
            .unwrap();
        assert!(made >= 40, "the rounds that stayed were served: {made}");
    }
    // A transaction whose caller went away ends by itself, a moment later.
    eventually(
        "nobody is left inside a transaction",
        Duration::from_secs(10),
        async || {
            let idle: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
            )
            .fetch_one(world.db.pool())
            .await
            .unwrap();
            idle == 0
        },
    )
    .await;
}

/// Reads and writes as a tenant's administrator and demands that everything is its own.
async fn look(engine: &Engine, admin: &Principal) {
    let own = admin.tenant.as_ref();
    let keys = keys::list(engine, admin, &PageQuery::default())
        .await
        .unwrap();
    assert_eq!(keys.items.len(), 2);
    assert!(keys.items.iter().all(|key| key.tenant.as_ref() == own));
    let made = create_conversation(engine, admin, CreateConversation::default())
        .await
        .unwrap();
    assert_eq!(Some(&made.tenant), own);
    let audit = ops::audit(engine, admin, &PageQuery::default())
        .await
        .unwrap();
    assert!(
        !audit.items.is_empty(),
        "an empty answer would hide a lost context"
    );
    assert!(audit.items.iter().all(|row| row.tenant.as_ref() == own));
    assert_eq!(Some(&me::usage(engine, admin).await.unwrap().tenant), own);
}

/// O-34: the server works with a role that does not own the tables; without a right it fails loudly and never reads an
/// empty table in its place.
#[tokio::test]
async fn a_role_that_owns_nothing_is_enough_to_serve() {
    let world = World::new().await;
    // Roles belong to the whole server: the name is this database's own.
    let role = format!("app_{}", world.db.name());
    let execute = async |statement: String| {
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(world.db.pool())
            .await
            .unwrap();
    };
    execute(format!("CREATE ROLE {role} LOGIN PASSWORD 'app'")).await;
    for grant in [
        "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public",
        "USAGE ON ALL SEQUENCES IN SCHEMA public",
    ] {
        execute(format!("GRANT {grant} TO {role}")).await;
    }
    let url = as_role_url(&world.db.url(), &role);
    let engine = world.engine_at(&url, World::settings()).await;
    tenant(&engine, "acme").await;
    let member = caller(
        &engine,
        Role::Member,
        Some("acme"),
        &[KeyScope::RunsBusiness],
    )
    .await;
    submit(&engine, &member).await;
    let state = SetTenantState {
        state: TenantState::Deleted,
    };
    tenants::set_state(&engine, &operator(), &id("acme"), state)
        .await
        .unwrap();

    execute(format!("REVOKE SELECT ON run_queue FROM {role}")).await;
    let blind = engine.store().tenant(&id("acme")).usage().await;
    assert!(
        blind.is_err(),
        "a missing right is an error, not an empty table"
    );
    execute(format!("DROP OWNED BY {role}")).await;
}

/// The same address with another user.
fn as_role_url(url: &str, role: &str) -> String {
    url.replacen("tidegate@", &format!("{role}:app@"), 1)
}

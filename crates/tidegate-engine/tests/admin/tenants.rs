use tidegate_engine::{Engine, auth, me, ops, tenants};
use tidegate_model::{
    Code, RunId,
    api::{CreateTenant, PageQuery, SetTenantState},
    principal::{Role, TenantState},
    run::QuotaBucket,
};

use crate::rig::{
    World, as_role, caller, id, key, operator, refused, shown, tenant, whole_database,
};

const CANARY: &str = "canary-7f3a";

async fn set(engine: &Engine, name: &str, state: TenantState) -> Result<(), Code> {
    tenants::set_state(engine, &operator(), &id(name), SetTenantState { state })
        .await
        .map(|view| assert_eq!(view.state, state))
        .map_err(|error| error.code())
}

#[tokio::test]
async fn tenants_are_made_and_listed_by_name() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    for name in ["acme", "globex", "initech"] {
        tenant(&engine, name).await;
    }
    let taken = CreateTenant {
        tenant: id("acme"),
        display_name: None,
    };
    assert_eq!(
        refused(tenants::create(&engine, &operator(), taken).await),
        Code::VersionConflict
    );
    let bad = CreateTenant {
        tenant: id("x"),
        display_name: Some("a\0".to_owned()),
    };
    assert_eq!(
        refused(tenants::create(&engine, &operator(), bad).await),
        Code::InvalidArgument
    );

    let query = |cursor| PageQuery {
        limit: Some(2),
        cursor,
    };
    let first = tenants::list(&engine, &operator(), &query(None))
        .await
        .unwrap();
    let names: Vec<_> = first.items.iter().map(|t| t.tenant.as_str()).collect();
    assert_eq!(names, ["acme", "globex"]);
    let rest = tenants::list(&engine, &operator(), &query(first.next_cursor))
        .await
        .unwrap();
    assert_eq!((rest.items.len(), rest.next_cursor), (1, None));
}

/// R2.6: what is deleted stays deleted, and its name is never given away again.
#[tokio::test]
async fn a_deleted_tenant_does_not_come_back() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    set(&engine, "acme", TenantState::Suspended).await.unwrap();
    let revision = engine.store().last_revision().await.unwrap();
    set(&engine, "acme", TenantState::Suspended).await.unwrap();
    assert_eq!(
        engine.store().last_revision().await.unwrap(),
        revision,
        "nothing changed"
    );
    set(&engine, "acme", TenantState::Active).await.unwrap();
    set(&engine, "acme", TenantState::Deleted).await.unwrap();
    set(&engine, "acme", TenantState::Deleted).await.unwrap();
    assert_eq!(
        set(&engine, "acme", TenantState::Active).await,
        Err(Code::StateConflict)
    );
    let again = CreateTenant {
        tenant: id("acme"),
        display_name: None,
    };
    assert_eq!(
        refused(tenants::create(&engine, &operator(), again).await),
        Code::VersionConflict
    );
    assert_eq!(
        set(&engine, "ghost", TenantState::Deleted).await,
        Err(Code::NotFound)
    );
}

/// R2.6: a deleted tenant leaves no content in any table. The tables are walked from the schema: one that a later
/// migration adds makes this test fail until it is filled here, and then proves that it is erased.
#[tokio::test]
async fn a_deleted_tenant_leaves_no_content_anywhere() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    for name in ["acme", "globex"] {
        let request = CreateTenant {
            tenant: id(name),
            display_name: Some(format!("{CANARY} {name}")),
        };
        tenants::create(&engine, &operator(), request)
            .await
            .unwrap();
        fill(&world, name).await;
    }
    let doomed = key(&engine, Role::Member, Some("acme")).await;
    let spared = key(&engine, Role::Member, Some("globex")).await;
    auth::authenticate(&engine, shown(&doomed)).await.unwrap();
    let fleet = engine.store().fleet();
    for table in fleet.tenant_tables().await.unwrap() {
        assert!(
            count(&world, &table, "acme").await > 0,
            "fill {table} in this test"
        );
    }
    let bystander = mentions(&world, "globex").await;

    set(&engine, "acme", TenantState::Deleted).await.unwrap();

    for (table, row) in whole_database(&world.db).await {
        let others = row.contains("globex");
        assert!(
            others || !row.contains(CANARY),
            "{table} still holds: {row}"
        );
    }
    for table in fleet.tenant_tables().await.unwrap() {
        assert_eq!(count(&world, &table, "acme").await, 0, "{table}");
    }
    assert_eq!(
        mentions(&world, "globex").await,
        bystander,
        "the other tenant lost nothing"
    );
    assert_eq!(
        refused(auth::authenticate(&engine, shown(&doomed)).await),
        Code::Unauthenticated
    );
    assert!(auth::authenticate(&engine, shown(&spared)).await.is_ok());
    assert_only_deeds_are_audited(&engine).await;
}

/// The audit log keeps who did what and when, not what was written.
async fn assert_only_deeds_are_audited(engine: &Engine) {
    let audit = ops::audit(engine, &operator(), &PageQuery::default())
        .await
        .unwrap();
    let of_acme: Vec<_> = audit
        .items
        .iter()
        .filter(|row| row.tenant == Some(id("acme")))
        .collect();
    assert!(of_acme.iter().any(|row| row.action == "tenant.delete"));
    assert!(
        of_acme
            .iter()
            .all(|row| row.before == "erased" && row.after == "erased")
    );
}

/// R2.6: what a transaction in flight adds after the deletion is erased by the sweep.
#[tokio::test]
async fn leftovers_of_a_deletion_are_swept() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    tenant(&engine, "globex").await;
    set(&engine, "acme", TenantState::Deleted).await.unwrap();
    fill(&world, "acme").await;
    fill(&world, "globex").await;
    tenants::erasure::sweep(&engine).await.unwrap();
    for table in engine.store().fleet().tenant_tables().await.unwrap() {
        assert_eq!(count(&world, &table, "acme").await, 0, "{table}");
    }
    assert!(
        count(&world, "run_leases", "globex").await > 0,
        "active tenants are not touched"
    );
    // The sweep looks again until no transaction can be left that began before the deletion.
    let fleet = engine.store().fleet();
    assert_eq!(fleet.to_erase().await.unwrap(), [id("acme")]);
    sqlx::query(
        "UPDATE tenants SET deleted_at = deleted_at - interval '2 hours' WHERE tenant = 'acme'",
    )
    .execute(world.db.pool())
    .await
    .unwrap();
    tenants::erasure::sweep(&engine).await.unwrap();
    assert_eq!(fleet.to_erase().await.unwrap(), []);
    let erased = engine
        .store()
        .fleet()
        .erase_tenant(&id("globex"))
        .await
        .unwrap();
    assert_eq!(erased.rows, 0, "only a deleted tenant can be erased");
}

/// R2.5: the audit log knows who, what, before and after, with the request, and never changes.
#[tokio::test]
async fn administrative_writes_are_audited_for_good() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    let admin = operator();
    let state = SetTenantState {
        state: TenantState::Suspended,
    };
    tenants::set_state(&engine, &admin, &id("acme"), state)
        .await
        .unwrap();
    let audit = ops::audit(&engine, &admin, &PageQuery::default())
        .await
        .unwrap();
    let row = &audit.items[0];
    assert_eq!(row.actor, admin.key_id.to_string());
    assert_eq!(
        (row.action.as_str(), row.subject.as_str()),
        ("tenant.suspend", "acme")
    );
    assert_eq!(row.before["state"], "active");
    assert_eq!(row.after["state"], "suspended");
    assert_eq!(row.request_id.as_deref(), Some("req_test"));
    for change in [
        "UPDATE audit_log SET actor = 'nobody'",
        "UPDATE audit_log SET before = '\"erased\"', after = '\"erased\"'",
        "DELETE FROM audit_log",
    ] {
        let refused = sqlx::query(change)
            .execute(world.db.pool())
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("never changed"), "{change}");
    }
}

/// R2.6: a tenant sees its own use and limits, and nobody else's.
#[tokio::test]
async fn a_tenant_sees_its_own_usage() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    tenant(&engine, "globex").await;
    fill(&world, "acme").await;
    let busy = caller(&engine, Role::Member, Some("acme"), &[]).await;
    let usage = me::usage(&engine, &busy).await.unwrap();
    let of = |bucket| usage.buckets.iter().find(|b| b.bucket == bucket).unwrap();
    assert_eq!(
        (
            of(QuotaBucket::Foreground).queued,
            of(QuotaBucket::Foreground).running
        ),
        (2, 1)
    );
    assert_eq!(of(QuotaBucket::Foreground).cap, Some(2));
    assert_eq!(of(QuotaBucket::Background).cap, Some(1));
    assert_eq!(of(QuotaBucket::Uncounted).cap, None);
    let idle = as_role(Role::Member, Some("globex"));
    let usage = me::usage(&engine, &idle).await.unwrap();
    assert!(
        usage
            .buckets
            .iter()
            .all(|b| b.queued == 0 && b.running == 0)
    );
    assert_eq!(
        me::limits(&engine, &idle).await.unwrap().tenant,
        id("globex")
    );
    // A tenant's own view is for every key of that tenant.
    let coordinator = as_role(Role::Coordinator, Some("acme"));
    let seen = me::usage(&engine, &coordinator).await.unwrap();
    assert_eq!(seen.tenant, id("acme"));
    assert_eq!(me::me(&busy).tenant, Some(id("acme")));
}

async fn count(world: &World, table: &str, tenant: &str) -> i64 {
    let select = format!("SELECT count(*) FROM {table} WHERE tenant = $1");
    sqlx::query_scalar(sqlx::AssertSqlSafe(select))
        .bind(tenant)
        .fetch_one(world.db.pool())
        .await
        .unwrap()
}

async fn mentions(world: &World, text: &str) -> usize {
    let rows = whole_database(&world.db).await;
    rows.iter().filter(|(_, row)| row.contains(text)).count()
}

/// A row with a canary in every table of a tenant's content.
async fn fill(world: &World, tenant: &str) {
    let note = format!("{CANARY} {tenant}");
    let (conversation, run, lease, parked) = (
        RunId::new().as_uuid(),
        RunId::new().as_uuid(),
        RunId::new().as_uuid(),
        RunId::new().as_uuid(),
    );
    let statements = [
        "INSERT INTO conversations (tenant, conversation_id, title) VALUES ($1, $3, $2)",
        "INSERT INTO messages (tenant, conversation_id, seq, turn_no, role, content)
         VALUES ($1, $3, 1, 1, 'user', to_jsonb($2::text))",
        "INSERT INTO requirement_classes (tenant, digest, capability, requirements)
         VALUES ($1, sha256(convert_to($1 || $2, 'UTF8')), 'chat', to_jsonb($2::text))",
        "INSERT INTO agent_runs (tenant, run_id, scope, kind, capability, class, service_class, priority, priority_source,
             root_run_id, request_digest, max_attempts, backoff_base_ms, backoff_max_ms, input)
         VALUES ($1, $4, 'main', 'business_task', 'chat', 1, 'standard', 0, 'default', $4, sha256('x'), 5, 1, 1,
             to_jsonb($2::text))",
        "INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, next_seq, expires_at)
         VALUES ('main', 0, $1, 1, 1, 0, $4, 1, 'infinity')",
        "INSERT INTO run_leases (scope, bucket, tenant, run_id, class, urgency, attempt, fence_generation, fence_number,
             leases_lost, spent_tokens, spent_ms, next_seq, pool, holder, incarnation, instance_id, queued_at, started_at,
             lease_until)
         VALUES ('main', 0, $1, $5, 1, 0, 1, 1, 1, 0, 0, 0, 1, 'builtin', $2, 1, gen_random_uuid(), now(), now(),
             'infinity')",
        "INSERT INTO background_slots (scope, tenant, slot, run_id) VALUES ('main', $1, 1, $5)",
        "INSERT INTO run_parked (tenant, run_id, why, due, scope, bucket, class, urgency, next_seq, expires_at)
         VALUES ($1, $6, 'scheduled', 'infinity', 'main', 0, 1, 0, 1, 'infinity')",
        "INSERT INTO run_attempts (tenant, run_id, fence_generation, fence_number, attempt, pool, holder, incarnation,
             queued_at, started_at, ended_at, outcome, detail)
         VALUES ($1, $4, 1, 1, 1, 'builtin', 'w', 1, now(), now(), now(), 'failed', $2)",
        "INSERT INTO run_ends (tenant, run_id, state, result, attempts, fence_number, spent_tokens, spent_ms, next_seq)
         VALUES ($1, $4, 'succeeded', to_jsonb($2::text), 1, 1, 0, 0, 1)",
        "INSERT INTO run_events (tenant, run_id, seq, kind, body) VALUES ($1, $4, 1, 'run.queued', to_jsonb($2::text))",
        "INSERT INTO run_effects (tenant, run_id, call_id, tool, arguments_digest, idempotent, attempt, fence_generation,
             fence_number, outcome, source, result, note, recorded_at)
         VALUES ($1, $4, 'c1', $2, sha256('x'), false, 1, 1, 1, 'done', 'person', to_jsonb($2::text), $2, now())",
        "INSERT INTO schedules (tenant, name, scope, cron, time_zone, missed_runs, catch_up_window_ms, overlap, capability,
             class, service_class, priority, priority_source, input, request_digest, next_due_at, error_due_at, error_code,
             error_detail)
         VALUES ($1, 'nightly', 'main', '@daily', 'UTC', 'skip', 60000, 'skip', 'chat', 1, 'deferrable', 0, 'default',
             to_jsonb($2::text), sha256('x'), 'infinity', now(), 'INTERNAL', $2)",
        "INSERT INTO admissions_open (tenant, admission_id, scope, digest, state, pool, descriptor_epoch, policy_generation,
             fence_generation, fence_number, created_at, expires_at, ttl_ms, resources, granted, held, settled)
         VALUES ($1, $4, 'main', sha256(convert_to($2, 'UTF8')), 'ACTIVE', 'builtin', 1, 1, 1, 1, now(), 'infinity', 1, '{}',
             '{}', '{}', '{}')",
        "INSERT INTO admissions_done (tenant, admission_id, scope, digest, state, reason, pool, descriptor_epoch,
             policy_generation, fence_generation, fence_number, created_at, ended_at, resources, granted, settled)
         VALUES ($1, $5, 'main', sha256(convert_to($2, 'UTF8')), 'RELEASED', 'RELEASED_BY_HOLDER', 'builtin', 1, 1, 1, 1, now(),
             now(), '{}', '{}', '{}')",
        "INSERT INTO run_passes (scope, tenant, pass) VALUES ('main', $1, 1)",
        "INSERT INTO run_inputs (tenant, run_id, ask_no, ask, answer)
         VALUES ($1, $4, 1, to_jsonb($2::text), to_jsonb($2::text))",
        "INSERT INTO lane_waits (scope, bucket, tenant, class, code, facts)
         VALUES ('main', 0, $1, 1, 'WAITING_FOR_WORKER', to_jsonb($2::text))",
        "INSERT INTO api_keys (key_id, hash, role, tenant, name)
         VALUES (gen_random_uuid(), sha256(convert_to($1 || 'key', 'UTF8')), 'member', $1, $2)",
        "INSERT INTO idempotency_records (owner, idempotency_key, tenant, route, request_digest, answer, finished)
         VALUES ('', $1, $1, 'POST /v1/admin/tenants', sha256('x'), to_jsonb($2::text), true)",
    ];
    for statement in statements {
        // Each statement uses its part of the same parameters.
        let whole = format!(
            "WITH given AS (SELECT $1::text, $2::text, $3::uuid, $4::uuid, $5::uuid, $6::uuid) {statement}"
        );
        sqlx::query(sqlx::AssertSqlSafe(whole))
            .bind(tenant)
            .bind(&note)
            .bind(conversation)
            .bind(run)
            .bind(lease)
            .bind(parked)
            .execute(world.db.pool())
            .await
            .unwrap_or_else(|error| panic!("{error}: {statement}"));
    }
}

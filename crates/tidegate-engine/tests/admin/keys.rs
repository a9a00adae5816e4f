use std::time::Duration;

use tidegate_engine::{auth, keys};
use tidegate_model::{
    Code,
    api::{CreateKey, PageQuery},
    principal::{KeyScope, Role},
};

use crate::rig::{
    World, as_role, caller, eventually, id, key, key_request, operator, refused, shown, tenant,
};

/// R2.1, R2.4: a key says who its holder is; nothing else does.
#[tokio::test]
async fn a_key_opens_as_what_it_was_made_for() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    let request = CreateKey {
        user: Some("ada".to_owned()),
        scopes: vec![KeyScope::RunsBusiness],
        ..key_request(Role::Member, Some("acme"))
    };
    let made = keys::create(&engine, &operator(), request).await.unwrap();
    let caller = auth::authenticate(&engine, shown(&made)).await.unwrap();
    assert_eq!(caller.key_id, made.key.key_id);
    assert_eq!(caller.role, Role::Member);
    assert_eq!(caller.tenant, Some(id("acme")));
    assert_eq!(caller.user.as_deref(), Some("ada"));
    assert!(caller.has_scope(KeyScope::RunsBusiness) && !caller.has_scope(KeyScope::ActForUsers));

    let mut other = shown(&made).to_owned().into_bytes();
    *other.last_mut().unwrap() = if other.ends_with(b"A") { b"B" } else { b"A" }[0];
    let other = String::from_utf8(other).unwrap();
    for bad in ["", "tg_", "Bearer", &other, &shown(&made)[1..]] {
        assert_eq!(
            refused(auth::authenticate(&engine, bad).await),
            Code::Unauthenticated
        );
    }
    // The secret is nowhere in the database, and not in what a list shows.
    for (table, row) in crate::rig::whole_database(&world.db).await {
        assert!(
            !row.contains(&shown(&made)[3..]),
            "{table} holds the secret"
        );
    }
}

/// R2.1, R17.1: a key that is revoked on one instance is refused by every other within a second, under constant use,
/// and stays refused (O-24).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_is_refused_everywhere_within_a_second_under_load() {
    let world = World::new().await;
    let (one, two) = (world.node().await, world.node().await);
    tenant(&one.engine, "acme").await;
    let made = key(&one.engine, Role::Member, Some("acme")).await;
    let listening = || async { two.engine.platform().bus().is_listening() };
    eventually("listening", Duration::from_secs(5), listening).await;
    // Constant use on both instances keeps the key in both memories.
    let mut users = tokio::task::JoinSet::new();
    let stop = tokio_util::sync::CancellationToken::new();
    for engine in [&one.engine, &two.engine, &two.engine] {
        let (engine, secret, stop) = (engine.clone(), shown(&made).to_owned(), stop.clone());
        users.spawn(async move {
            let mut last_accepted = None;
            while !stop.is_cancelled() {
                if auth::authenticate(&engine, &secret).await.is_ok() {
                    last_accepted = Some(std::time::Instant::now());
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            last_accepted.expect("it was accepted at first")
        });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let revoked = keys::revoke(&one.engine, &operator(), made.key.key_id)
        .await
        .unwrap();
    let revoked_at = std::time::Instant::now();
    assert!(revoked.revoked_at.is_some());
    // A second is the bound; two more prove that nothing brings the key back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    stop.cancel();
    while let Some(last_accepted) = users.join_next().await {
        let late = last_accepted.unwrap().saturating_duration_since(revoked_at);
        assert!(
            late < Duration::from_secs(1),
            "still accepted {late:?} after"
        );
    }
    let again = keys::revoke(&two.engine, &operator(), made.key.key_id)
        .await
        .unwrap();
    assert_eq!(
        again.revoked_at, revoked.revoked_at,
        "revoking twice changes nothing"
    );
}

async fn now(world: &World) -> chrono::DateTime<chrono::Utc> {
    sqlx::query_scalar("SELECT clock_timestamp()")
        .fetch_one(world.db.pool())
        .await
        .unwrap()
}

/// R2.1: expiry is decided by the database's clock, also for a key that is remembered.
#[tokio::test]
async fn an_expired_key_is_refused_even_where_it_is_remembered() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let now = now(&world).await;
    let until = |ms| CreateKey {
        expires_at: Some(now + chrono::Duration::milliseconds(ms)),
        ..key_request(Role::SuperAdmin, None)
    };
    let passed = keys::create(&engine, &operator(), until(-1))
        .await
        .unwrap_err();
    assert_eq!(passed.problem().field.as_deref(), Some("expiresAt"));
    // Ten years are the most; a key without an end is the way to have one for longer.
    for days in [3_661, 3_650_000] {
        let far = keys::create(&engine, &operator(), until(days * 24 * 3_600_000))
            .await
            .unwrap_err();
        let problem = far.problem();
        assert_eq!(problem.field.as_deref(), Some("expiresAt"), "{days}");
        assert!(problem.detail.unwrap().contains("3660 days"), "{days}");
    }
    let long = until(3_650 * 24 * 3_600_000);
    keys::create(&engine, &operator(), long).await.unwrap();
    let made = keys::create(&engine, &operator(), until(1_500))
        .await
        .unwrap();
    assert!(auth::authenticate(&engine, shown(&made)).await.is_ok());
    let expired = || async { auth::authenticate(&engine, shown(&made)).await.is_err() };
    let took = eventually("expiry", Duration::from_secs(4), expired).await;
    assert!(took > Duration::from_millis(500), "expired after {took:?}");
}

/// R2.1: the first key is made once, however many try at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bootstrap_key_is_made_once() {
    let world = World::new().await;
    let store = world.store();
    let tries = futures::future::join_all((0..8).map(|_| keys::bootstrap(&store, "root"))).await;
    let (made, refusals): (Vec<_>, Vec<_>) = tries.into_iter().partition(Result::is_ok);
    assert_eq!(made.len(), 1);
    for refusal in refusals {
        assert_eq!(refused(refusal), Code::StateConflict);
    }
    let engine = world.engine(World::settings()).await;
    let made = made.into_iter().next().unwrap().unwrap();
    let caller = auth::authenticate(&engine, shown(&made)).await.unwrap();
    assert_eq!(caller.role, Role::SuperAdmin);
    key(&engine, Role::SuperAdmin, None).await;
    keys::revoke(&engine, &caller, made.key.key_id)
        .await
        .unwrap();
    assert_eq!(
        refused(keys::bootstrap(&store, "root").await),
        Code::StateConflict,
        "not even after"
    );
}

/// R2.2, R2.4: a tenant's administrator makes keys of its own tenant and of its tenant's roles.
#[tokio::test]
async fn a_tenants_administrator_stays_in_its_tenant() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    tenant(&engine, "globex").await;
    let admin = caller(&engine, Role::TenantAdmin, Some("acme"), &[]).await;
    let own = keys::create(&engine, &admin, key_request(Role::Member, None))
        .await
        .unwrap();
    assert_eq!(
        own.key.tenant,
        Some(id("acme")),
        "the tenant is the caller's"
    );
    let claims = key_request(Role::Member, Some("globex"));
    assert_eq!(
        refused(keys::create(&engine, &admin, claims).await),
        Code::NotFound
    );
    for role in [
        Role::SuperAdmin,
        Role::Worker,
        Role::PoolController,
        Role::ResourceOwner,
    ] {
        let request = key_request(role, None);
        assert_eq!(
            refused(keys::create(&engine, &admin, request).await),
            Code::Forbidden,
            "{role}"
        );
    }
}

/// R2.4: a scope is only given by a key that carries it.
#[tokio::test]
async fn a_tenants_administrator_gives_only_the_scopes_it_has() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    let own = [KeyScope::RunsBusiness];
    let admin = caller(&engine, Role::TenantAdmin, Some("acme"), &own).await;
    let scoped = |scope| CreateKey {
        scopes: vec![scope],
        ..key_request(Role::Member, None)
    };
    assert!(
        keys::create(&engine, &admin, scoped(KeyScope::RunsBusiness))
            .await
            .is_ok()
    );
    let wider = scoped(KeyScope::MetricsRead);
    assert_eq!(
        refused(keys::create(&engine, &admin, wider).await),
        Code::Forbidden
    );
}

/// R2.1: the last key that can administer the platform cannot be revoked; with another one it can.
#[tokio::test]
async fn the_last_operator_stays() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let first = keys::bootstrap(&world.store(), "root")
        .await
        .unwrap()
        .key
        .key_id;
    let refusal = keys::revoke(&engine, &operator(), first).await;
    assert_eq!(refused(refusal), Code::StateConflict);
    // One that expires leaves nobody when it has.
    let passing = CreateKey {
        expires_at: Some(now(&world).await + chrono::Duration::days(30)),
        ..key_request(Role::SuperAdmin, None)
    };
    let passing = keys::create(&engine, &operator(), passing).await.unwrap();
    let refusal = keys::revoke(&engine, &operator(), first).await;
    assert_eq!(refused(refusal), Code::StateConflict);
    keys::revoke(&engine, &operator(), passing.key.key_id)
        .await
        .unwrap();
    key(&engine, Role::SuperAdmin, None).await;
    let revoked = keys::revoke(&engine, &operator(), first).await.unwrap();
    assert!(revoked.revoked_at.is_some());
}

/// R2.1, R2.5: where the secret of the first key is lost, another one is made, and the log says by whom.
#[tokio::test]
async fn a_lost_first_key_can_be_replaced() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let store = world.store();
    let lost = keys::bootstrap(&store, "root").await.unwrap();
    let made = keys::recover(&store, "ada").await.unwrap();
    let caller = auth::authenticate(&engine, shown(&made)).await.unwrap();
    assert_eq!(caller.role, Role::SuperAdmin);
    keys::revoke(&engine, &caller, lost.key.key_id)
        .await
        .unwrap();
    let actor: String = sqlx::query_scalar("SELECT actor FROM audit_log WHERE subject = $1")
        .bind(made.key.key_id.to_string())
        .fetch_one(world.db.pool())
        .await
        .unwrap();
    assert_eq!(actor, "cli:ada");
}

/// R2.2: another tenant's keys are neither seen nor revoked.
#[tokio::test]
async fn keys_of_other_tenants_do_not_exist() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    tenant(&engine, "globex").await;
    let admin = caller(&engine, Role::TenantAdmin, Some("acme"), &[]).await;
    let own = key(&engine, Role::Member, Some("acme")).await;
    let foreign = key(&engine, Role::Member, Some("globex")).await;
    let listed = keys::list(&engine, &admin, &PageQuery::default())
        .await
        .unwrap();
    assert!(
        listed
            .items
            .iter()
            .all(|key| key.tenant == Some(id("acme")))
    );
    assert_eq!(listed.items.len(), 2);
    let foreign = foreign.key.key_id;
    assert_eq!(
        refused(keys::revoke(&engine, &admin, foreign).await),
        Code::NotFound
    );
    assert!(keys::revoke(&engine, &admin, own.key.key_id).await.is_ok());
    let member = as_role(Role::Member, Some("acme"));
    assert_eq!(
        refused(keys::revoke(&engine, &member, foreign).await),
        Code::Forbidden
    );
}

#[tokio::test]
async fn requests_that_do_not_fit_their_role_are_refused_by_field() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    let cases = [
        (key_request(Role::Member, None), "tenant"),
        (key_request(Role::SuperAdmin, Some("acme")), "tenant"),
        (
            CreateKey {
                pool: None,
                ..key_request(Role::Worker, None)
            },
            "pool",
        ),
        (
            CreateKey {
                pool: Some(id("gpu")),
                ..key_request(Role::SuperAdmin, None)
            },
            "pool",
        ),
        (
            CreateKey {
                name: Some("a\0b".to_owned()),
                ..key_request(Role::SuperAdmin, None)
            },
            "name",
        ),
        (
            CreateKey {
                user: Some("x".repeat(201)),
                ..key_request(Role::SuperAdmin, None)
            },
            "user",
        ),
    ];
    for (request, field) in cases {
        let error = keys::create(&engine, &operator(), request)
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(error.problem().field.as_deref(), Some(field));
    }
    let ghost = key_request(Role::Member, Some("ghost"));
    assert_eq!(
        refused(keys::create(&engine, &operator(), ghost).await),
        Code::NotFound
    );
}

#[tokio::test]
async fn pages_of_one_show_every_key_once() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    for _ in 0..3 {
        key(&engine, Role::Member, Some("acme")).await;
    }
    let mut query = PageQuery {
        limit: Some(1),
        cursor: None,
    };
    let mut seen = Vec::new();
    loop {
        let page = keys::list(&engine, &operator(), &query).await.unwrap();
        seen.extend(page.items.into_iter().map(|key| key.key_id));
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 3);
    assert!(seen.is_sorted());
}

/// R2.1, O-24: use is noted to the minute, and noting it changes no setting of the key.
#[tokio::test]
async fn use_is_noted_without_writing_settings() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    key(&engine, Role::SuperAdmin, None).await;
    let made = key(&engine, Role::SuperAdmin, None).await;
    auth::authenticate(&engine, shown(&made)).await.unwrap();
    keys::revoke(&engine, &operator(), made.key.key_id)
        .await
        .unwrap();
    keys::last_used::flush(&engine).await.unwrap();
    let listed = keys::list(&engine, &operator(), &PageQuery::default())
        .await
        .unwrap();
    let found = listed
        .items
        .iter()
        .find(|key| key.key_id == made.key.key_id);
    let found = found.expect("listed");
    let used = found.last_used_at.expect("noted");
    assert!(used >= found.created_at, "not before it was made");
    assert!(
        used == found.created_at || used.timestamp() % 60 == 0,
        "to the minute"
    );
    assert!(found.revoked_at.is_some(), "still revoked");
}

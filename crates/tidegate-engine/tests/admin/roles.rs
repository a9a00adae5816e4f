use std::{future::Future, pin::Pin};

use tidegate_engine::{
    Engine, Error, Principal, admissions, catalog, grants, keys, me, ops, pools, tenants,
};
use tidegate_model::{
    Code, KeyId,
    api::{
        CreateTenant, PageQuery, ProviderKind, PutModel, PutProvider, PutResource,
        PutTenantOverride, PutToolServer, RevokeEpoch, SetEpoch, SetPolicyGeneration,
        SetTenantState,
    },
    contracts::CapabilityDescriptor,
    principal::{Role, TenantState},
};

use crate::rig::{World, as_role, id, key_request, tenant};

type Called<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;
type Call = for<'a> fn(&'a Engine, &'a Principal) -> Called<'a>;

macro_rules! calls {
    ($($name:literal: [$($role:ident),*] => |$e:ident, $p:ident| $call:expr;)+) => {
        &[$(($name, &[$(Role::$role),*], |$e, $p| Box::pin(async move { $call.await.map(|_| ()) }))),+]
    };
}

/// Every administrative use case with the roles that may call it.
const CALLS: &[(&str, &[Role], Call)] = calls! {
    "tenants::create": [SuperAdmin] => |e, p| tenants::create(e, p, CreateTenant { tenant: id("initech"), display_name: None });
    "tenants::list": [SuperAdmin] => |e, p| tenants::list(e, p, &PageQuery::default());
    "tenants::get": [SuperAdmin, TenantAdmin] => |e, p| tenants::get(e, p, &id("acme"));
    "tenants::limits": [SuperAdmin, TenantAdmin] => |e, p| tenants::limits(e, p, &id("acme"));
    "tenants::set_state": [SuperAdmin] => |e, p| tenants::set_state(e, p, &id("globex"), SetTenantState { state: TenantState::Suspended });
    "tenants::put_override": [SuperAdmin] => |e, p| tenants::put_override(e, p, &id("acme"), PutTenantOverride::default());
    "tenants::delete_override": [SuperAdmin] => |e, p| tenants::delete_override(e, p, &id("acme"));
    "keys::create": [SuperAdmin, TenantAdmin] => |e, p| keys::create(e, p, key_request(Role::Member, Some("acme")));
    "keys::list": [SuperAdmin, TenantAdmin] => |e, p| keys::list(e, p, &PageQuery::default());
    "keys::revoke": [SuperAdmin, TenantAdmin] => |e, p| keys::revoke(e, p, KeyId::new());
    "catalog::put_provider": [SuperAdmin] => |e, p| catalog::put_provider(e, p, id("mock"), provider());
    "catalog::list_providers": [SuperAdmin] => |e, p| catalog::list_providers(e, p);
    "catalog::put_model": [SuperAdmin] => |e, p| catalog::put_model(e, p, id("fast"), PutModel { provider: id("mock"), upstream_model: "m".to_owned(), default: false });
    "catalog::list_models": [SuperAdmin] => |e, p| catalog::list_models(e, p);
    "catalog::delete_model": [SuperAdmin] => |e, p| catalog::delete_model(e, p, &id("fast"));
    "catalog::delete_provider": [SuperAdmin] => |e, p| catalog::delete_provider(e, p, &id("mock"));
    "catalog::put_tool_server": [SuperAdmin] => |e, p| catalog::put_tool_server(e, p, id("git"), tool_server());
    "catalog::list_tool_servers": [SuperAdmin] => |e, p| catalog::list_tool_servers(e, p);
    "catalog::delete_tool_server": [SuperAdmin] => |e, p| catalog::delete_tool_server(e, p, &id("git"));
    "pools::publish": [PoolController] => |e, p| pools::publish(e, p, &id("gpu"), 1, descriptor());
    "pools::set_epoch": [PoolController] => |e, p| pools::set_epoch(e, p, &id("gpu"), SetEpoch { expected: None, active: 1, draining: None });
    "pools::revoke_epoch": [SuperAdmin, PoolController] => |e, p| pools::revoke_epoch(e, p, &id("gpu"), RevokeEpoch { epoch: 1 });
    "pools::policy_generation": [SuperAdmin, PoolController] => |e, p| pools::policy_generation(e, p);
    "pools::set_policy_generation": [SuperAdmin] => |e, p| pools::set_policy_generation(e, p, SetPolicyGeneration { expected: 1, active: 2 });
    "pools::list": [SuperAdmin, PoolController] => |e, p| pools::list(e, p);
    "admissions::put_resource": [SuperAdmin] => |e, p| admissions::put_resource(e, p, id("pool/gpu"), PutResource { capacity: 1 });
    "admissions::get_resource": [SuperAdmin] => |e, p| admissions::get_resource(e, p, &id("pool/gpu"));
    "admissions::list_resources": [SuperAdmin] => |e, p| admissions::list_resources(e, p, &PageQuery::default());
    "admissions::list_holders": [SuperAdmin] => |e, p| admissions::list_holders(e, p, &id("pool/gpu"));
    "admissions::remove_resource": [SuperAdmin] => |e, p| admissions::remove_resource(e, p, &id("pool/gpu"));
    "admissions::audit_ledger": [SuperAdmin] => |e, p| admissions::audit_ledger(e, p);
    "grants::list": [SuperAdmin] => |e, p| grants::list(e, p);
    "grants::rotate": [SuperAdmin] => |e, p| grants::rotate(e, p);
    "ops::audit": [SuperAdmin, TenantAdmin] => |e, p| ops::audit(e, p, &PageQuery::default());
    "ops::revisions": [SuperAdmin] => |e, p| ops::revisions(e, p, &PageQuery::default());
    "ops::instances": [SuperAdmin] => |e, p| ops::instances(e, p);
    "ops::recovery": [SuperAdmin] => |e, p| ops::recovery(e, p);
    "me::limits": [TenantAdmin, Member, Coordinator] => |e, p| me::limits(e, p);
    "me::usage": [TenantAdmin, Member, Coordinator] => |e, p| me::usage(e, p);
};

fn provider() -> PutProvider {
    PutProvider {
        kind: ProviderKind::OpenAiCompatible,
        base_url: "http://127.0.0.1:1/v1".to_owned(),
        api_key: None,
        max_in_flight: None,
        rpm: None,
        max_queue: None,
        queue_timeout_ms: None,
    }
}

fn tool_server() -> PutToolServer {
    crate::catalog::tool_server(&[])
}

fn descriptor() -> CapabilityDescriptor {
    CapabilityDescriptor::new(
        id("gpu"),
        1,
        vec![id("hr.employee_query")],
        tidegate_testkit::lasting_health(),
    )
}

/// R2.2, R2.3: who may call what; a wrong role is told so and changes nothing.
#[tokio::test]
async fn every_use_case_knows_its_roles() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    tenant(&engine, "globex").await;
    for (name, allowed, call) in CALLS {
        for role in Role::ALL {
            if allowed.contains(role) {
                continue;
            }
            let before = engine.store().last_revision().await.unwrap();
            let caller = as_role(*role, role.needs_tenant().then_some("acme"));
            let code = call(&engine, &caller).await.err().map(|error| error.code());
            assert_eq!(code, Some(Code::Forbidden), "{name} as {role}");
            assert_eq!(
                engine.store().last_revision().await.unwrap(),
                before,
                "{name} as {role}"
            );
        }
    }
    // The other half: whoever is allowed is not told that the role is wrong.
    for (name, allowed, call) in CALLS {
        for role in *allowed {
            let caller = as_role(*role, role.needs_tenant().then_some("acme"));
            let code = call(&engine, &caller).await.err().map(|error| error.code());
            assert_ne!(code, Some(Code::Forbidden), "{name} as {role}");
            assert_ne!(code, Some(Code::Internal), "{name} as {role}");
        }
    }
}

/// R2.2: another tenant's things are as good as none.
#[tokio::test]
async fn a_foreign_tenant_does_not_exist() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    tenant(&engine, "acme").await;
    tenant(&engine, "globex").await;
    let admin = as_role(Role::TenantAdmin, Some("acme"));
    for foreign in ["globex", "ghost"] {
        let foreign = id(foreign);
        let got = tenants::get(&engine, &admin, &foreign)
            .await
            .unwrap_err()
            .problem();
        let limits = tenants::limits(&engine, &admin, &foreign)
            .await
            .unwrap_err()
            .problem();
        assert_eq!((got.code, limits.code), (Code::NotFound, Code::NotFound));
        assert_eq!(
            got.detail.as_deref(),
            Some("no such tenant"),
            "the same words for both"
        );
    }
    assert!(tenants::limits(&engine, &admin, &id("acme")).await.is_ok());
    let audit = ops::audit(&engine, &admin, &PageQuery::default())
        .await
        .unwrap();
    assert!(!audit.items.is_empty());
    assert!(audit.items.iter().all(|row| row.tenant == Some(id("acme"))));
}

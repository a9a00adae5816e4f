//! What a new database of `tidegate dev` or `tidegate demo` gets, all of it through the API: two tenants, a key for each,
//! a model, tool servers. Doing it again changes nothing but addresses.

use std::path::Path;

use secrecy::SecretString;
use tidegate_client::Client;
use tidegate_engine::keys;
use tidegate_model::{
    Code, TenantId,
    api::{
        CreateKey, CreateTenant, CreatedKey, KeyGrants, ModelView, PageQuery, ProviderKind,
        PutModel, PutProvider,
    },
    ids::CatalogName,
    principal::{KeyScope, Role},
};
use tidegate_store::Store;

use super::checkout;
use crate::{
    compose::database,
    connection::coordinator_of,
    failure::{Failure, Outcome},
    profile::Profile,
};

/// The tenants.
pub const TENANTS: [(&str, &str); 2] = [("acme", "Acme Ltd"), ("globex", "Globex Corporation")];
/// The key that publishes descriptors of pools.
const CONTROLLER: &str = "controller";
/// The scripted provider's name in the catalogue.
const MOCK: &str = "mock";
/// The name of a real provider in the catalogue.
const REAL: &str = "real";

/// Where model calls go.
#[derive(Debug, Clone)]
pub enum ModelSource {
    /// A scripted provider at this address; it steps back where somebody has configured a real one.
    Scripted(String),
    /// A real endpoint.
    Real {
        /// The address up to and including `/v1`.
        url: String,
        /// The endpoint's name of the model.
        model: String,
        /// Its key, if it wants one.
        api_key: Option<SecretString>,
    },
}

/// The administrator's key: the profile's, else the database's first.
pub async fn admin_key(store: &Store, profile: &mut Profile) -> Outcome<String> {
    if let Some(key) = profile.keys.get("admin") {
        return Ok(key.clone());
    }
    let created = keys::bootstrap(store, &database::user())
        .await
        .map_err(|error| {
            database::engine_failure(&error).remedy(
                "the profile with this database's keys is gone: put it back, or start over with `tidegate dev --fresh`",
            )
        })?;
    let secret = secret_of(created)?;
    profile.keys.insert("admin".to_owned(), secret.clone());
    Ok(secret)
}

/// Tenants with a key each, and a key for pools; keys of the profile that still work are kept.
pub async fn tenants(admin: &Client, profile: &mut Profile) -> Outcome<()> {
    for (name, display_name) in TENANTS {
        let tenant = parse(name)?;
        let body = CreateTenant {
            tenant,
            display_name: Some(display_name.to_owned()),
        };
        match admin.create_tenant(&body).await {
            Ok(_) => {}
            Err(error) if error.code() == Some(Code::VersionConflict) => {}
            Err(error) => return Err(error.into()),
        }
        if !works(admin.base_url(), profile.keys.get(name)).await? {
            let body = CreateKey {
                user: Some(format!("somebody@{name}")),
                scopes: vec![KeyScope::RunsBusiness],
                ..key(Role::Member, Some(body.tenant))
            };
            let key = admin.create_key(&body).await?;
            profile.keys.insert(name.to_owned(), secret_of(key)?);
        }
        let coordinator = coordinator_of(name);
        if !works(admin.base_url(), profile.keys.get(&coordinator)).await? {
            let body = key(Role::Coordinator, Some(parse(name)?));
            let key = admin.create_key(&body).await?;
            profile.keys.insert(coordinator, secret_of(key)?);
        }
    }
    if !works(admin.base_url(), profile.keys.get(CONTROLLER)).await? {
        let key = admin.create_key(&key(Role::PoolController, None)).await?;
        profile.keys.insert(CONTROLLER.to_owned(), secret_of(key)?);
    }
    profile.default = Some(TENANTS[0].0.to_owned());
    Ok(())
}

/// A key's secret is in its first answer only; a repeat that follows a lost answer has none.
fn secret_of(created: CreatedKey) -> Outcome<String> {
    created.secret.ok_or_else(|| {
        Failure::failed("the answer with a new key's secret was lost").remedy("start again")
    })
}

fn parse(name: &str) -> Outcome<TenantId> {
    name.parse()
        .map_err(|error| Failure::failed(format!("{name}: {error}")))
}

fn key(role: Role, tenant: Option<TenantId>) -> CreateKey {
    CreateKey {
        role,
        tenant,
        pool: None,
        user: None,
        scopes: Vec::new(),
        name: Some("seeded".to_owned()),
        expires_at: None,
        grants: KeyGrants::default(),
    }
}

async fn works(url: &str, key: Option<&String>) -> Outcome<bool> {
    let Some(key) = key else { return Ok(false) };
    match Client::new(url, key.clone())?.me().await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(Code::Unauthenticated) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The provider and the model that agents use; says in words which.
pub async fn model(admin: &Client, source: &ModelSource) -> Outcome<String> {
    match source {
        ModelSource::Scripted(url) => scripted(admin, url).await,
        ModelSource::Real {
            url,
            model,
            api_key,
        } => {
            use secrecy::ExposeSecret;
            let key = api_key.as_ref().map(|key| key.expose_secret().to_owned());
            put_provider(admin, REAL, url, key).await?;
            put_model(admin, REAL, model, true).await?;
            Ok(format!("{model} at {url}"))
        }
    }
}

async fn scripted(admin: &Client, url: &str) -> Outcome<String> {
    put_provider(admin, MOCK, url, None).await?;
    let others = default_model(admin).await?;
    let own = others
        .as_ref()
        .is_none_or(|model| model.provider.as_ref() == MOCK);
    put_model(admin, MOCK, "demo", own).await?;
    Ok(match others {
        Some(model) if !own => format!("{} (provider {})", model.name, model.provider),
        _ => "scripted, no real model (docs/mock-provider.md)".to_owned(),
    })
}

async fn default_model(admin: &Client) -> Outcome<Option<ModelView>> {
    let page = admin.models(&PageQuery::default()).await?;
    Ok(page.items.into_iter().find(|model| model.default))
}

async fn put_provider(
    admin: &Client,
    name: &str,
    url: &str,
    api_key: Option<String>,
) -> Outcome<()> {
    let body = PutProvider {
        kind: ProviderKind::OpenAiCompatible,
        base_url: url.to_owned(),
        api_key,
        max_in_flight: None,
        rpm: None,
        max_queue: None,
        queue_timeout_ms: None,
    };
    admin.put_provider(&catalog_name(name)?, &body).await?;
    Ok(())
}

async fn put_model(admin: &Client, name: &str, upstream: &str, default: bool) -> Outcome<()> {
    let body = PutModel {
        provider: catalog_name(name)?,
        upstream_model: upstream.to_owned(),
        default,
    };
    admin.put_model(&catalog_name(name)?, &body).await?;
    Ok(())
}

fn catalog_name(name: &str) -> Outcome<CatalogName> {
    name.parse()
        .map_err(|error| Failure::failed(format!("{name}: {error}")))
}

/// Tool servers for the checkout that `directory` is in; their names.
pub async fn tools(admin: &Client, directory: &Path) -> Outcome<Vec<&'static str>> {
    let Some(checkout) = checkout::find(directory) else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for (name, body) in checkout::tool_servers(&checkout) {
        admin.put_tool_server(&catalog_name(name)?, &body).await?;
        names.push(name);
    }
    Ok(names)
}

//! Resources of the ledger: what an operator bounds.

use tidegate_model::{
    ConfigKind,
    api::{HolderView, Page, PageQuery, PutResource, ResourceView},
    contracts::ResourceName,
};
use tidegate_store::ledger::resources::RemoveResource;

use crate::{Engine, Error, Principal, checks};

/// The greatest capacity.
const CAPACITY_MAX: i64 = 1_000_000_000_000_000;
/// The most holders that are shown.
const HOLDERS_MAX: i64 = 200;

/// Makes a resource or changes its capacity.
pub async fn put_resource(
    engine: &Engine,
    principal: &Principal,
    name: ResourceName,
    request: PutResource,
) -> Result<ResourceView, Error> {
    principal.require_operator()?;
    if !(0..=CAPACITY_MAX).contains(&request.capacity) {
        return Err(Error::invalid(
            "capacity",
            format!("{} is out of bounds: 0 to {CAPACITY_MAX}", request.capacity),
        ));
    }
    let scope = &engine.settings().execution_scope;
    let written = engine
        .store()
        .put_resource(scope, &name, request.capacity, &principal.author())
        .await?;
    let view = engine.written(ConfigKind::Resource, written).await;
    engine.resources_changed();
    Ok(view)
}

/// Removes a resource; it goes with its last grant.
pub async fn remove_resource(
    engine: &Engine,
    principal: &Principal,
    name: &ResourceName,
) -> Result<ResourceView, Error> {
    principal.require_operator()?;
    let scope = &engine.settings().execution_scope;
    let written = engine
        .store()
        .remove_resource(scope, name, &principal.author())
        .await?;
    match engine.written(ConfigKind::Resource, written).await {
        RemoveResource::Removed(view) => {
            engine.resources_changed();
            Ok(view)
        }
        RemoveResource::NotFound => Err(Error::not_found("resource")),
    }
}

/// Resources by name.
pub async fn list_resources(
    engine: &Engine,
    principal: &Principal,
    query: &PageQuery,
) -> Result<Page<ResourceView>, Error> {
    principal.require_operator()?;
    let size = checks::page_size(query)?;
    let after: Option<ResourceName> = checks::cursor(query)?;
    let items = engine
        .store()
        .list_resources(
            &engine.settings().execution_scope,
            after.as_ref().map(ResourceName::as_str),
            size + 1,
        )
        .await?;
    Ok(checks::page(items, size, |view| view.resource.to_string()))
}

/// One resource.
pub async fn get_resource(
    engine: &Engine,
    principal: &Principal,
    name: &ResourceName,
) -> Result<ResourceView, Error> {
    principal.require_operator()?;
    let scope = &engine.settings().execution_scope;
    let found = engine.store().resource(scope, name).await?;
    found.ok_or_else(|| Error::not_found("resource"))
}

/// Who holds a resource, those first that have held it longest.
pub async fn list_holders(
    engine: &Engine,
    principal: &Principal,
    name: &ResourceName,
) -> Result<Vec<HolderView>, Error> {
    get_resource(engine, principal, name).await?;
    let scope = &engine.settings().execution_scope;
    Ok(engine.store().holders(scope, name, HOLDERS_MAX).await?)
}

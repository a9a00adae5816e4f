//! Models.

use tidegate_model::{
    ConfigKind,
    api::{ModelView, PutModel},
    ids::CatalogName,
};
use tidegate_store::catalog::{StoredModel, models::PutModel as Put};

use super::deleted;
use crate::{Engine, Error, Principal, checks};

/// Makes or replaces a model; a new default takes the place of the old one.
pub async fn put_model(
    engine: &Engine,
    principal: &Principal,
    name: CatalogName,
    request: PutModel,
) -> Result<ModelView, Error> {
    principal.require_operator()?;
    checks::filled("upstreamModel", &request.upstream_model, checks::LABEL_MAX)?;
    let provider = request.provider.clone();
    let model = StoredModel {
        name,
        provider: request.provider,
        upstream_model: request.upstream_model,
        is_default: request.default,
    };
    let written = engine.store().put_model(model, &principal.author()).await?;
    match engine.written(ConfigKind::Model, written).await {
        Put::Stored(model) => Ok(view(model)),
        Put::NoProvider => Err(Error::invalid(
            "provider",
            format!(
                "there is no provider {provider}; make it first with `tidegate provider set {provider}`"
            ),
        )),
    }
}

/// Every model.
pub async fn list_models(engine: &Engine, principal: &Principal) -> Result<Vec<ModelView>, Error> {
    principal.require_operator()?;
    let models = engine.store().list_models().await?;
    Ok(models.into_iter().map(view).collect())
}

/// Deletes a model.
pub async fn delete_model(
    engine: &Engine,
    principal: &Principal,
    name: &CatalogName,
) -> Result<(), Error> {
    principal.require_operator()?;
    let written = engine
        .store()
        .delete_model(name, &principal.author())
        .await?;
    deleted(engine.written(ConfigKind::Model, written).await, "model")
}

fn view(model: StoredModel) -> ModelView {
    ModelView {
        name: model.name,
        provider: model.provider,
        upstream_model: model.upstream_model,
        default: model.is_default,
    }
}

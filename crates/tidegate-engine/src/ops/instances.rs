//! The server processes.

use tidegate_model::api::InstanceView;

use crate::{Engine, Error, Principal, config_bus};

/// Every instance that was seen within a day.
pub async fn instances(engine: &Engine, principal: &Principal) -> Result<Vec<InstanceView>, Error> {
    principal.require_operator()?;
    let dead_after = config_bus::dead_after_ms(engine);
    Ok(engine.store().list_instances(dead_after).await?)
}

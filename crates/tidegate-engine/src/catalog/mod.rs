//! Providers, models and tool servers: what an administrator keeps, and what is made of it for calls.

mod models;
mod providers;
pub mod resolved;
mod tool_checks;
mod tool_servers;

use tidegate_model::{Code, api::SecretState, ids::CatalogName};
use tidegate_store::{
    catalog::{Delete, Sealed},
    secrets::SealedTable,
};

pub use models::{delete_model, list_models, put_model};
pub use providers::{delete_provider, list_providers, put_provider};
pub use resolved::{
    ResolvedCatalog, ResolvedModel, ResolvedProvider, ResolvedToolServer, resolved,
};
pub use tool_servers::{
    delete_tool_server, list_tool_servers, put_tool_server, report_tool_servers,
};

use crate::{
    Engine, Error,
    secrets::{Place, row_place},
};

fn place(table: SealedTable, name: &CatalogName) -> Place<'_> {
    row_place(table, name.as_str())
}

/// Whether a stored secret opens. One that does not affects its own row only (R1.8).
fn secret_state(
    engine: &Engine,
    table: SealedTable,
    name: &CatalogName,
    secret: Option<&Sealed>,
) -> SecretState {
    match secret {
        None => SecretState::Absent,
        Some(sealed) => match engine.platform().keyring.open(place(table, name), sealed) {
            Ok(_) => SecretState::Sealed,
            Err(_) => SecretState::Unreadable,
        },
    }
}

/// The answer to a deletion.
fn deleted(outcome: Delete, what: &str) -> Result<(), Error> {
    match outcome {
        Delete::Deleted => Ok(()),
        Delete::NotFound => Err(Error::not_found(what)),
        Delete::Used(by) => Err(Error::refused(
            Code::StateConflict,
            format!(
                "the {what} is still used by {}; delete or change these first",
                by.join(", ")
            ),
        )),
    }
}

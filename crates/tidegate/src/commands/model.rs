//! `tidegate model`.

use clap::{Args, Subcommand};
use tidegate_model::{
    api::{ModelView, PutModel},
    ids::CatalogName,
};

use super::page::{self, PageFlags};
use crate::{cli::Context, connection::Who, exit::Exit, failure::Outcome, output::table};

/// Models.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Make or change a model
    Set(Set),
    /// List models
    List(PageFlags),
    /// Remove a model
    Delete {
        /// Its name
        name: CatalogName,
    },
}

/// Who serves the model.
#[derive(Debug, Args)]
pub struct Set {
    /// The name that agents ask for
    name: CatalogName,
    /// A provider of the catalogue
    #[arg(long)]
    provider: CatalogName,
    /// The provider's own name of the model
    #[arg(long, value_name = "NAME")]
    upstream_model: String,
    /// Use it where nothing names a model
    #[arg(long)]
    default: bool,
}

impl ModelCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Admin)?;
        match self {
            Self::Set(set) => {
                let body = PutModel {
                    provider: set.provider,
                    upstream_model: set.upstream_model,
                    default: set.default,
                };
                let view = client.put_model(&set.name, &body).await?;
                output.show(&view, |view| list(std::slice::from_ref(view)));
            }
            Self::List(page) => {
                let answer = client.models(&page.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
            }
            Self::Delete { name } => {
                client.delete_model(&name).await?;
                let answer = serde_json::json!({ "name": name, "deleted": true });
                output.show(&answer, |_| format!("model {name} is deleted"));
            }
        }
        Ok(Exit::Success)
    }
}

fn list(models: &[ModelView]) -> String {
    table(
        ["model", "provider", "upstream model", "default"],
        models.iter().map(|model| {
            [
                model.name.to_string(),
                model.provider.to_string(),
                model.upstream_model.clone(),
                if model.default { "yes" } else { "" }.to_owned(),
            ]
        }),
    )
}

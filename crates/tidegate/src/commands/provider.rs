//! `tidegate provider`.

use clap::{Args, Subcommand};
use tidegate_model::{
    api::{ProviderKind, ProviderView, PutProvider},
    ids::CatalogName,
};

use super::{
    page::{self, PageFlags},
    repeat::RepeatFlags,
    secret_input::SecretInput,
};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::Outcome,
    output::{or_dash, table},
};

/// Model providers.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// Make or change a provider
    Set(Set),
    /// List providers without their keys
    List(PageFlags),
    /// Remove a provider that no model uses
    Delete {
        /// Its name
        name: CatalogName,
    },
}

/// Where the provider is.
#[derive(Debug, Args)]
pub struct Set {
    /// Its name in the catalogue
    name: CatalogName,
    /// The address up to and including /v1
    #[arg(long, value_name = "URL")]
    base_url: String,
    #[command(flatten)]
    api_key: SecretInput,
    /// Calls at once per instance
    #[arg(long, value_name = "N")]
    max_in_flight: Option<u32>,
    /// Calls per minute per instance
    #[arg(long, value_name = "N")]
    rpm: Option<u32>,
    /// Waiting calls per class
    #[arg(long, value_name = "N")]
    max_queue: Option<u32>,
    /// The longest wait for a slot, in milliseconds; 0 is no bound for foreground calls
    #[arg(long, value_name = "MS")]
    queue_timeout_ms: Option<u64>,
    #[command(flatten)]
    repeat: RepeatFlags,
}

impl ProviderCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Admin)?;
        match self {
            Self::Set(set) => {
                let body = PutProvider {
                    kind: ProviderKind::OpenAiCompatible,
                    base_url: set.base_url,
                    api_key: set.api_key.read()?,
                    max_in_flight: set.max_in_flight,
                    rpm: set.rpm,
                    max_queue: set.max_queue,
                    queue_timeout_ms: set.queue_timeout_ms,
                };
                let client = set.repeat.on(&client);
                let view = client.put_provider(&set.name, &body).await?;
                output.show(&view, |view| list(std::slice::from_ref(view)));
            }
            Self::List(page) => {
                let answer = client.providers(&page.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
            }
            Self::Delete { name } => {
                client.delete_provider(&name).await?;
                let answer = serde_json::json!({ "name": name, "deleted": true });
                output.show(&answer, |_| format!("provider {name} is deleted"));
            }
        }
        Ok(Exit::Success)
    }
}

fn list(providers: &[ProviderView]) -> String {
    table(
        [
            "provider",
            "address",
            "key",
            "in flight",
            "per minute",
            "queue",
            "wait ms",
        ],
        providers.iter().map(|provider| {
            [
                provider.name.to_string(),
                provider.base_url.clone(),
                provider.api_key.to_string(),
                or_dash(provider.max_in_flight),
                or_dash(provider.rpm),
                or_dash(provider.max_queue),
                or_dash(provider.queue_timeout_ms),
            ]
        }),
    )
}

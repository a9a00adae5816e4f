//! Flags that switch `dev` and `demo` from the scripted provider to a real endpoint.

use clap::Args;
use secrecy::SecretString;

use crate::{
    dev::seed::ModelSource,
    failure::{Failure, Outcome},
};

/// The variable with the real endpoint's key; no flag, because flags are visible in the list of processes.
pub const API_KEY: &str = "TIDEGATE_LLM_API_KEY";

/// A real model in place of the scripted one.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelFlags {
    /// Use this OpenAI-compatible endpoint (up to and including /v1) [key: env TIDEGATE_LLM_API_KEY]
    #[arg(long, value_name = "URL", requires = "llm_model")]
    llm: Option<String>,
    /// The endpoint's name of the model
    #[arg(long, value_name = "NAME", requires = "llm")]
    llm_model: Option<String>,
}

impl ModelFlags {
    /// Whether a real endpoint is named.
    pub const fn is_real(&self) -> bool {
        self.llm.is_some()
    }

    /// The real endpoint, else the scripted provider that `scripted` starts.
    pub async fn source(
        &self,
        scripted: impl AsyncFnOnce() -> Outcome<String>,
    ) -> Outcome<ModelSource> {
        let (Some(url), Some(model)) = (&self.llm, &self.llm_model) else {
            return Ok(ModelSource::Scripted(scripted().await?));
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Failure::usage(format!("--llm {url} is no http address"))
                .remedy("give the address up to and including /v1, for example https://api.openai.com/v1"));
        }
        Ok(ModelSource::Real {
            url: url.clone(),
            model: model.clone(),
            api_key: std::env::var(API_KEY)
                .ok()
                .filter(|key| !key.is_empty())
                .map(SecretString::from),
        })
    }
}

//! `tidegate run submit`.

use chrono::{DateTime, Utc};
use clap::Args;
use tidegate_client::Client;
use tidegate_model::{
    Capability,
    api::{RunBudget, SubmitRun},
    run::ServiceClass,
};

use super::{follow, needs, one};
use crate::{cli::Context, commands::repeat::RepeatFlags, exit::Exit, failure::Outcome, files};

/// A business task.
#[derive(Debug, Args)]
pub struct Submit {
    /// What the pool must offer
    capability: Capability,
    /// What else the pool must have, JSON or @FILE with it: '{"sandbox": "container"}'
    #[arg(long, value_name = "JSON|@FILE")]
    requirements: Option<String>,
    /// Passed to the worker as it is, JSON, or @FILE with it; numbers are 64-bit integers or doubles. Chat wants a text:
    /// '"hello"'
    #[arg(long, value_name = "JSON|@FILE", default_value = "null")]
    input: String,
    /// standard unless given; only less protection can be asked for
    #[arg(long)]
    service_class: Option<ServiceClass>,
    /// Order within the tenant; only lower than what policy grants
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    priority: Option<i16>,
    /// The run ends as expired at this time
    #[arg(long, value_name = "TIME", value_parser = crate::time::at)]
    deadline: Option<DateTime<Utc>>,
    /// Not before this time
    #[arg(long, value_name = "TIME", value_parser = crate::time::at)]
    run_at: Option<DateTime<Utc>>,
    /// 5 unless the server says otherwise
    #[arg(long, value_name = "N")]
    max_attempts: Option<i32>,
    /// Tokens over all attempts
    #[arg(long, value_name = "N")]
    budget_tokens: Option<i64>,
    /// Time under a lease over all attempts, in milliseconds
    #[arg(long, value_name = "MS")]
    budget_ms: Option<i64>,
    /// The user it is for; another than the key's own needs the scope act_for_users
    #[arg(long)]
    user: Option<String>,
    #[command(flatten)]
    repeat: RepeatFlags,
    /// Follow the run to its end
    #[arg(long)]
    wait: bool,
}

impl Submit {
    /// Runs it.
    pub async fn run(self, context: &Context, client: &Client) -> Outcome {
        let bounded = self.budget_tokens.is_some() || self.budget_ms.is_some();
        let body = SubmitRun {
            capability: self.capability,
            requirements: needs(self.requirements.as_deref())?,
            input: files::input(&self.input)?,
            service_class: self.service_class,
            priority: self.priority,
            deadline: self.deadline,
            run_at: self.run_at,
            max_attempts: self.max_attempts,
            budget: bounded.then_some(RunBudget {
                tokens: self.budget_tokens,
                execution_ms: self.budget_ms,
            }),
            user: self.user,
        };
        let key = self.repeat.key();
        let run = client.submit_run(&body, key).await?;
        if self.wait {
            context.output.note(&format!("run {}", run.run_id));
            return follow(context.output, client, run.run_id, 0).await;
        }
        context.output.show(&run, one);
        Ok(Exit::Success)
    }
}

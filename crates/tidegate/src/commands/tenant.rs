//! `tidegate tenant`.

use clap::{Args, Subcommand};
use tidegate_client::Client;
use tidegate_model::{
    TenantId,
    api::{CreateTenant, LimitsView, PutTenantOverride, TenantView},
    principal::TenantState,
};

use super::{
    page::{self, PageFlags},
    repeat::RepeatFlags,
};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::{Failure, Outcome},
    output::{or_dash, table, time},
};

/// Tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Make a tenant; its name is immutable and never used again
    Create {
        /// For example acme
        tenant: TenantId,
        /// A name for people
        #[arg(long)]
        display_name: Option<String>,
        #[command(flatten)]
        repeat: RepeatFlags,
    },
    /// List tenants
    List(PageFlags),
    /// Show one tenant
    Get {
        /// The tenant
        tenant: TenantId,
    },
    /// Accept nothing new from a tenant; what runs is drained
    Suspend {
        /// The tenant
        tenant: TenantId,
    },
    /// Let a suspended tenant work again
    Resume {
        /// The tenant
        tenant: TenantId,
    },
    /// Erase all content of a tenant; this cannot be undone
    Delete(Delete),
    /// Give a tenant its tier and limits of its own, in place of what it had
    Override(Override),
    /// Effective limits with source and scope
    Limits {
        /// The tenant
        tenant: TenantId,
    },
}

/// What is left out comes from the tier.
#[derive(Debug, Args)]
pub struct Override {
    /// The tenant
    tenant: TenantId,
    /// A tier of the table tenant_resource_tiers; standard unless given
    #[arg(long)]
    tier: Option<String>,
    /// Foreground runs at once, 1 to 10,000
    #[arg(long, value_name = "N")]
    foreground: Option<i32>,
    /// Background runs at once, 1 to 64
    #[arg(long, value_name = "N")]
    background: Option<i32>,
    /// Share beside other tenants, 1 to 1,000
    #[arg(long, value_name = "N")]
    weight: Option<i32>,
    /// Take all of its own away: everything comes from the tier standard again
    #[arg(long, conflicts_with_all = ["tier", "foreground", "background", "weight"])]
    clear: bool,
}

/// Deleting wants the name twice.
#[derive(Debug, Args)]
pub struct Delete {
    /// The tenant
    tenant: TenantId,
    /// The tenant's name again: all its content is erased
    #[arg(long, value_name = "TENANT")]
    confirm: Option<TenantId>,
}

impl Override {
    /// Gives or clears the override; answers the limits that now hold.
    async fn give(self, client: &Client) -> Outcome<LimitsView> {
        if self.clear {
            client.delete_tenant_override(&self.tenant).await?;
            return Ok(client.tenant_limits(&self.tenant).await?);
        }
        let body = PutTenantOverride {
            tier: self.tier,
            foreground_runs_max: self.foreground,
            background_runs_max: self.background,
            weight: self.weight,
        };
        if body == PutTenantOverride::default() {
            return Err(Failure::usage(
                "an override replaces what the tenant had, and none is given",
            )
            .remedy(
                "give at least one of --tier, --foreground, --background and --weight, or --clear",
            ));
        }
        Ok(client.put_tenant_override(&self.tenant, &body).await?)
    }
}

impl TenantCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Admin)?;
        let view = match self {
            Self::Create {
                tenant,
                display_name,
                repeat,
            } => {
                let body = CreateTenant {
                    tenant,
                    display_name,
                };
                repeat.on(&client).create_tenant(&body).await?
            }
            Self::List(page) => {
                let answer = client.tenants(&page.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
                return Ok(Exit::Success);
            }
            Self::Get { tenant } => client.tenant(&tenant).await?,
            Self::Suspend { tenant } => {
                client
                    .set_tenant_state(&tenant, TenantState::Suspended)
                    .await?
            }
            Self::Resume { tenant } => {
                client
                    .set_tenant_state(&tenant, TenantState::Active)
                    .await?
            }
            Self::Delete(delete) => {
                if delete.confirm.as_ref() != Some(&delete.tenant) {
                    let tenant = &delete.tenant;
                    return Err(Failure::usage(format!(
                        "deleting {tenant} erases all its content and cannot be undone"
                    ))
                    .remedy(format!(
                        "say so: `tidegate tenant delete {tenant} --confirm {tenant}`"
                    )));
                }
                client
                    .set_tenant_state(&delete.tenant, TenantState::Deleted)
                    .await?
            }
            Self::Override(own) => {
                output.show(&own.give(&client).await?, show_limits);
                return Ok(Exit::Success);
            }
            Self::Limits { tenant } => {
                let limits = client.tenant_limits(&tenant).await?;
                output.show(&limits, show_limits);
                return Ok(Exit::Success);
            }
        };
        output.show(&view, |view| list(std::slice::from_ref(view)));
        Ok(Exit::Success)
    }
}

fn list(tenants: &[TenantView]) -> String {
    table(
        ["tenant", "name", "state", "made"],
        tenants.iter().map(|tenant| {
            [
                tenant.tenant.to_string(),
                or_dash(tenant.display_name.as_deref()),
                tenant.state.to_string(),
                time(tenant.created_at),
            ]
        }),
    )
}

/// Limits for people.
pub fn show_limits(view: &LimitsView) -> String {
    table(
        ["limit", "value", "source", "scope"],
        view.limits.iter().map(|limit| {
            [
                limit.name.clone(),
                if limit.value.is_null() {
                    "unlimited".to_owned()
                } else {
                    limit.value.to_string()
                },
                limit.source.clone(),
                limit.scope.to_string(),
            ]
        }),
    )
}

//! `tidegate ledger`.

use clap::Subcommand;
use tidegate_model::{
    api::{HolderView, LedgerAudit, ResourceView},
    contracts::ResourceName,
};

use super::page::{self, PageFlags};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::Outcome,
    output::{or_dash, table, time},
};

/// The reservation ledger.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Bound a resource, or change how much there is of it; less than is in use takes nothing away
    Set {
        /// pool/POOL, sandbox/POOL, model/MODEL, tool/DOMAIN/NAME, tenant/TENANT/slots, tenant/TENANT/tokens or shared/NAME
        name: ResourceName,
        /// How much there is of it
        capacity: i64,
    },
    /// Show a resource and who holds it
    Get {
        /// Its name
        name: ResourceName,
    },
    /// List resources with how much of them is held
    List(PageFlags),
    /// Remove a resource: it admits nothing new, and goes with its last grant
    Remove {
        /// Its name
        name: ResourceName,
    },
    /// Lay every counter beside the sum of what is held; exits with 1 on any difference
    Verify,
}

impl LedgerCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Admin)?;
        match self {
            Self::Set { name, capacity } => {
                let view = client.put_resource(&name, capacity).await?;
                output.show(&view, |view| list(std::slice::from_ref(view)));
            }
            Self::Get { name } => {
                let view = client.resource(&name).await?;
                let holders = client.resource_holders(&name).await?;
                let answer = serde_json::json!({ "resource": view, "holders": holders });
                output.show(&answer, |_| {
                    format!(
                        "{}\n\n{}",
                        list(std::slice::from_ref(&view)),
                        held_by(&holders)
                    )
                });
            }
            Self::List(page) => {
                let answer = client.resources(&page.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
            }
            Self::Remove { name } => {
                let view = client.delete_resource(&name).await?;
                output.show(&view, |view| {
                    if view.in_use == 0 {
                        format!("{} is removed", view.resource)
                    } else {
                        format!(
                            "{} admits nothing new; it goes when the {} that are held are given back",
                            view.resource, view.in_use
                        )
                    }
                });
            }
            Self::Verify => {
                let audit = client.audit_ledger().await?;
                output.show(&audit, verdict);
                if !audit.balanced {
                    return Ok(Exit::Failed);
                }
            }
        }
        Ok(Exit::Success)
    }
}

fn list(resources: &[ResourceView]) -> String {
    table(
        ["resource", "capacity", "in use", "free", "state"],
        resources.iter().map(|resource| {
            let state = match (resource.removed, resource.over_capacity_since) {
                (true, _) => "goes with its last grant".to_owned(),
                (false, Some(since)) => format!("OVER_CAPACITY since {}", time(since)),
                (false, None) => String::new(),
            };
            [
                resource.resource.to_string(),
                resource.capacity.to_string(),
                resource.in_use.to_string(),
                resource.free.to_string(),
                state,
            ]
        }),
    )
}

fn held_by(holders: &[HolderView]) -> String {
    table(
        ["tenant", "admission", "run", "amount", "since"],
        holders.iter().map(|holder| {
            [
                holder.tenant.to_string(),
                or_dash(holder.admission_id),
                or_dash(holder.run_id),
                holder.amount.to_string(),
                time(holder.since),
            ]
        }),
    )
}

fn verdict(audit: &LedgerAudit) -> String {
    let looked = format!(
        "{} resources, {} holders, version {}",
        audit.resources, audit.holders, audit.ledger_version
    );
    let mut lines = Vec::new();
    for one in &audit.differences {
        lines.push(format!(
            "DIFFERENCE {}: the counter says {}, {} are held",
            one.resource, one.counted, one.held
        ));
    }
    for one in &audit.over_capacity {
        let since = one
            .over_capacity_since
            .map_or_else(String::new, |since| format!(" since {}", time(since)));
        lines.push(format!(
            "OVER_CAPACITY{since} {}: {} of {} are held",
            one.resource, one.in_use, one.capacity
        ));
    }
    lines.push(if audit.balanced {
        format!("the ledger adds up ({looked})")
    } else {
        format!("the ledger does not add up ({looked})")
    });
    lines.join("\n")
}

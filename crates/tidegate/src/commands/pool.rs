//! `tidegate pool`.

use std::path::PathBuf;

use clap::Subcommand;
use tidegate_model::{
    Capability, PoolId,
    api::{PolicyGeneration, PoolView, SetEpoch, SetPolicyGeneration},
    contracts::{CapabilityDescriptor, Health},
    pool_reason::PoolReason,
};

use super::page::{self, PageFlags};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::Outcome,
    files,
    output::{Output, or_dash, table},
};

/// Execution pools.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Publish an immutable descriptor (capability-descriptor.v1, JSON)
    Publish {
        /// The descriptor's file
        file: PathBuf,
        /// Put it in force at once
        #[arg(long)]
        activate: bool,
    },
    /// Print a descriptor to begin with: valid for a while, offering what you name
    Template {
        /// The pool
        pool: PoolId,
        /// What it offers
        #[arg(required = true)]
        capabilities: Vec<Capability>,
        /// Its epoch; raised with every descriptor of the pool
        #[arg(long, default_value_t = 1)]
        epoch: i64,
        /// How long it is valid, its evidence of health included
        #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3660))]
        days: u32,
        /// The policy generation under which it was vetted
        #[arg(long, value_name = "N", default_value_t = 1)]
        policy_generation: i64,
    },
    /// Put a published epoch in force
    Activate {
        /// The pool
        pool: PoolId,
        /// The epoch
        epoch: i64,
        /// The epoch in force as you know it; what the server says now unless given
        #[arg(long, value_name = "EPOCH")]
        expected: Option<i64>,
        /// An epoch whose attempts may end what they have begun, instead of those that drain already and the one in force;
        /// may be repeated
        #[arg(long, value_name = "EPOCH")]
        drain: Vec<i64>,
        /// Let no other epoch's attempts end: they are told to stop and go back to the queue
        #[arg(long, conflicts_with = "drain")]
        drain_none: bool,
    },
    /// Take an epoch away for good: its attempts are told to stop, and nothing uses it again
    Revoke {
        /// The pool
        pool: PoolId,
        /// The epoch
        epoch: i64,
    },
    /// Show the policy generation in force, or raise it: descriptors of any other one serve nothing
    Generation {
        /// Raise it to this; needs a super_admin's key
        #[arg(long, value_name = "N")]
        raise: Option<i64>,
        /// The generation in force as you know it; what the server says now unless given
        #[arg(long, value_name = "N", requires = "raise")]
        expected: Option<i64>,
    },
    /// List pools with what they offer
    List(PageFlags),
}

impl PoolCommand {
    /// Only an operator may raise the generation.
    const fn who(&self) -> Who {
        match self {
            Self::Generation { raise: Some(_), .. } => Who::Admin,
            _ => Who::Controller,
        }
    }

    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        if let Self::Template {
            pool,
            capabilities,
            epoch,
            days,
            policy_generation,
        } = self
        {
            let descriptor = CapabilityDescriptor {
                policy_generation,
                ..CapabilityDescriptor::new(pool, epoch, capabilities, healthy_for(days))
            };
            output.show(&descriptor, |descriptor| {
                serde_json::to_string_pretty(descriptor).unwrap_or_default()
            });
            return Ok(Exit::Success);
        }
        let client = context.client(self.who())?;
        match self {
            Self::Template { .. } => {}
            Self::Publish { file, activate } => {
                let descriptor = read_descriptor(&file)?;
                let published = client.publish_descriptor(&descriptor).await?;
                if activate {
                    let (pool, epoch) = (descriptor.pool_id, descriptor.descriptor_epoch);
                    let view = activate_epoch(&client, &pool, epoch, None, None).await?;
                    remark(output, &view);
                    output.show(&view, |view| list(std::slice::from_ref(view)));
                } else {
                    output.show(&published, |published| {
                        format!(
                            "{} epoch {} is published ({}); `tidegate pool activate {0} {1}` puts it in force",
                            descriptor.pool_id, published.epoch, published.digest
                        )
                    });
                }
            }
            Self::Activate {
                pool,
                epoch,
                expected,
                drain,
                drain_none,
            } => {
                let draining = (drain_none || !drain.is_empty()).then_some(drain);
                let view = activate_epoch(&client, &pool, epoch, expected, draining).await?;
                remark(output, &view);
                output.show(&view, |view| list(std::slice::from_ref(view)));
            }
            Self::Revoke { pool, epoch } => {
                let view = client.revoke_pool_epoch(&pool, epoch).await?;
                output.show(&view, |view| list(std::slice::from_ref(view)));
            }
            Self::Generation { raise, expected } => {
                let generation = generation(&client, raise, expected).await?;
                output.show(&generation, |generation| generation.active.to_string());
            }
            Self::List(page) => {
                let answer = client.pools(&page.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
            }
        }
        Ok(Exit::Success)
    }
}

/// The policy generation in force, after it was raised where that is asked for.
async fn generation(
    client: &tidegate_client::Client,
    raise: Option<i64>,
    expected: Option<i64>,
) -> Outcome<PolicyGeneration> {
    let now = match (raise, expected) {
        (Some(_), Some(expected)) => PolicyGeneration { active: expected },
        _ => client.policy_generation().await?,
    };
    let Some(active) = raise else { return Ok(now) };
    let body = SetPolicyGeneration {
        expected: now.active,
        active,
    };
    Ok(client.set_policy_generation(&body).await?)
}

async fn activate_epoch(
    client: &tidegate_client::Client,
    pool: &PoolId,
    active: i64,
    expected: Option<i64>,
    draining: Option<Vec<i64>>,
) -> Outcome<PoolView> {
    let expected = match expected {
        Some(expected) => Some(expected),
        None => find(client, pool)
            .await?
            .and_then(|view| view.active_descriptor_epoch),
    };
    let body = SetEpoch {
        expected,
        active,
        draining,
    };
    Ok(client.set_pool_epoch(pool, &body).await?)
}

/// What to say to whoever lets a worker into this pool: until a descriptor of it is in force, it is given nothing.
pub(super) async fn not_in_force(
    client: &tidegate_client::Client,
    pool: &PoolId,
) -> Outcome<Option<String>> {
    let missing = match find(client, pool).await? {
        None => {
            "does not exist yet: publish it with `tidegate pool publish FILE --activate`".to_owned()
        }
        Some(view) if view.active_descriptor_epoch.is_none() => {
            format!(
                "has no descriptor in force: `tidegate pool activate {pool} EPOCH` puts one there"
            )
        }
        Some(_) => return Ok(None),
    };
    Ok(Some(format!(
        "pool {pool} {missing}; until then its workers are given no runs"
    )))
}

async fn find(client: &tidegate_client::Client, pool: &PoolId) -> Outcome<Option<PoolView>> {
    let mut query = PageFlags::default().query();
    loop {
        let page = client.pools(&query).await?;
        if let Some(found) = page.items.into_iter().find(|view| view.pool_id == *pool) {
            return Ok(Some(found));
        }
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(None),
        }
    }
}

fn codes(reasons: &[PoolReason], between: &str) -> String {
    let codes: Vec<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
    codes.join(between)
}

/// An epoch may be put in force that serves nothing, which nobody refuses: what closes it may be about to change.
fn remark(output: Output, view: &PoolView) {
    if !view.closed_by.is_empty() {
        output.warn(&format!(
            "pool {} serves nothing: {}; docs/codes/NO_ELIGIBLE_POOL.md says what would make it serve",
            view.pool_id,
            codes(&view.closed_by, ", ")
        ));
    }
}

/// Evidence from now on; the server's clock decides later whether it still counts.
fn healthy_for(days: u32) -> Health {
    let checked_at = crate::time::now();
    Health {
        checked_at,
        valid_until: checked_at + chrono::Duration::days(i64::from(days)),
    }
}

fn read_descriptor(file: &std::path::Path) -> Outcome<CapabilityDescriptor> {
    files::json(
        "<FILE>",
        file,
        "capability-descriptor.v1",
        "`tidegate pool template POOL CAPABILITY` prints one to begin with; docs/how-to/add-a-pool.md lists the members",
    )
}

fn list(pools: &[PoolView]) -> String {
    table(
        [
            "pool",
            "epoch in force",
            "serves",
            "offers",
            "published epochs",
            "draining",
            "revoked",
            "workers",
            "running",
        ],
        pools.iter().map(|pool| {
            let offers = pool.descriptor.as_ref().map_or_else(String::new, |found| {
                let names: Vec<&str> = found.capabilities.iter().map(AsRef::as_ref).collect();
                names.join(" ")
            });
            let numbers = |epochs: &[i64]| {
                let epochs: Vec<String> = epochs.iter().map(ToString::to_string).collect();
                epochs.join(" ")
            };
            let epochs: Vec<i64> = pool.epochs.iter().map(|epoch| epoch.epoch).collect();
            [
                pool.pool_id.to_string(),
                or_dash(pool.active_descriptor_epoch),
                if pool.closed_by.is_empty() {
                    "yes".to_owned()
                } else {
                    codes(&pool.closed_by, " ")
                },
                offers,
                numbers(&epochs),
                numbers(&pool.draining_epochs),
                numbers(&pool.revoked_epochs),
                pool.workers.len().to_string(),
                pool.running.to_string(),
            ]
        }),
    )
}

//! `tidegate pool`.

use std::path::PathBuf;

use clap::Subcommand;
use tidegate_model::{
    PoolId,
    api::{PoolView, SetEpoch},
    contracts::CapabilityDescriptor,
};

use super::page::{self, PageFlags};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::Outcome,
    files,
    output::{or_dash, table},
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
    /// Put a published epoch in force
    Activate {
        /// The pool
        pool: PoolId,
        /// The epoch
        epoch: i64,
        /// The epoch in force as you know it; what the server says now unless given
        #[arg(long, value_name = "EPOCH")]
        expected: Option<i64>,
    },
    /// List pools with what they offer
    List(PageFlags),
}

impl PoolCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Controller)?;
        match self {
            Self::Publish { file, activate } => {
                let descriptor = read_descriptor(&file)?;
                let published = client.publish_descriptor(&descriptor).await?;
                if activate {
                    let (pool, epoch) = (descriptor.pool_id, descriptor.descriptor_epoch);
                    let view = activate_epoch(&client, &pool, epoch, None).await?;
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
            } => {
                let view = activate_epoch(&client, &pool, epoch, expected).await?;
                output.show(&view, |view| list(std::slice::from_ref(view)));
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

async fn activate_epoch(
    client: &tidegate_client::Client,
    pool: &PoolId,
    active: i64,
    expected: Option<i64>,
) -> Outcome<PoolView> {
    let expected = match expected {
        Some(expected) => Some(expected),
        None => find(client, pool)
            .await?
            .and_then(|view| view.active_descriptor_epoch),
    };
    let body = SetEpoch { expected, active };
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

fn read_descriptor(file: &std::path::Path) -> Outcome<CapabilityDescriptor> {
    files::json(
        "<FILE>",
        file,
        "capability-descriptor.v1",
        "for example {\"contract\":\"capability-descriptor.v1\",\"poolId\":\"gpu\",\"descriptorEpoch\":1,\
         \"capabilities\":[\"chat\"]}",
    )
}

fn list(pools: &[PoolView]) -> String {
    table(
        [
            "pool",
            "epoch in force",
            "offers",
            "published epochs",
            "running",
        ],
        pools.iter().map(|pool| {
            let offers = pool.descriptor.as_ref().map_or_else(String::new, |found| {
                let names: Vec<&str> = found.capabilities.iter().map(AsRef::as_ref).collect();
                names.join(" ")
            });
            let epochs: Vec<String> = pool
                .epochs
                .iter()
                .map(|epoch| epoch.epoch.to_string())
                .collect();
            [
                pool.pool_id.to_string(),
                or_dash(pool.active_descriptor_epoch),
                offers,
                epochs.join(" "),
                pool.running.to_string(),
            ]
        }),
    )
}

//! `tidegate grant`.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_grants::{Bound, Claims, GrantProblem, TOKEN_MAX_BYTES, Verifier, read_unverified};
use tidegate_model::{
    Fence,
    api::PublishedGrantKeys,
    contracts::{AdmissionGrant, GrantKeyId, ResourceName},
};

use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::{Failure, Outcome},
    files,
    output::{facts, time},
};

/// Grants and call leases.
#[derive(Debug, Subcommand)]
pub enum GrantCommand {
    /// Show what a grant or a call lease says, and whether the published keys prove it; exit code 1 where they do not, or where
    /// it has ended. It is sent nowhere
    Inspect(Inspect),
}

/// Which grant, by which keys.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The grant; better @FILE, or - for standard input, because arguments are visible in the list of processes
    #[arg(value_name = "TOKEN|@FILE|-")]
    token: String,
    /// A file with the answer of /.well-known/tidegate-keys, to check without a server; the server's own unless given
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

/// What a block narrows to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Narrowed {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ResourceName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_amount: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<chrono::DateTime<chrono::Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_fence: Option<Fence>,
}

/// What a grant says, and whether it is so.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Inspected {
    key_id: GrantKeyId,
    grant: AdmissionGrant,
    narrowed: Vec<Narrowed>,
    sealed: bool,
    ends_at: chrono::DateTime<chrono::Utc>,
    good: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A token as it is given: itself, in a file, or on standard input.
pub(super) fn token_of(given: &str) -> Outcome<String> {
    let bytes = if given == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            // One byte more than is good shows that there is too much.
            .take(TOKEN_MAX_BYTES as u64 + 3)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::caused(Exit::Usage, "cannot read the grant", &error))?;
        bytes
    } else if let Some(path) = given.strip_prefix('@') {
        files::bytes("TOKEN", Path::new(path))?
    } else {
        given.to_owned().into_bytes()
    };
    String::from_utf8(bytes)
        .map(|text| text.trim().to_owned())
        .map_err(|_| Failure::usage("TOKEN: it is no text").remedy("a grant is base64 for URLs"))
}

impl GrantCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let Self::Inspect(inspect) = self;
        let token = token_of(&inspect.token)?;
        let claims = read_unverified(&token).map_err(|problem| {
            Failure::failed(problem.to_string())
                .remedy("give the whole grant, as it was handed out, and nothing else")
        })?;
        let keys = inspect.keys(context).await?;
        let problem = check(&keys, &token)?;
        let inspected = Inspected::new(claims, problem.as_ref());
        let exit = if inspected.good {
            Exit::Success
        } else {
            Exit::Failed
        };
        context.output.show(&inspected, Inspected::shown);
        Ok(exit)
    }
}

/// Why the keys do not prove it, or why it is of no use any more.
fn check(keys: &PublishedGrantKeys, token: &str) -> Outcome<Option<GrantProblem>> {
    let verifier = Verifier::new(&keys.keys).map_err(|problem| {
        Failure::failed(problem.to_string()).remedy("read the keys from the server again")
    })?;
    let now = crate::time::now();
    Ok(match verifier.signatures(token, now) {
        Err(problem) => Some(problem),
        Ok(proven) => {
            let at = proven.claims().ends_at();
            (now >= at).then_some(GrantProblem::Expired { at })
        }
    })
}

impl Inspect {
    async fn keys(&self, context: &Context) -> Outcome<PublishedGrantKeys> {
        match &self.keys {
            None => Ok(context.client(Who::Anyone)?.published_grant_keys().await?),
            Some(path) => files::json(
                "--keys",
                path,
                "list of published keys",
                "save what the server answers at /.well-known/tidegate-keys",
            ),
        }
    }
}

impl Inspected {
    fn new(claims: Claims, problem: Option<&GrantProblem>) -> Self {
        Self {
            ends_at: claims.ends_at(),
            key_id: claims.key,
            grant: claims.grant,
            sealed: claims.sealed,
            narrowed: claims.narrowed.into_iter().map(narrowed).collect(),
            good: problem.is_none(),
            problem: problem.map(ToString::to_string),
        }
    }

    fn shown(&self) -> String {
        let grant = &self.grant;
        let mut lines = vec![facts([
            ("admission", Some(grant.admission_id.to_string())),
            ("tenant", Some(grant.tenant_id.to_string())),
            ("pool", Some(grant.pool_id.to_string())),
            ("epoch", Some(grant.descriptor_epoch.to_string())),
            ("generation", Some(grant.policy_generation.to_string())),
            ("fence", Some(grant.fence.to_string())),
            ("run", grant.run_id.map(|run| run.to_string())),
            ("issued", grant.issued_at.map(time)),
            ("ends", Some(time(self.ends_at))),
            ("key", Some(self.key_id.to_string())),
        ])];
        for held in &grant.grants {
            lines.push(format!("grants {} of {}", held.amount, held.resource));
        }
        lines.extend(self.narrowed.iter().map(Narrowed::shown));
        if self.sealed {
            lines.push("sealed: it cannot be narrowed further".to_owned());
        }
        lines.push(match &self.problem {
            None => "good: the published keys prove it".to_owned(),
            Some(problem) => format!("not good: {problem}"),
        });
        lines.join("\n")
    }
}

fn narrowed(bound: Bound) -> Narrowed {
    let terms = bound.terms;
    Narrowed {
        id: bound.id.to_string(),
        resource: terms.resource,
        max_amount: terms.max_amount,
        max_calls: terms.max_calls,
        expires_at: terms.expires_at,
        lease_fence: terms.lease_fence,
    }
}

impl Narrowed {
    fn shown(&self) -> String {
        let parts = [
            self.resource.as_ref().map(|only| format!("to {only}")),
            self.max_amount.map(|max| format!("to {max} in all")),
            self.max_calls.map(|max| format!("to {max} calls")),
            self.expires_at.map(|at| format!("until {}", time(at))),
            self.lease_fence
                .map(|fence| format!("for the lease {fence}")),
        ];
        let said: Vec<String> = parts.into_iter().flatten().collect();
        format!("narrowed {}", said.join(", "))
    }
}

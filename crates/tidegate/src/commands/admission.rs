//! `tidegate admission`.

use clap::{Args, Subcommand};
use tidegate_model::{
    AdmissionId, Capability, Fence,
    api::{
        AdmissionExplanation, AdmissionRequirements, AdmissionView, AdmitRequest, EndPhase,
        ExplainAdmission, GrantVerdict, ReleaseAdmission, RenewAdmission, Settlement, VerifyGrant,
    },
    contracts::{GrantId, GrantToken, ResourceName},
};

use super::{grant::token_of, run::needs};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::{Failure, Outcome},
    output::{or_dash, table, time},
};

/// Admissions.
#[derive(Debug, Subcommand)]
pub enum AdmissionCommand {
    /// Reserve everything that a piece of work takes, or nothing
    Admit(Admit),
    /// Say what an admission would meet; reserves nothing
    Explain(Wanted),
    /// Show an admission
    Get {
        /// The admission
        id: AdmissionId,
    },
    /// Give an admission more time
    Renew {
        /// The admission
        id: AdmissionId,
        /// The fence it was answered with
        #[arg(long)]
        fence: Fence,
        /// How long from now on, in milliseconds; as at the admission unless given
        #[arg(long, value_name = "MS")]
        ttl_ms: Option<i64>,
    },
    /// End a phase: settle, give back what is no longer needed, admit the next phase
    Phase(Phase),
    /// Ask whether a grant of an admission may be consumed now; exits with 1 where it may not
    Verify {
        /// The admission
        id: AdmissionId,
        /// The grant; better @FILE, or - for standard input, because arguments are visible in the list of processes
        #[arg(value_name = "TOKEN|@FILE|-")]
        grant: String,
        /// What is to be consumed
        #[arg(long)]
        resource: ResourceName,
        /// How much in all
        #[arg(long, default_value_t = 1)]
        amount: u64,
    },
    /// Give an admission back
    Release {
        /// The admission
        id: AdmissionId,
        /// The fence it was answered with
        #[arg(long)]
        fence: Fence,
        /// What was really used of a grant, as PLACE=AMOUNT; may be repeated
        #[arg(long, value_name = "PLACE=AMOUNT", value_parser = settlement)]
        settle: Vec<(u16, i64)>,
    },
}

/// What is asked for.
#[derive(Debug, Args)]
pub struct Wanted {
    /// What the pool has to offer
    capability: Capability,
    /// What else it has to have, and what is taken: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    requirements: Option<String>,
}

/// An admission.
#[derive(Debug, Args)]
pub struct Admit {
    #[command(flatten)]
    wanted: Wanted,
    /// Its id; a new one unless given
    #[arg(long)]
    id: Option<AdmissionId>,
    /// How long it is held without being renewed, in milliseconds
    #[arg(long, value_name = "MS")]
    ttl_ms: Option<i64>,
    /// Only if the ledger has this version
    #[arg(long, value_name = "VERSION")]
    if_version: Option<i64>,
}

/// The end of a phase.
#[derive(Debug, Args)]
pub struct Phase {
    /// The admission
    id: AdmissionId,
    /// The fence it was answered with
    #[arg(long)]
    fence: Fence,
    /// What was really used of a grant, as PLACE=AMOUNT; may be repeated
    #[arg(long, value_name = "PLACE=AMOUNT", value_parser = settlement)]
    settle: Vec<(u16, i64)>,
    /// The place of a grant that is no longer needed; may be repeated
    #[arg(long, value_name = "PLACE")]
    release: Vec<u16>,
    /// The capability of the next phase
    #[arg(long, value_name = "CAPABILITY")]
    next: Option<Capability>,
    /// What else the next phase needs: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", requires = "next")]
    requirements: Option<String>,
}

impl AdmissionCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Coordinator)?;
        let view = match self {
            Self::Verify {
                id,
                grant,
                resource,
                amount,
            } => {
                let body = VerifyGrant {
                    grant: GrantToken(token_of(&grant)?),
                    resource,
                    amount,
                    calls: 0,
                };
                let verdict = client.verify_grant(id, &body).await?;
                output.show(&verdict, verified);
                return Ok(if verdict.valid {
                    Exit::Success
                } else {
                    Exit::Failed
                });
            }
            Self::Explain(wanted) => {
                let body = ExplainAdmission {
                    requirements: wanted.requirements()?,
                };
                let answer = client.explain_admission(&body).await?;
                output.show(&answer, explained);
                return Ok(Exit::Success);
            }
            Self::Admit(admit) => {
                let body = AdmitRequest {
                    admission_id: admit.id.unwrap_or_default(),
                    requirements: admit.wanted.requirements()?,
                    ttl_ms: admit.ttl_ms,
                    if_ledger_version: admit.if_version,
                };
                client.admit(&body).await?
            }
            Self::Get { id } => client.admission(id).await?,
            Self::Renew { id, fence, ttl_ms } => {
                client
                    .renew_admission(id, &RenewAdmission { fence, ttl_ms })
                    .await?
            }
            Self::Phase(phase) => client.end_phase(phase.id, &phase.body()?).await?,
            Self::Release { id, fence, settle } => {
                let settle = settlements(id, &settle);
                client
                    .release_admission(id, &ReleaseAdmission { fence, settle })
                    .await?
            }
        };
        output.show(&view, shown);
        Ok(Exit::Success)
    }
}

impl Wanted {
    fn requirements(self) -> Outcome<AdmissionRequirements> {
        Ok(AdmissionRequirements {
            capability: self.capability,
            needs: needs(self.requirements.as_deref())?.unwrap_or_default(),
        })
    }
}

impl Phase {
    fn body(self) -> Outcome<EndPhase> {
        let next = match self.next {
            None => None,
            Some(capability) => Some(AdmissionRequirements {
                capability,
                needs: needs(self.requirements.as_deref())?.unwrap_or_default(),
            }),
        };
        if next.is_none() && self.settle.is_empty() && self.release.is_empty() {
            return Err(Failure::usage("the phase changes nothing")
                .remedy("give --settle, --release or --next"));
        }
        let place = |index: &u16| GrantId {
            admission: self.id,
            index: *index,
        };
        Ok(EndPhase {
            fence: self.fence,
            settle: settlements(self.id, &self.settle),
            release: self.release.iter().map(place).collect(),
            next,
        })
    }
}

fn settlement(text: &str) -> Result<(u16, i64), String> {
    let parts = text.split_once('=').and_then(|(place, amount)| {
        Some((place.parse::<u16>().ok()?, amount.parse::<i64>().ok()?))
    });
    parts.ok_or_else(|| "expected PLACE=AMOUNT, for example 0=512".to_owned())
}

fn settlements(admission: AdmissionId, given: &[(u16, i64)]) -> Vec<Settlement> {
    let all = given.iter().map(|&(index, amount)| Settlement {
        grant_id: GrantId { admission, index },
        amount,
    });
    all.collect()
}

fn verified(verdict: &GrantVerdict) -> String {
    match (&verdict.reason, &verdict.detail) {
        _ if verdict.valid => format!("it may be consumed until {}", time(verdict.valid_until)),
        (Some(reason), Some(detail)) => format!("it may not be consumed: {detail} ({reason})"),
        _ => "it may not be consumed".to_owned(),
    }
}

fn shown(view: &AdmissionView) -> String {
    let until = match (view.ended_at, view.expires_at) {
        (Some(at), _) => format!(
            "ended {} ({})",
            time(at),
            or_dash(
                view.end_reason
                    .map(tidegate_model::admission::EndReason::as_str)
            )
        ),
        (None, Some(at)) => format!("until {}", time(at)),
        (None, None) => String::new(),
    };
    let head = format!(
        "{} {} in pool {} (epoch {}), fence {}, {until}",
        view.admission_id,
        view.state.as_str(),
        view.pool_id,
        view.descriptor_epoch,
        view.fence,
    );
    if view.grants.is_empty() {
        return format!("{head}\nit holds nothing that has a bound");
    }
    let grants = table(
        ["place", "resource", "amount", "state", "used"],
        view.grants.iter().map(|grant| {
            [
                grant.grant_id.index.to_string(),
                grant.resource.to_string(),
                grant.amount.to_string(),
                grant.state.as_str().to_owned(),
                match grant.settled {
                    Some(used) if grant.overuse => format!("{used} (overuse)"),
                    used => or_dash(used),
                },
            ]
        }),
    );
    format!("{head}\n{grants}")
}

fn explained(answer: &AdmissionExplanation) -> String {
    let head = match (answer.code, &answer.nearest) {
        (None, Some(pool)) => format!("would be admitted to pool {pool}"),
        (None, None) => "would be admitted".to_owned(),
        (Some(code), _) => format!("would be refused: {code}"),
    };
    let pools = table(
        ["pool", "admits", "blocked by", "short of"],
        answer.pools.iter().map(|pool| {
            let reasons: Vec<&str> = pool.blocked_by.iter().map(|one| one.as_str()).collect();
            let short: Vec<String> = pool
                .short
                .iter()
                .map(|one| format!("{} ({} of {} free)", one.resource, one.free, one.capacity))
                .collect();
            [
                pool.pool_id.to_string(),
                if pool.admits { "yes" } else { "no" }.to_owned(),
                reasons.join(" "),
                short.join(", "),
            ]
        }),
    );
    let remedy = answer
        .remedy
        .as_ref()
        .map_or_else(String::new, |remedy| format!("\n{remedy}"));
    format!(
        "{head}\n{pools}{remedy}\nledger version {}",
        answer.ledger_version
    )
}

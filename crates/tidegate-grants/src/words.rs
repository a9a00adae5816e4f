//! The words of a grant. The block that Tidegate signs:
//!
//! ```text
//! tidegate_grant(1);                            // the version of these words
//! admission("adm_…"); tenant("acme"); pool("builtin");
//! descriptor_epoch(3); policy_generation(1); fence(1, 42);
//! grant(0, "pool/builtin", 1);                  // one for each resource: place, name, amount
//! run("run_…"); issued(2026-…Z);                // where there is one
//! expires(2026-…Z);
//! check if time($t), $t < 2026-…Z;              // the same time
//! check if known_fence($g, $n), $g < 1 or known_fence(1, $n), $n <= 42;
//! ```
//!
//! A block that narrows it has at most one of each of these, and nothing else:
//!
//! ```text
//! check if resource("tool/crm/search");
//! check if amount($n), $n <= 5;
//! check if calls($n), $n <= 10;
//! check if time($t), $t < 2026-…Z;
//! check if known_lease_fence($g, $n), $g < 1 or known_lease_fence(1, $n), $n <= 7;
//! ```
//!
//! Who checks one states `time`, `resource`, `amount`, `calls`, `known_fence` and `known_lease_fence` (0, 0 where none is
//! known), and allows if `grant($i, $r, $limit), resource($r), amount($n), $n <= $limit`.

use biscuit_auth::builder::{
    Binary, BlockBuilder, Check, CheckKind, Expression, Op, Predicate, Rule, Term, fact, int, pred,
    string, variable,
};
use chrono::{DateTime, Utc};
use tidegate_model::{Fence, contracts::AdmissionGrant};

use crate::{problem::SignProblem, terms::CallTerms};

/// The version of the words.
pub const VERSION: i64 = 1;
/// The fact that names the version.
pub const FORMAT: &str = "tidegate_grant";
/// The fence of the admission, as who checks knows it.
pub const KNOWN_FENCE: &str = "known_fence";
/// The fence of the lease, as who checks knows it.
pub const KNOWN_LEASE_FENCE: &str = "known_lease_fence";

/// Seconds since 1970, as a token has them; what is below a second is cut off, so that nothing lasts longer.
fn date(at: DateTime<Utc>) -> Result<Term, SignProblem> {
    u64::try_from(at.timestamp())
        .map(Term::Date)
        .map_err(|_| SignProblem::Invalid {
            what: "a time is before 1970",
        })
}

fn number(amount: u64) -> Result<Term, SignProblem> {
    i64::try_from(amount)
        .map(int)
        .map_err(|_| SignProblem::Invalid {
            what: "a count is beyond 9223372036854775807",
        })
}

/// The block that Tidegate signs. `grant` is valid already.
pub(crate) fn authority(grant: &AdmissionGrant) -> Result<BlockBuilder, SignProblem> {
    let mut facts = vec![
        fact(FORMAT, &[int(VERSION)]),
        fact("admission", &[string(&grant.admission_id.to_string())]),
        fact("tenant", &[string(grant.tenant_id.as_str())]),
        fact("pool", &[string(grant.pool_id.as_str())]),
        fact("descriptor_epoch", &[int(grant.descriptor_epoch)]),
        fact("policy_generation", &[int(grant.policy_generation)]),
        fact("fence", &fence_terms(grant.fence)),
    ];
    for held in &grant.grants {
        let terms = [
            int(i64::from(held.grant_id.index)),
            string(held.resource.as_str()),
            int(held.amount),
        ];
        facts.push(fact("grant", &terms));
    }
    if let Some(run) = grant.run_id {
        facts.push(fact("run", &[string(&run.to_string())]));
    }
    if let Some(at) = grant.issued_at {
        facts.push(fact("issued", &[date(at)?]));
    }
    facts.push(fact("expires", &[date(grant.expires_at)?]));
    Ok(BlockBuilder {
        facts,
        checks: vec![
            before(grant.expires_at)?,
            fence_not_below(KNOWN_FENCE, grant.fence),
        ],
        ..BlockBuilder::default()
    })
}

/// A block that narrows.
pub(crate) fn narrowing(terms: &CallTerms) -> Result<BlockBuilder, SignProblem> {
    let mut checks = Vec::new();
    if let Some(resource) = &terms.resource {
        checks.push(check(vec![query(
            pred("resource", &[string(resource.as_str())]),
            None,
        )]));
    }
    if let Some(max) = terms.max_amount {
        checks.push(at_most("amount", number(max)?));
    }
    if let Some(max) = terms.max_calls {
        checks.push(at_most("calls", number(max)?));
    }
    if let Some(at) = terms.expires_at {
        checks.push(before(at)?);
    }
    if let Some(fence) = terms.lease_fence {
        checks.push(fence_not_below(KNOWN_LEASE_FENCE, fence));
    }
    Ok(BlockBuilder {
        checks,
        ..BlockBuilder::default()
    })
}

fn fence_terms(fence: Fence) -> [Term; 2] {
    [int(i64::from(fence.generation)), int(fence.number)]
}

fn at_most(name: &str, max: Term) -> Check {
    check(vec![query(
        pred(name, &[variable("n")]),
        Some(compare("n", Binary::LessOrEqual, max)),
    )])
}

fn before(at: DateTime<Utc>) -> Result<Check, SignProblem> {
    Ok(check(vec![query(
        pred("time", &[variable("t")]),
        Some(compare("t", Binary::LessThan, date(at)?)),
    )]))
}

/// Two queries in place of one with `||`: that one is written as a closure, which older libraries cannot read.
fn fence_not_below(name: &str, fence: Fence) -> Check {
    let [generation, highest] = fence_terms(fence);
    check(vec![
        query(
            pred(name, &[variable("g"), variable("n")]),
            Some(compare("g", Binary::LessThan, generation.clone())),
        ),
        query(
            pred(name, &[generation, variable("n")]),
            Some(compare("n", Binary::LessOrEqual, highest)),
        ),
    ])
}

fn compare(name: &str, how: Binary, with: Term) -> Expression {
    Expression {
        ops: vec![Op::Value(variable(name)), Op::Value(with), Op::Binary(how)],
    }
}

fn query(body: Predicate, expression: Option<Expression>) -> Rule {
    let nothing: [Term; 0] = [];
    Rule::new(
        pred("query", &nothing),
        vec![body],
        expression.into_iter().collect(),
        Vec::new(),
    )
}

fn check(queries: Vec<Rule>) -> Check {
    Check {
        queries,
        kind: CheckKind::One,
    }
}

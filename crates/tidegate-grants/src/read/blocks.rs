//! The two kinds of block, from their words. The forms are those of [`crate::words`].

use biscuit_auth::{datalog::SymbolTable, format::schema};
use chrono::{DateTime, Utc};
use tidegate_model::{
    AdmissionId, Fence, PoolId, RunId, TenantId,
    contracts::{AdmissionGrant, GrantId, GrantedAmount, ResourceName},
};

use super::{Compared, Query, Value, Word, foreign, malformed, queries, word};
use crate::{
    problem::GrantProblem,
    terms::CallTerms,
    words::{FORMAT, KNOWN_FENCE, KNOWN_LEASE_FENCE, VERSION},
};

/// What stands in the first block, as far as it was read.
#[derive(Default)]
struct Facts {
    version: Option<i64>,
    admission: Option<AdmissionId>,
    tenant: Option<TenantId>,
    pool: Option<PoolId>,
    descriptor_epoch: Option<i64>,
    policy_generation: Option<i64>,
    fence: Option<Fence>,
    run: Option<RunId>,
    issued: Option<DateTime<Utc>>,
    expires: Option<DateTime<Utc>>,
    /// Place, resource, amount.
    grants: Vec<(u16, ResourceName, i64)>,
}

/// Fills a place that is filled once.
fn once<T>(place: &mut Option<T>, value: Result<T, GrantProblem>) -> Result<(), GrantProblem> {
    match place.replace(value?) {
        None => Ok(()),
        Some(_) => Err(foreign("the same thing twice")),
    }
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, GrantProblem> {
    text.parse()
        .map_err(|_| foreign("a name that is none of its kind"))
}

fn time(seconds: u64) -> Result<DateTime<Utc>, GrantProblem> {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| DateTime::from_timestamp(seconds, 0))
        .ok_or(malformed("a time that is no time"))
}

fn fence(generation: i64, number: i64) -> Result<Fence, GrantProblem> {
    match i32::try_from(generation) {
        Ok(generation) if generation >= 0 && number >= 0 => Ok(Fence { generation, number }),
        _ => Err(malformed("a fence that is no fence")),
    }
}

impl Facts {
    fn take(&mut self, word: &Word<'_>) -> Result<(), GrantProblem> {
        use Value::{Date, Integer, Text};
        match (word.name, &word.values[..]) {
            (FORMAT, [Integer(version)]) => once(&mut self.version, Ok(*version)),
            ("admission", [Text(id)]) => once(&mut self.admission, parsed(id)),
            ("tenant", [Text(id)]) => once(&mut self.tenant, parsed(id)),
            ("pool", [Text(id)]) => once(&mut self.pool, parsed(id)),
            ("descriptor_epoch", [Integer(epoch)]) => once(&mut self.descriptor_epoch, Ok(*epoch)),
            ("policy_generation", [Integer(number)]) => {
                once(&mut self.policy_generation, Ok(*number))
            }
            ("fence", [Integer(generation), Integer(number)]) => {
                once(&mut self.fence, fence(*generation, *number))
            }
            ("grant", [Integer(place), Text(resource), Integer(amount)]) => {
                let place = u16::try_from(*place).map_err(|_| malformed("a place below 0"))?;
                self.grants.push((place, parsed(resource)?, *amount));
                Ok(())
            }
            ("run", [Text(id)]) => once(&mut self.run, parsed(id)),
            ("issued", [Date(at)]) => once(&mut self.issued, time(*at)),
            ("expires", [Date(at)]) => once(&mut self.expires, time(*at)),
            _ => Err(foreign("an unknown fact")),
        }
    }

    fn into_grant(self) -> Result<AdmissionGrant, GrantProblem> {
        let missing = || malformed("it does not say all that a grant says");
        if self.version.ok_or_else(missing)? != VERSION {
            return Err(foreign("an unknown version of a grant"));
        }
        let admission = self.admission.ok_or_else(missing)?;
        let grant = AdmissionGrant {
            admission_id: admission,
            tenant_id: self.tenant.ok_or_else(missing)?,
            pool_id: self.pool.ok_or_else(missing)?,
            descriptor_epoch: self.descriptor_epoch.ok_or_else(missing)?,
            policy_generation: self.policy_generation.ok_or_else(missing)?,
            fence: self.fence.ok_or_else(missing)?,
            grants: self
                .grants
                .into_iter()
                .map(|(index, resource, amount)| GrantedAmount {
                    grant_id: GrantId { admission, index },
                    resource,
                    amount,
                })
                .collect(),
            run_id: self.run,
            issued_at: self.issued,
            expires_at: self.expires.ok_or_else(missing)?,
        };
        match crate::sign::invalid(&grant) {
            None => Ok(grant),
            Some(what) => Err(malformed(what)),
        }
    }
}

/// The block that Tidegate signs.
pub(super) fn authority(
    block: &schema::Block,
    symbols: &SymbolTable,
) -> Result<AdmissionGrant, GrantProblem> {
    let mut facts = Facts::default();
    for fact in &block.facts {
        facts.take(&word(&fact.predicate, symbols)?)?;
    }
    let grant = facts.into_grant()?;
    // Its checks say the same as its facts, for readers who run the checks alone.
    let mut ends = None;
    let mut known = None;
    for check in &block.checks {
        match check_word(&queries(check, symbols)?)? {
            CheckWord::Before(at) => once(&mut ends, Ok(at))?,
            CheckWord::FenceNotBelow(KNOWN_FENCE, fence) => once(&mut known, Ok(fence))?,
            _ => return Err(foreign("an unknown check")),
        }
    }
    if ends != Some(grant.expires_at) || known != Some(grant.fence) {
        return Err(malformed("its checks differ from its facts"));
    }
    Ok(grant)
}

/// A block that narrows.
pub(super) fn narrowing(
    block: &schema::Block,
    symbols: &SymbolTable,
) -> Result<CallTerms, GrantProblem> {
    if !block.facts.is_empty() {
        return Err(foreign("a fact in a block that narrows"));
    }
    let mut terms = CallTerms::default();
    for check in &block.checks {
        match check_word(&queries(check, symbols)?)? {
            CheckWord::Resource(resource) => once(&mut terms.resource, Ok(resource))?,
            CheckWord::Amount(max) => once(&mut terms.max_amount, Ok(max))?,
            CheckWord::Calls(max) => once(&mut terms.max_calls, Ok(max))?,
            CheckWord::Before(at) => once(&mut terms.expires_at, Ok(at))?,
            CheckWord::FenceNotBelow(KNOWN_LEASE_FENCE, fence) => {
                once(&mut terms.lease_fence, Ok(fence))?;
            }
            CheckWord::FenceNotBelow(..) => return Err(foreign("an unknown check")),
        }
    }
    if terms.is_empty() {
        return Err(foreign("a block that narrows nothing"));
    }
    Ok(terms)
}

/// What a check demands.
enum CheckWord<'a> {
    Resource(ResourceName),
    Amount(u64),
    Calls(u64),
    Before(DateTime<Utc>),
    FenceNotBelow(&'a str, Fence),
}

fn check_word<'a>(queries: &[Query<'a>]) -> Result<CheckWord<'a>, GrantProblem> {
    match queries {
        [one] => single(one),
        [below, same] => fence_word(below, same),
        _ => Err(foreign("a check of many alternatives")),
    }
}

fn single<'a>(query: &Query<'a>) -> Result<CheckWord<'a>, GrantProblem> {
    use Value::{Date, Integer, Text, Variable};
    let max = |max: i64| u64::try_from(max).map_err(|_| malformed("a count below 0"));
    let Word { name, values } = &query.word;
    match (*name, &values[..], &query.comparison) {
        ("resource", [Text(only)], None) => Ok(CheckWord::Resource(parsed(only)?)),
        ("amount", [Variable(asked)], Some((it, Compared::AtMost, Integer(most))))
            if asked == it =>
        {
            Ok(CheckWord::Amount(max(*most)?))
        }
        ("calls", [Variable(asked)], Some((it, Compared::AtMost, Integer(most))))
            if asked == it =>
        {
            Ok(CheckWord::Calls(max(*most)?))
        }
        ("time", [Variable(now)], Some((it, Compared::Below, Date(at)))) if now == it => {
            Ok(CheckWord::Before(time(*at)?))
        }
        _ => Err(foreign("an unknown check")),
    }
}

fn fence_word<'a>(below: &Query<'a>, same: &Query<'a>) -> Result<CheckWord<'a>, GrantProblem> {
    use Value::{Integer, Variable};
    let unknown = || foreign("an unknown check");
    let ([Variable(g), Variable(n)], Some((compared, Compared::Below, Integer(generation)))) =
        (&below.word.values[..], &below.comparison)
    else {
        return Err(unknown());
    };
    let ([Integer(again), Variable(number)], Some((it, Compared::AtMost, Integer(highest)))) =
        (&same.word.values[..], &same.comparison)
    else {
        return Err(unknown());
    };
    let fits = g != n
        && compared == g
        && it == number
        && again == generation
        && below.word.name == same.word.name;
    if !fits {
        return Err(unknown());
    }
    Ok(CheckWord::FenceNotBelow(
        below.word.name,
        fence(*generation, *highest)?,
    ))
}

//! One batch over the ledger: admissions, renewals, phases and releases of many callers, decided in order and written at
//! once (R7.6).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use chrono::{DateTime, Duration, Utc};
use sqlx::PgConnection;
use tidegate_model::{
    Fence, PoolId,
    admission::{AdmissionState, EndReason},
    digest::Digest,
};
use tidegate_policy::ledger::{Book, Held, Refusal, Shortage, Vector, life};

use super::{Admission, AdmissionKey, apply_changes, lock_book, read_counters, rows, slots_among};
use crate::{Error, Fleet};

/// A pool that may serve it, and what it takes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The pool.
    pub pool: PoolId,
    /// The epoch that its eligibility was judged by; another one in force makes it none.
    pub epoch: i64,
    /// What is reserved.
    pub vector: Vector,
}

/// What is to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Of the requirements, with the tenant.
    pub digest: Digest,
    /// The policy generation that eligibility was judged by.
    pub policy_generation: i64,
    /// Where it may go, in order.
    pub candidates: Vec<Candidate>,
    /// Whether the one with the most left is taken, and not the first that fits.
    pub scored: bool,
    /// How long it lasts without being renewed, in milliseconds.
    pub ttl_ms: i64,
    /// Only at this version of the book.
    pub if_version: Option<i64>,
}

/// What a holder wants of its admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// More time, in milliseconds from now; as before unless given.
    Renew(Option<i64>),
    /// The end of a phase: what was used by place in the vector, what is given back, and what is wanted next.
    EndPhase {
        /// What was really used.
        settle: Vec<(u16, i64)>,
        /// What is given back.
        release: Vec<u16>,
        /// What is admitted in its place.
        next: Option<Wanted>,
    },
    /// All of it back, with what was really used.
    Release(Vec<(u16, i64)>),
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A new admission.
    Admit(AdmissionKey, Wanted),
    /// A change of one, by who shows its fence.
    Change(AdmissionKey, Fence, Change),
}

impl Ask {
    const fn key(&self) -> &AdmissionKey {
        match self {
            Self::Admit(key, _) | Self::Change(key, ..) => key,
        }
    }

    const fn wanted(&self) -> Option<&Wanted> {
        match self {
            Self::Admit(_, wanted)
            | Self::Change(
                _,
                _,
                Change::EndPhase {
                    next: Some(wanted), ..
                },
            ) => Some(wanted),
            Self::Change(..) => None,
        }
    }
}

/// Why nothing was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// What each pool is short of.
    Short(Vec<(PoolId, Vec<Shortage>)>),
    /// No pool of those that it may go to is as it was when that was judged.
    Moved,
    /// The book has another version.
    Version(i64),
    /// The tenant may have nothing new admitted.
    Suspended,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is as it should be; a repeat of a call that was answered before is no other thing.
    Done(Admission),
    /// It was not admitted. A phase that was refused its next one has ended with its admission.
    Refused(Refused),
    /// The id was used with other requirements.
    Conflict(Admission),
    /// It is over.
    Ended(Admission),
    /// The fence is another one.
    Fence,
    /// There is no such grant.
    NoGrant(u16),
    /// The grant is a slot, which goes with the admission and not before.
    Slot(u16),
    /// There is no such admission.
    Unknown,
}

/// The outcome of one call, and the version of the book after the batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What came of it.
    pub outcome: Outcome,
    /// The version of the book that it was decided at.
    pub version: i64,
}

impl Fleet {
    /// Decides a batch in one transaction.
    pub async fn ledger_batch(
        &self,
        scope: &str,
        asks: impl Into<Arc<[Ask]>>,
    ) -> Result<Vec<Answer>, Error> {
        let (scope, asks) = (scope.to_owned(), asks.into());
        self.store()
            .transaction("ledger_batch", move |tx| {
                let (scope, asks) = (scope.clone(), Arc::clone(&asks));
                Box::pin(async move { decide(tx, &scope, &asks).await })
            })
            .await
    }
}

async fn decide(tx: &mut PgConnection, scope: &str, asks: &[Ask]) -> Result<Vec<Answer>, Error> {
    lock_book(tx, scope).await?;
    fail::fail_point!("ledger_locked", |_| Err(Error::injected()));
    let mut batch = Batch::read(tx, scope, asks).await?;
    let outcomes: Vec<Outcome> = asks.iter().map(|ask| batch.ask(ask)).collect();
    fail::fail_point!("ledger_before_write", |_| Err(Error::injected()));
    let version = batch.write(tx, scope).await?;
    fail::fail_point!("ledger_before_commit", |_| Err(Error::injected()));
    let answers = outcomes
        .into_iter()
        .map(|outcome| Answer { outcome, version });
    Ok(answers.collect())
}

/// What a batch has read, and what it has decided so far.
struct Batch {
    book: Book,
    version: i64,
    /// The fence of whatever this batch begins or ends.
    fence: Fence,
    policy_generation: i64,
    now: DateTime<Utc>,
    /// Pools of which this epoch is in force.
    in_force: HashSet<(PoolId, i64)>,
    suspended: HashSet<String>,
    slots: HashSet<i32>,
    known: BTreeMap<AdmissionKey, Admission>,
    /// Those that stood among the open ones when the batch was read.
    open: BTreeSet<AdmissionKey>,
    touched: BTreeSet<AdmissionKey>,
}

impl Batch {
    async fn read(tx: &mut PgConnection, scope: &str, asks: &[Ask]) -> Result<Self, Error> {
        let keys: BTreeSet<&AdmissionKey> = asks.iter().map(Ask::key).collect();
        let keys: Vec<&AdmissionKey> = keys.into_iter().collect();
        let known: BTreeMap<_, _> = rows::read(tx, &keys)
            .await?
            .into_iter()
            .map(|admission| (admission.key.clone(), admission))
            .collect();
        let slots = read_slots(tx, asks, &known).await?;
        let candidates = || {
            let wanted = asks.iter().filter_map(Ask::wanted);
            wanted.flat_map(|wanted| &wanted.candidates)
        };
        let resources: BTreeSet<i32> = candidates()
            .flat_map(|candidate| candidate.vector.parts())
            .map(|part| part.resource)
            .collect();
        let resources: Vec<i32> = resources.into_iter().collect();
        let counters = if resources.is_empty() {
            Vec::new()
        } else {
            read_counters(tx, &resources).await?
        };
        let epochs: HashSet<(&PoolId, i64)> = candidates()
            .map(|candidate| (&candidate.pool, candidate.epoch))
            .collect();
        let tenants: BTreeSet<&str> = keys.iter().map(|key| key.tenant.as_str()).collect();
        let moment = read_moment(tx, scope, &epochs, &tenants).await?;
        Ok(Self {
            book: Book::new(counters),
            version: moment.version,
            fence: Fence {
                generation: moment.generation,
                number: moment.version + 1,
            },
            policy_generation: moment.policy_generation,
            now: moment.now,
            in_force: moment.in_force,
            suspended: moment.suspended,
            slots,
            open: known
                .values()
                .filter(|admission| !admission.state.is_ended())
                .map(|admission| admission.key.clone())
                .collect(),
            known,
            touched: BTreeSet::new(),
        })
    }

    fn ask(&mut self, ask: &Ask) -> Outcome {
        match ask {
            Ask::Admit(key, wanted) => self.admit(key, wanted),
            Ask::Change(key, fence, change) => self.change(key, *fence, change),
        }
    }

    /// Whether an admission's time has run out, by the database's clock, or its history was lost with a restore (R4.7).
    fn is_over(&self, admission: &Admission) -> bool {
        admission.expires_at <= self.now || admission.fence.generation != self.fence.generation
    }

    fn admit(&mut self, key: &AdmissionKey, wanted: &Wanted) -> Outcome {
        if let Some(known) = self.known.get(key) {
            if known.digest != wanted.digest {
                return Outcome::Conflict(known.clone());
            }
            if !known.state.is_ended() && !self.is_over(known) {
                return Outcome::Done(known.clone());
            }
            return Outcome::Ended(self.end(key, AdmissionState::Expired, EndReason::TimeOut));
        }
        let at = match self.choose(key, wanted) {
            Ok(at) => at,
            Err(refused) => return Outcome::Refused(refused),
        };
        let born = (wanted.digest, self.now);
        let admission = self.admitted(key, wanted, at, born);
        self.known.insert(key.clone(), admission.clone());
        self.touched.insert(key.clone());
        Outcome::Done(admission)
    }

    /// Which candidate takes it.
    fn choose(&self, key: &AdmissionKey, wanted: &Wanted) -> Result<usize, Refused> {
        if self.suspended.contains(key.tenant.as_str()) {
            return Err(Refused::Suspended);
        }
        // What this batch has changed before counts as a change of the book.
        let version = self.version + i64::from(self.book.changes().next().is_some());
        if wanted.if_version.is_some_and(|asked| asked != version) {
            return Err(Refused::Version(version));
        }
        if wanted.policy_generation != self.policy_generation {
            return Err(Refused::Moved);
        }
        let valid: Vec<usize> = (0..wanted.candidates.len())
            .filter(|at| {
                let candidate = &wanted.candidates[*at];
                self.in_force
                    .contains(&(candidate.pool.clone(), candidate.epoch))
            })
            .collect();
        if valid.is_empty() {
            return Err(Refused::Moved);
        }
        let vectors: Vec<&Vector> = valid
            .iter()
            .map(|at| &wanted.candidates[*at].vector)
            .collect();
        match self.book.choose(&vectors, None, wanted.scored) {
            Ok(chosen) => Ok(valid[chosen]),
            Err(short) => {
                let pools = valid
                    .iter()
                    .map(|at| wanted.candidates[*at].pool.clone())
                    .zip(short);
                Err(Refused::Short(pools.collect()))
            }
        }
    }

    fn admitted(
        &mut self,
        key: &AdmissionKey,
        wanted: &Wanted,
        at: usize,
        (digest, created_at): (Digest, DateTime<Utc>),
    ) -> Admission {
        let candidate = &wanted.candidates[at];
        self.book.take_times(&candidate.vector, 1);
        let parts = candidate.vector.parts().iter();
        Admission {
            key: key.clone(),
            digest,
            state: AdmissionState::Active,
            pool: candidate.pool.clone(),
            descriptor_epoch: candidate.epoch,
            policy_generation: wanted.policy_generation,
            fence: self.fence,
            created_at,
            expires_at: self.now + Duration::milliseconds(wanted.ttl_ms),
            ttl_ms: wanted.ttl_ms,
            grants: parts
                .map(|part| Held::of(part.resource, part.amount))
                .collect(),
            ended: None,
        }
    }

    fn change(&mut self, key: &AdmissionKey, shown: Fence, change: &Change) -> Outcome {
        let Some(known) = self.known.get(key) else {
            return Outcome::Unknown;
        };
        let over = !known.state.is_ended() && self.is_over(known);
        match life::may_change(known.state, known.fence, shown, over) {
            Ok(()) => {}
            Err(Refusal::Ended) => return Outcome::Ended(known.clone()),
            Err(Refusal::Fence) => return Outcome::Fence,
            Err(Refusal::TimeOut) => {
                return Outcome::Ended(self.end(key, AdmissionState::Expired, EndReason::TimeOut));
            }
        }
        match change {
            Change::Renew(ttl_ms) => self.renew(key, *ttl_ms),
            Change::Release(settle) => match self.settle(key, settle, &[]) {
                Some(refused) => refused,
                None => Outcome::Done(self.end(key, AdmissionState::Released, EndReason::Holder)),
            },
            Change::EndPhase {
                settle,
                release,
                next,
            } => match self.settle(key, settle, release) {
                Some(refused) => refused,
                None => self.next_phase(key, next.as_ref()),
            },
        }
    }

    fn renew(&mut self, key: &AdmissionKey, ttl_ms: Option<i64>) -> Outcome {
        let now = self.now;
        let Some(admission) = self.known.get_mut(key) else {
            return Outcome::Unknown;
        };
        admission.ttl_ms = ttl_ms.unwrap_or(admission.ttl_ms);
        admission.expires_at = now + Duration::milliseconds(admission.ttl_ms);
        self.touched.insert(key.clone());
        Outcome::Done(admission.clone())
    }

    /// Settles and gives back; the first place that is none or a slot, and then nothing has changed.
    fn settle(&mut self, key: &AdmissionKey, used: &[(u16, i64)], back: &[u16]) -> Option<Outcome> {
        let admission = self.known.get_mut(key)?;
        let named = used.iter().map(|(place, _)| *place);
        for place in named.chain(back.iter().copied()) {
            match admission.grants.get(usize::from(place)) {
                None => return Some(Outcome::NoGrant(place)),
                Some(grant) if self.slots.contains(&grant.resource) => {
                    return Some(Outcome::Slot(place));
                }
                Some(_) => {}
            }
        }
        for &(place, used) in used {
            let grant = &mut admission.grants[usize::from(place)];
            let change = grant.settle(used);
            self.book.change(grant.resource, change);
        }
        for &place in back {
            let grant = &mut admission.grants[usize::from(place)];
            let change = grant.release();
            self.book.change(grant.resource, change);
        }
        self.touched.insert(key.clone());
        None
    }

    /// What follows a phase: the rest goes on, or all is given back and the next phase is admitted anew (R10.1).
    fn next_phase(&mut self, key: &AdmissionKey, next: Option<&Wanted>) -> Outcome {
        let Some(admission) = self.known.get_mut(key) else {
            return Outcome::Unknown;
        };
        let Some(wanted) = next else {
            if life::after_phase(&admission.grants) == AdmissionState::Released {
                return Outcome::Done(self.end(
                    key,
                    AdmissionState::Released,
                    EndReason::LastGrant,
                ));
            }
            return Outcome::Done(admission.clone());
        };
        // It stays what it was asked for as: a repeat of that finds it in its later phases too.
        let born = (admission.digest, admission.created_at);
        let ttl_ms = admission.ttl_ms;
        for grant in &mut admission.grants {
            let change = grant.release();
            self.book.change(grant.resource, change);
        }
        match self.choose(key, wanted) {
            Ok(at) => {
                let mut admission = self.admitted(key, wanted, at, born);
                admission.ttl_ms = ttl_ms;
                admission.expires_at = self.now + Duration::milliseconds(ttl_ms);
                self.known.insert(key.clone(), admission.clone());
                Outcome::Done(admission)
            }
            Err(refused) => {
                self.end(key, AdmissionState::Released, EndReason::PhaseRefused);
                Outcome::Refused(refused)
            }
        }
    }

    /// Ends an admission that is not over, with all that it holds; one that is over stays as it is.
    fn end(&mut self, key: &AdmissionKey, state: AdmissionState, reason: EndReason) -> Admission {
        let (now, fence) = (self.now, self.fence);
        let Some(admission) = self.known.get_mut(key) else {
            unreachable!("only known admissions are ended");
        };
        if admission.state.may_become(state) {
            admission.state = state;
            admission.fence = fence;
            admission.ended = Some((now, reason));
            for grant in &mut admission.grants {
                let change = grant.release();
                self.book.change(grant.resource, change);
            }
            self.touched.insert(key.clone());
        }
        admission.clone()
    }

    /// Writes what has changed; the version of the book that holds now.
    async fn write(self, tx: &mut PgConnection, scope: &str) -> Result<i64, Error> {
        let (mut new, mut changed, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut gone = 0;
        for key in &self.touched {
            let Some(admission) = self.known.get(key) else {
                continue;
            };
            let was_open = self.open.contains(key);
            if admission.state.is_ended() {
                gone += usize::from(was_open);
                ended.push(admission);
            } else if was_open {
                changed.push(admission);
            } else {
                new.push(admission);
            }
        }
        rows::end(tx, scope, &ended, gone).await?;
        rows::update(tx, &changed).await?;
        rows::insert(tx, scope, &new).await?;
        // A fence carries the number of the batch that gave it, so whatever begins or ends raises the version.
        if new.is_empty() && ended.is_empty() && self.book.changes().next().is_none() {
            return Ok(self.version);
        }
        apply_changes(tx, scope, self.book.changes()).await
    }
}

/// The slots among what those hold that end a phase or give something back.
async fn read_slots(
    tx: &mut PgConnection,
    asks: &[Ask],
    known: &BTreeMap<AdmissionKey, Admission>,
) -> Result<HashSet<i32>, Error> {
    let names = |change: &Change| match change {
        Change::Renew(_) => false,
        Change::Release(settle) => !settle.is_empty(),
        Change::EndPhase {
            settle, release, ..
        } => !settle.is_empty() || !release.is_empty(),
    };
    let changed = asks.iter().filter_map(|ask| match ask {
        Ask::Change(key, _, change) if names(change) => known.get(key),
        _ => None,
    });
    let held: BTreeSet<i32> = changed
        .flat_map(|admission| &admission.grants)
        .map(|grant| grant.resource)
        .collect();
    if held.is_empty() {
        return Ok(HashSet::new());
    }
    let held: Vec<i32> = held.into_iter().collect();
    slots_among(tx, &held).await
}

/// What holds for a whole batch.
struct Moment {
    version: i64,
    generation: i32,
    policy_generation: i64,
    now: DateTime<Utc>,
    in_force: HashSet<(PoolId, i64)>,
    suspended: HashSet<String>,
}

async fn read_moment(
    tx: &mut PgConnection,
    scope: &str,
    epochs: &HashSet<(&PoolId, i64)>,
    tenants: &BTreeSet<&str>,
) -> Result<Moment, Error> {
    let asked: Vec<(&PoolId, i64)> = epochs.iter().copied().collect();
    let pools: Vec<String> = asked.iter().map(|(pool, _)| pool.to_string()).collect();
    let numbers: Vec<i64> = asked.iter().map(|(_, epoch)| *epoch).collect();
    let tenants: Vec<String> = tenants.iter().map(|tenant| (*tenant).to_owned()).collect();
    let row = sqlx::query!(
        r#"SELECT c.generation AS "generation!", clock_timestamp() AS "now!",
                  coalesce((SELECT version FROM ledger_books WHERE scope = $1), 0) AS "version!",
                  coalesce((SELECT generation FROM policy_generations WHERE scope = $1), 1) AS "policy!",
                  ARRAY (SELECT coalesce((SELECT p.active_epoch = k.epoch AND k.epoch <> ALL (p.revoked_epochs)
                              FROM pools p WHERE p.pool_id = k.pool), false)
                         FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS k(pool, epoch, ord) ORDER BY ord)
                      AS "in_force!",
                  ARRAY (SELECT tenant FROM tenants WHERE tenant = ANY ($4) AND state <> 'active') AS "suspended!"
           FROM cluster c"#,
        scope,
        &pools,
        &numbers,
        &tenants,
    )
    .fetch_one(tx)
    .await?;
    let in_force: HashMap<(&PoolId, i64), bool> = asked.into_iter().zip(row.in_force).collect();
    Ok(Moment {
        version: row.version,
        generation: row.generation,
        policy_generation: row.policy,
        now: row.now,
        suspended: row.suspended.into_iter().collect(),
        in_force: in_force
            .into_iter()
            .filter(|(_, holds)| *holds)
            .map(|((pool, epoch), _)| (pool.clone(), epoch))
            .collect(),
    })
}

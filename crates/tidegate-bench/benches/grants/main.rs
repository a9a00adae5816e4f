//! `make bench-grants`: what a grant costs, beside a PASETO with the same contents.
//!
//! All of it is CPU of one thread, so the clock of the wall is enough; a figure is the median of batches, in which both kinds
//! take turns. A PASETO cannot be narrowed by who holds it: what a call lease costs there is a request to the server.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark that cannot go on stops and says why; its output is its purpose"
)]

use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use clap::Parser;
use pasetors::{
    claims::{Claims, ClaimsValidationRules},
    keys::{AsymmetricKeyPair, Generate},
    public,
    token::UntrustedToken,
    version4::V4,
};
use tidegate_grants::{CallTerms, Demand, Entropy, SignedGrant, Signer, Verifier};
use tidegate_model::{
    AdmissionId, Fence,
    contracts::{AdmissionGrant, CallLease, GrantId, GrantKeyId, GrantedAmount},
};

/// As the server has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures signing, narrowing and checking of grants.
#[derive(Debug, Parser)]
#[command(name = "bench-grants")]
struct Args {
    /// Batches, of which the median counts.
    #[arg(long, default_value_t = 21)]
    batches: usize,
    /// Repeats within a batch.
    #[arg(long, default_value_t = 200)]
    repeats: u32,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).expect("a time")
}

/// An admission of a pool's slot, a tool and a model.
fn grant() -> AdmissionGrant {
    let admission = AdmissionId::new();
    let held = |(index, name): (u16, &str)| GrantedAmount {
        grant_id: GrantId { admission, index },
        resource: name.parse().expect("a resource"),
        amount: 10,
    };
    let resources = [
        (0, "pool/builtin"),
        (1, "tool/crm/search"),
        (2, "model/default"),
    ];
    AdmissionGrant {
        admission_id: admission,
        tenant_id: "acme".parse().expect("a tenant"),
        pool_id: "builtin".parse().expect("a pool"),
        descriptor_epoch: 3,
        policy_generation: 1,
        fence: fence(),
        grants: resources.map(held).to_vec(),
        run_id: None,
        issued_at: Some(now()),
        expires_at: now() + TimeDelta::minutes(5),
    }
}

const fn fence() -> Fence {
    Fence {
        generation: 1,
        number: 42,
    }
}

fn lease() -> CallLease {
    CallLease {
        resource: "tool/crm/search".parse().expect("a resource"),
        amount: 5,
        max_calls: 10,
        lease_fence: fence(),
        expires_at: now() + TimeDelta::seconds(60),
    }
}

/// Entropy that differs each time; what it is made of costs nothing here.
struct Fresh(u64);

impl Fresh {
    fn next(&mut self) -> Entropy {
        self.0 += 1;
        let mut bytes = [5; 32];
        bytes[..8].copy_from_slice(&self.0.to_be_bytes());
        Entropy(bytes)
    }
}

/// One thing to measure.
struct Subject<'a> {
    name: &'static str,
    bytes: Option<usize>,
    run: Box<dyn FnMut() + 'a>,
    batches: Vec<f64>,
}

impl<'a> Subject<'a> {
    fn new(name: &'static str, bytes: Option<usize>, run: impl FnMut() + 'a) -> Self {
        Self {
            name,
            bytes,
            run: Box::new(run),
            batches: Vec::new(),
        }
    }

    fn batch(&mut self, repeats: u32) {
        let began = Instant::now();
        for _ in 0..repeats {
            (self.run)();
        }
        let micros = began.elapsed().as_secs_f64() * 1e6 / f64::from(repeats);
        self.batches.push(micros);
    }

    fn report(mut self) {
        self.batches.sort_by(f64::total_cmp);
        let bytes = self.bytes.map_or_else(String::new, |it| it.to_string());
        let at = |part: usize| self.batches[(self.batches.len() - 1) * part / 4];
        println!(
            "{:<46} {:>8.1} {:>8.1} {:>8.1} {:>7}",
            self.name,
            at(2),
            at(1),
            at(3),
            bytes
        );
    }
}

/// A PASETO that says what a grant says.
fn paseto() -> (AsymmetricKeyPair<V4>, Claims) {
    let pair = AsymmetricKeyPair::<V4>::generate().expect("keys");
    let mut claims = Claims::new_expires_in(&std::time::Duration::from_mins(5)).expect("claims");
    let said = serde_json::to_value(grant()).expect("JSON");
    claims.add_additional("grant", said).expect("added");
    (pair, claims)
}

fn subjects<'a>(
    signer: &'a Signer,
    verifier: &'a Verifier,
    pair: &'a AsymmetricKeyPair<V4>,
    claims: &'a Claims,
) -> Vec<Subject<'a>> {
    let (grant, mut fresh) = (grant(), Fresh(0));
    let whole = signer.sign(&grant, &fresh.next()).expect("signed");
    let leased = whole
        .call_lease(&lease(), now(), &fresh.next())
        .expect("leased");
    let fewer = CallTerms {
        max_calls: Some(1),
        ..CallTerms::default()
    };
    let twice = leased.narrow(&fewer, &fresh.next()).expect("narrowed");
    let token = public::sign(&pair.secret, claims, None, None).expect("signed");
    let demand = || Demand::of(lease().resource, 1, 1);
    let check = move |token: SignedGrant| {
        move || {
            verifier
                .verify(token.as_str(), now(), &demand())
                .expect("good");
        }
    };
    let known = verifier.signatures(leased.as_str(), now()).expect("good");
    let size = |token: &SignedGrant| Some(token.as_str().len());
    let (for_lease, mut others) = (whole.clone(), Fresh(1 << 40));
    let whole_size = size(&whole);
    let paseto = token.clone();
    vec![
        Subject::new("grant: sign", whole_size, move || {
            signer.sign(&grant, &fresh.next()).expect("signed");
        }),
        Subject::new("grant: narrow to a call lease", size(&leased), move || {
            let lease = for_lease.call_lease(&lease(), now(), &others.next());
            lease.expect("leased");
        }),
        Subject::new("grant: check", whole_size, check(whole)),
        Subject::new("grant: check a call lease", size(&leased), check(leased)),
        Subject::new(
            "grant: check one narrowed twice",
            size(&twice),
            check(twice),
        ),
        Subject::new("grant: check a remembered call lease", None, move || {
            known.allows(now(), &demand()).expect("good");
        }),
        Subject::new("PASETO v4.public: sign", Some(token.len()), move || {
            public::sign(&pair.secret, claims, None, None).expect("signed");
        }),
        Subject::new("PASETO v4.public: check", Some(token.len()), move || {
            let rules = ClaimsValidationRules::new();
            let token = UntrustedToken::try_from(&paseto).expect("a token");
            public::verify(&pair.public, &token, &rules, None, None).expect("good");
        }),
    ]
}

fn main() {
    let args = Args::parse();
    let signer = Signer::new(GrantKeyId(1), &[9; 32]).expect("a key");
    let verifier = Verifier::new(&[signer.publish(None)]).expect("keys");
    let (pair, claims) = paseto();
    let mut subjects = subjects(&signer, &verifier, &pair, &claims);
    for _ in 0..args.batches.max(1) {
        for subject in &mut subjects {
            subject.batch(args.repeats.max(1));
        }
    }
    println!(
        "{:<46} {:>8} {:>8} {:>8} {:>7}",
        "µs on one thread", "median", "lower", "upper", "bytes"
    );
    for subject in subjects {
        subject.report();
    }
}

//! `open_attempt` for runs whose vectors have bounded resources (R7.7): reservation and lease are one transaction.
//!
//! The book is locked before any lane is looked at. What comes after waits for nothing: queue rows by SKIP LOCKED, buckets
//! by try-lock, inserts of leases that nobody else can insert. So whoever closes leases may lock them and then wait for
//! the book.

use std::{collections::BTreeSet, sync::Arc};

use sqlx::PgConnection;
use tidegate_policy::ledger::{Book, Shortage, Vector};

use super::open::{Held, Holder, LaneAsk, OpenedLease, background, foreground};
use crate::{
    Error, Fleet,
    ledger::{apply_changes, lock_book, numbers_as_text, read_counters},
};

/// A lane with what each of its runs takes.
#[derive(Debug, Clone)]
pub struct BoundedAsk {
    /// The lane.
    pub lane: LaneAsk,
    /// Of its requirements in the holder's pool.
    pub vector: Arc<Vector>,
    /// Whether it has been short for so long that what comes free is set aside for it (R7.8).
    pub waited: bool,
}

/// What a claim over the ledger gave.
#[derive(Debug, Default)]
pub struct Admitted {
    /// The lanes that were asked, each for as many as fit.
    pub asks: Vec<LaneAsk>,
    /// What they gave; `ask` counts in `asks`.
    pub leases: Vec<OpenedLease>,
    /// Classes of which fewer fitted than were asked for, with what they are short of.
    pub short: Vec<(i32, Vec<Shortage>)>,
}

impl Fleet {
    /// Opens attempts of lanes of one kind, background or not, as far as the ledger has what they take.
    pub async fn open_admitted(
        &self,
        holder: &Holder,
        asks: &[BoundedAsk],
        is_background: bool,
    ) -> Result<Admitted, Error> {
        let (holder, asks) = (holder.clone(), asks.to_vec());
        self.store()
            .transaction("open_admitted", move |tx| {
                let (holder, asks) = (holder.clone(), asks.clone());
                Box::pin(async move { open(tx, &holder, &asks, is_background).await })
            })
            .await
    }
}

async fn open(
    tx: &mut PgConnection,
    holder: &Holder,
    asks: &[BoundedAsk],
    is_background: bool,
) -> Result<Admitted, Error> {
    lock_book(tx, &holder.scope).await?;
    let resources: BTreeSet<i32> = asks
        .iter()
        .flat_map(|ask| ask.vector.parts())
        .map(|part| part.resource)
        .collect();
    let resources: Vec<i32> = resources.into_iter().collect();
    let counters = read_counters(tx, &resources).await?;
    let Fit {
        fitting,
        short,
        aside,
    } = fit(Book::new(counters.iter().copied()), asks);
    set_aside(tx, &aside, &fitting).await?;
    if fitting.is_empty() {
        return Ok(Admitted {
            short,
            ..Admitted::default()
        });
    }
    let lanes: Vec<LaneAsk> = fitting.iter().map(|ask| ask.lane.clone()).collect();
    let held = Held {
        resources: texts(&fitting, |part| part.resource.into()),
        amounts: texts(&fitting, |part| part.amount),
    };
    let leases = if is_background {
        background(tx, holder, &lanes, &held).await?
    } else {
        foreground(tx, holder, &lanes, &held).await?
    };
    fail::fail_point!("open_admitted_before_count", |_| Err(Error::injected()));
    let mut taken = Book::new(counters);
    for lease in &leases {
        let ask = fitting.get(lease.ask).ok_or(Error::Corrupt {
            what: "the index of a lane",
        })?;
        taken.take_times(&ask.vector, 1);
    }
    if taken.changes().next().is_some() {
        apply_changes(tx, &holder.scope, taken.changes()).await?;
    }
    fail::fail_point!("open_admitted_before_commit", |_| Err(Error::injected()));
    Ok(Admitted {
        asks: lanes,
        leases,
        short,
    })
}

/// What of some lanes fits.
#[derive(Default)]
struct Fit {
    /// Each for as many as fit, in order.
    fitting: Vec<BoundedAsk>,
    /// Classes that got fewer than they asked for.
    short: Vec<(i32, Vec<Shortage>)>,
    /// Lanes for which what comes free is set aside.
    aside: Vec<BoundedAsk>,
}

fn fit(mut book: Book, asks: &[BoundedAsk]) -> Fit {
    let mut all = Fit::default();
    for ask in asks {
        let class = ask.lane.class;
        let wanted = u32::try_from(ask.lane.take).unwrap_or(0);
        let fits = book.fits(&ask.vector, wanted, Some(class));
        book.take_times(&ask.vector, fits);
        if fits < wanted {
            all.short
                .push((class, book.short(&ask.vector, Some(class))));
        }
        if fits > 0 {
            let mut ask = ask.clone();
            ask.lane.take = i32::try_from(fits).unwrap_or(i32::MAX);
            all.fitting.push(ask);
        } else if ask.waited && book.set_aside(&ask.vector, class) {
            all.aside.push(ask.clone());
        }
    }
    all
}

/// For how long something stays set aside where nobody asks again: its run was cancelled, or nobody claims any more.
const ASIDE_MS: i64 = 5_000;

/// Writes down what is set aside; whoever got what it asked for needs that no longer.
async fn set_aside(
    tx: &mut PgConnection,
    aside: &[BoundedAsk],
    served: &[BoundedAsk],
) -> Result<(), Error> {
    let mut given: (Vec<i32>, Vec<i32>, Vec<i64>) = Default::default();
    for ask in aside {
        for part in ask.vector.parts() {
            given.0.push(part.resource);
            given.1.push(ask.lane.class);
            given.2.push(part.amount);
        }
    }
    if !given.0.is_empty() {
        sqlx::query!(
            "UPDATE resources r SET aside_class = a.class, aside_amount = a.amount,
                 aside_until = clock_timestamp() + $4::bigint * interval '1 millisecond'
             FROM unnest($1::integer[], $2::integer[], $3::bigint[]) AS a(resource, class, amount)
             WHERE r.resource = a.resource",
            &given.0,
            &given.1,
            &given.2,
            ASIDE_MS,
        )
        .execute(&mut *tx)
        .await?;
    }
    let waited = served.iter().filter(|ask| ask.waited);
    let (resources, classes): (Vec<i32>, Vec<i32>) = waited
        .flat_map(|ask| {
            let parts = ask.vector.parts().iter();
            parts.map(|part| (part.resource, ask.lane.class))
        })
        .unzip();
    if !resources.is_empty() {
        sqlx::query!(
            "UPDATE resources r SET aside_class = NULL, aside_amount = NULL, aside_until = NULL
             FROM unnest($1::integer[], $2::integer[]) AS s(resource, class)
             WHERE r.resource = s.resource AND r.aside_class = s.class",
            &resources,
            &classes,
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

fn texts(
    asks: &[BoundedAsk],
    number: impl Fn(&tidegate_policy::ledger::Part) -> i64,
) -> Vec<String> {
    let text = |ask: &BoundedAsk| {
        if ask.vector.is_empty() {
            return String::new();
        }
        numbers_as_text(ask.vector.parts().iter().map(&number))
    };
    asks.iter().map(text).collect()
}

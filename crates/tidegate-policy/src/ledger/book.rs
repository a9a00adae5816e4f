//! Counters in memory for one batch: does a vector fit, and what changes.

use std::collections::{BTreeMap, HashMap};

/// So much of one resource, by the key it is stored under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    /// Which.
    pub resource: i32,
    /// How much; above zero.
    pub amount: i64,
}

/// A sum that no counter could hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the amounts of one resource do not fit into a counter")]
pub struct Overflow;

/// What is reserved together: each resource once, in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Vector(Vec<Part>);

impl Vector {
    /// Adds up what is asked of the same resource.
    pub fn of(parts: impl IntoIterator<Item = Part>) -> Result<Self, Overflow> {
        let mut sums: BTreeMap<i32, i64> = BTreeMap::new();
        for part in parts {
            let sum = sums.entry(part.resource).or_default();
            *sum = sum.checked_add(part.amount).ok_or(Overflow)?;
        }
        let parts = sums
            .into_iter()
            .map(|(resource, amount)| Part { resource, amount });
        Ok(Self(parts.collect()))
    }

    /// Its parts, by resource.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Whether it takes nothing that has a bound.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A resource as it stands under the ledger's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// How much of it there is.
    pub capacity: i64,
    /// How much is held.
    pub in_use: i64,
    /// What is set aside for the runs of one requirement class (R7.8).
    pub aside: Option<Aside>,
    /// Whether it was removed, and bounds nothing any more once its last grant is back.
    pub going: bool,
}

/// What comes free of a resource goes to these first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aside {
    /// The requirement class whose runs have waited too long.
    pub class: i32,
    /// How much they need.
    pub amount: i64,
}

impl Counter {
    /// How much can be taken by runs of a class, or by anybody else; never below zero. What is held above a shrunk capacity
    /// takes nothing from anybody.
    pub fn free(&self, class: Option<i32>) -> i64 {
        let aside = match self.aside {
            Some(aside) if Some(aside.class) != class => aside.amount.max(0),
            _ => 0,
        };
        self.capacity
            .saturating_sub(self.in_use)
            .saturating_sub(aside)
            .max(0)
    }
}

/// A resource that a vector does not fit into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Which.
    pub resource: i32,
    /// How much is asked for.
    pub needed: i64,
    /// How much can be taken.
    pub free: i64,
    /// How much there is in all.
    pub capacity: i64,
    /// Whether the resource was removed and goes with its last grant.
    pub going: bool,
}

impl Shortage {
    /// Whether it asks for more than there is: waiting does not help. What is being removed is only waited for.
    pub const fn is_for_ever(&self) -> bool {
        self.needed > self.capacity && !self.going
    }
}

/// The counters that a batch concerns, and what it has changed so far.
#[derive(Debug, Clone, Default)]
pub struct Book {
    counters: HashMap<i32, Counter>,
    changes: BTreeMap<i32, i64>,
}

impl Book {
    /// Begins a batch with counters as they stand.
    pub fn new(counters: impl IntoIterator<Item = (i32, Counter)>) -> Self {
        Self {
            counters: counters.into_iter().collect(),
            changes: BTreeMap::new(),
        }
    }

    /// Every resource that a vector does not fit into; none where it can be taken. A resource that is not there has nothing.
    pub fn short(&self, vector: &Vector, class: Option<i32>) -> Vec<Shortage> {
        let parts = vector.parts().iter();
        parts
            .filter_map(|part| {
                let counter = self.counters.get(&part.resource);
                let free = counter.map_or(0, |counter| counter.free(class));
                (part.amount > free).then(|| Shortage {
                    resource: part.resource,
                    needed: part.amount,
                    free,
                    capacity: counter.map_or(0, |counter| counter.capacity),
                    going: counter.is_some_and(|counter| counter.going),
                })
            })
            .collect()
    }

    /// Takes a whole vector, or says what is short and takes nothing.
    pub fn take(&mut self, vector: &Vector, class: Option<i32>) -> Result<(), Vec<Shortage>> {
        let short = self.short(vector, class);
        if !short.is_empty() {
            return Err(short);
        }
        for part in vector.parts() {
            self.change(part.resource, part.amount);
        }
        Ok(())
    }

    /// Which of several vectors to take: the first that fits, or where they are scored the one that leaves the greatest part
    /// of its tightest resource free; the first of equals. None fits: what each is short of. Taking it is the caller's.
    pub fn choose(
        &self,
        vectors: &[&Vector],
        class: Option<i32>,
        scored: bool,
    ) -> Result<usize, Vec<Vec<Shortage>>> {
        let mut best: Option<(usize, i64)> = None;
        let mut short = Vec::with_capacity(vectors.len());
        for (index, vector) in vectors.iter().enumerate() {
            let lacks = self.short(vector, class);
            if lacks.is_empty() {
                let slack = if scored { self.slack(vector) } else { 0 };
                if best.is_none_or(|(_, most)| slack > most) {
                    best = Some((index, slack));
                }
            }
            short.push(lacks);
        }
        best.map(|(index, _)| index).ok_or(short)
    }

    /// What would be left of the tightest resource of a vector, in millionths of its capacity.
    fn slack(&self, vector: &Vector) -> i64 {
        let left = vector.parts().iter().map(|part| {
            let Some(counter) = self.counters.get(&part.resource) else {
                return 0;
            };
            let left = i128::from(counter.free(None)) - i128::from(part.amount);
            let share = left * 1_000_000 / i128::from(counter.capacity.max(1));
            i64::try_from(share).unwrap_or(0)
        });
        left.min().unwrap_or(i64::MAX)
    }

    /// How many times a vector fits, at most `want`.
    pub fn fits(&self, vector: &Vector, want: u32, class: Option<i32>) -> u32 {
        let most = vector.parts().iter().map(|part| {
            let free = self
                .counters
                .get(&part.resource)
                .map_or(0, |counter| counter.free(class));
            free / part.amount.max(1)
        });
        let most = most.min().unwrap_or(i64::MAX).clamp(0, i64::from(want));
        u32::try_from(most).unwrap_or(0)
    }

    /// Takes a vector so many times, after [`Self::fits`] said that it can be.
    pub fn take_times(&mut self, vector: &Vector, times: u32) {
        for part in vector.parts() {
            self.change(part.resource, part.amount.saturating_mul(i64::from(times)));
        }
    }

    /// Sets a vector aside for a class that has waited too long (R7.8), whole or not at all: where another class has set
    /// aside one of its resources, that one comes first. So two of them never wait for each other.
    pub fn set_aside(&mut self, vector: &Vector, class: i32) -> bool {
        let own = |counter: &Counter| counter.aside.is_none_or(|aside| aside.class == class);
        let parts = vector.parts();
        if !parts
            .iter()
            .all(|part| self.counters.get(&part.resource).is_some_and(own))
        {
            return false;
        }
        for part in parts {
            if let Some(counter) = self.counters.get_mut(&part.resource) {
                counter.aside = Some(Aside {
                    class,
                    amount: part.amount,
                });
            }
        }
        true
    }

    /// Gives back, or charges what was used above a grant: a change of what is held that nothing has to allow.
    pub fn change(&mut self, resource: i32, by: i64) {
        if by == 0 {
            return;
        }
        if let Some(counter) = self.counters.get_mut(&resource) {
            counter.in_use = counter.in_use.saturating_add(by);
        }
        let change = self.changes.entry(resource).or_default();
        *change = change.saturating_add(by);
    }

    /// What the batch has changed in all, by resource; what cancels out is left out.
    pub fn changes(&self) -> impl Iterator<Item = (i32, i64)> + '_ {
        self.changes
            .iter()
            .map(|(resource, by)| (*resource, *by))
            .filter(|(_, by)| *by != 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vector(parts: &[(i32, i64)]) -> Vector {
        let parts = parts
            .iter()
            .map(|&(resource, amount)| Part { resource, amount });
        Vector::of(parts).unwrap()
    }

    const fn counter(capacity: i64, in_use: i64) -> Counter {
        Counter {
            capacity,
            in_use,
            aside: None,
            going: false,
        }
    }

    /// R7.3: the whole vector or nothing of it, with each resource that is short.
    #[test]
    fn a_vector_is_taken_whole_or_not_at_all() {
        let mut book = Book::new([(1, counter(2, 0)), (2, counter(1, 1)), (3, counter(5, 4))]);
        let wanted = vector(&[(3, 2), (1, 1), (2, 1)]);
        let short = book.take(&wanted, None).unwrap_err();
        let resources: Vec<i32> = short.iter().map(|short| short.resource).collect();
        assert_eq!(resources, [2, 3]);
        assert_eq!(book.changes().count(), 0, "nothing was taken");
        book.change(2, -1);
        book.change(3, -2);
        assert_eq!(book.take(&wanted, None), Ok(()));
        assert_eq!(
            book.changes().collect::<Vec<_>>(),
            [(1, 1)],
            "the rest cancels out"
        );
    }

    /// R7.5: what is held above a shrunk capacity is never a negative rest, and an unknown resource has nothing.
    #[test]
    fn nothing_is_free_above_a_shrunk_capacity() {
        let book = Book::new([(1, counter(2, 5))]);
        let short = book.short(&vector(&[(1, 1), (9, 1)]), None);
        assert_eq!((short[0].free, short[1].free), (0, 0));
        assert!(!short[0].is_for_ever() && short[1].is_for_ever());
        assert_eq!(book.fits(&vector(&[(1, 1)]), 9, None), 0);
    }

    /// R7.5: a resource that is being removed admits nothing new until its last grant is back, which is no impossibility.
    #[test]
    fn what_is_being_removed_is_waited_for() {
        let going = Counter {
            going: true,
            ..counter(0, 1)
        };
        let short = Book::new([(1, going)]).short(&vector(&[(1, 1)]), None);
        assert!(!short[0].is_for_ever());
    }

    /// R7.8: what is set aside is for the class it was set aside for.
    #[test]
    fn what_is_set_aside_is_free_for_its_class_alone() {
        let aside = Some(Aside {
            class: 7,
            amount: 3,
        });
        let book = Book::new([(
            1,
            Counter {
                aside,
                ..counter(4, 0)
            },
        )]);
        assert_eq!(book.fits(&vector(&[(1, 1)]), 9, Some(7)), 4);
        assert_eq!(book.fits(&vector(&[(1, 1)]), 9, Some(8)), 1);
        assert_eq!(book.fits(&vector(&[(1, 1)]), 9, None), 1);
    }

    /// R7.8: of two large vectors that share a resource one is set aside, and what comes free is left to it.
    #[test]
    fn one_class_sets_aside_a_resource() {
        let mut book = Book::new([(1, counter(4, 3)), (2, counter(4, 4)), (3, counter(4, 0))]);
        let (large, other) = (vector(&[(1, 3), (2, 1)]), vector(&[(1, 2), (3, 1)]));
        assert!(book.set_aside(&large, 7));
        assert!(book.set_aside(&large, 7), "again");
        assert!(!book.set_aside(&other, 8), "not the half of it");
        assert_eq!(book.fits(&vector(&[(3, 1)]), 9, Some(9)), 4);
        book.change(1, -2);
        assert_eq!(book.fits(&vector(&[(1, 1)]), 9, Some(9)), 0);
        book.change(2, -1);
        assert_eq!(book.fits(&large, 9, Some(7)), 1);
    }

    /// R6.4: scoring chooses among those that fit, and only among them.
    #[test]
    fn the_pool_with_the_most_left_is_chosen_where_pools_are_scored() {
        let book = Book::new([(1, counter(10, 8)), (2, counter(10, 3)), (3, counter(1, 1))]);
        let [tight, roomy, full] = [1, 2, 3].map(|resource| vector(&[(resource, 1)]));
        let all = [&full, &tight, &roomy];
        assert_eq!(book.choose(&all, None, true), Ok(2));
        assert_eq!(book.choose(&all, None, false), Ok(1));
        let none = book.choose(&[&full], None, true).unwrap_err();
        assert_eq!(none[0][0].resource, 3);
        assert_eq!(
            book.choose(&[&roomy, &Vector::default()], None, true),
            Ok(1)
        );
    }

    /// Bad input: amounts that no counter can hold are refused, not wrapped.
    #[test]
    fn amounts_that_overflow_are_refused() {
        let part = |amount| Part {
            resource: 1,
            amount,
        };
        assert_eq!(Vector::of([part(i64::MAX), part(1)]), Err(Overflow));
    }

    proptest! {
        /// R7.3, R7.4: whatever is taken and given back, use stays within capacity and changes add up.
        #[test]
        fn use_stays_within_capacity(
            capacities in proptest::collection::vec(0i64..20, 4),
            steps in proptest::collection::vec((proptest::collection::vec((0i32..4, 1i64..6), 0..4), 0usize..8), 1..60),
        ) {
            let counters = capacities.iter().zip(0..).map(|(&capacity, at)| (at, counter(capacity, 0)));
            let mut book = Book::new(counters);
            let mut held: Vec<Vector> = Vec::new();
            for (parts, other) in steps {
                if other < held.len() {
                    for part in held.swap_remove(other).parts() {
                        book.change(part.resource, -part.amount);
                    }
                }
                let wanted = vector(&parts);
                let fits = book.fits(&wanted, 1, None) == 1;
                prop_assert_eq!(fits, book.take(&wanted, None).is_ok());
                if fits {
                    held.push(wanted);
                }
                for (resource, capacity) in (0..).zip(&capacities) {
                    let sum: i64 = held.iter().flat_map(Vector::parts)
                        .filter(|part| part.resource == resource).map(|part| part.amount).sum();
                    let counted = book.counters[&resource].in_use;
                    prop_assert_eq!(counted, sum);
                    prop_assert!(counted <= *capacity);
                }
            }
        }
    }
}

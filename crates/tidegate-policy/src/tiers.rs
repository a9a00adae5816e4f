//! What a tenant may have at once, and its share (R15.1): its own override, else the row of its tier, else the built-in tier.
//!
//! Where the optional tables are absent there are no rows and no overrides, and everybody has the built-in `standard`.
//! Not done here: what fairness off makes of a cap, see [`crate::buckets::effective_cap`].

use std::{collections::HashMap, fmt, sync::Arc};

use tidegate_model::TenantId;

use crate::buckets::{STANDARD, Tier};

/// A row of the table of tiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierRow {
    /// Its name.
    pub name: Arc<str>,
    /// The soft cap of foreground runs.
    pub foreground: i64,
    /// The hard cap of background runs.
    pub background: i64,
    /// The share beside other tenants.
    pub weight: u32,
}

/// What one tenant has of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Override {
    /// Its tier; `standard` unless given.
    pub tier: Option<String>,
    /// The soft cap of foreground runs.
    pub foreground: Option<i64>,
    /// The hard cap of background runs.
    pub background: Option<i64>,
    /// The share beside other tenants.
    pub weight: Option<u32>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Compiled in.
    BuiltIn(&'static str),
    /// The table of tiers.
    Tier(Arc<str>),
    /// The tenant's own.
    Override,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(name) => write!(f, "built-in tier {name}"),
            Self::Tier(name) => write!(f, "tier {name}"),
            Self::Override => f.write_str("tenant override"),
        }
    }
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub source: Source,
}

/// What a tenant may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    /// The soft cap of foreground runs.
    pub foreground: Sourced<i64>,
    /// The hard cap of background runs.
    pub background: Sourced<i64>,
    /// The share beside other tenants.
    pub weight: Sourced<u32>,
}

impl Shares {
    /// The caps, as claims take them.
    pub const fn caps(&self) -> Tier {
        Tier {
            name: "resolved",
            foreground: self.foreground.value,
            background: self.background.value,
        }
    }
}

/// All that is known of tiers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tiers {
    /// The table of tiers; empty where it is absent.
    pub rows: Vec<TierRow>,
    /// Overrides by tenant.
    pub overrides: HashMap<TenantId, Override>,
}

impl Tiers {
    /// What a tenant may have. A tier that is in no table is the built-in one of that name, else `standard`.
    pub fn of(&self, tenant: &TenantId) -> Shares {
        let own = self.overrides.get(tenant);
        let wanted = own.and_then(|own| own.tier.as_deref());
        let wanted = wanted.unwrap_or(STANDARD.name);
        let row = self.rows.iter().find(|row| *row.name == *wanted);
        let built_in = Tier::built_in(wanted).unwrap_or(STANDARD);
        Shares {
            foreground: pick(
                own.and_then(|own| own.foreground),
                row.map(|row| (row.foreground, &row.name)),
                (built_in.foreground, built_in.name),
            ),
            background: pick(
                own.and_then(|own| own.background),
                row.map(|row| (row.background, &row.name)),
                (built_in.background, built_in.name),
            ),
            weight: pick(
                own.and_then(|own| own.weight),
                row.map(|row| (row.weight, &row.name)),
                (1, built_in.name),
            ),
        }
    }
}

fn pick<T>(own: Option<T>, row: Option<(T, &Arc<str>)>, built_in: (T, &'static str)) -> Sourced<T> {
    match (own, row) {
        (Some(value), _) => Sourced {
            value,
            source: Source::Override,
        },
        (None, Some((value, name))) => Sourced {
            value,
            source: Source::Tier(Arc::clone(name)),
        },
        (None, None) => Sourced {
            value: built_in.0,
            source: Source::BuiltIn(built_in.1),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(shares: &Shares) -> (i64, i64, u32) {
        (
            shares.foreground.value,
            shares.background.value,
            shares.weight.value,
        )
    }

    /// R15.1: without tables everybody is standard; a row wins over what is compiled in, an override over both, value by value.
    #[test]
    fn the_nearest_source_wins_value_by_value() {
        let (acme, globex): (TenantId, TenantId) =
            ("acme".parse().unwrap(), "globex".parse().unwrap());
        let mut tiers = Tiers::default();
        assert_eq!(values(&tiers.of(&acme)), (2, 1, 1));
        assert_eq!(
            tiers.of(&acme).foreground.source.to_string(),
            "built-in tier standard"
        );
        for (name, foreground, background, weight) in [("standard", 3, 2, 1), ("gold", 20, 9, 5)] {
            tiers.rows.push(TierRow {
                name: name.into(),
                foreground,
                background,
                weight,
            });
        }
        assert_eq!(values(&tiers.of(&acme)), (3, 2, 1));
        let own = Override {
            tier: Some("gold".to_owned()),
            background: Some(64),
            ..Override::default()
        };
        tiers.overrides.insert(acme.clone(), own);
        let shares = tiers.of(&acme);
        assert_eq!(values(&shares), (20, 64, 5));
        assert_eq!(shares.background.source.to_string(), "tenant override");
        assert_eq!(shares.weight.source.to_string(), "tier gold");
        assert_eq!(values(&tiers.of(&globex)), (3, 2, 1));
        // The built-in tiers stand behind the table.
        let own = Override {
            tier: Some("plus".to_owned()),
            ..Override::default()
        };
        tiers.overrides.insert(globex.clone(), own);
        assert_eq!(values(&tiers.of(&globex)), (4, 2, 1));
        let lost = Override {
            tier: Some("no-such".to_owned()),
            ..Override::default()
        };
        tiers.overrides.insert(globex.clone(), lost);
        assert_eq!(
            tiers.of(&globex).weight.source,
            Source::BuiltIn(STANDARD.name)
        );
    }
}

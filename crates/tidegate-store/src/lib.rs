//! PostgreSQL: migrations, one module per aggregate, named transactions, row types.
//!
//! No HTTP and no policy of its own: a statement that decides has its policy function, and a test lets both decide.
//!
//! Invariants: rows of a tenant are reached only through [`TenantStore`], work across tenants only through [`Fleet`];
//! a transaction runs in a task of its own, so that a caller who goes away never leaves a connection inside one (O-29);
//! only `attempts` inserts or deletes leases, slots, attempts and ends.

pub mod attempts;
pub mod audit;
pub mod catalog;
pub mod cluster;
pub mod conversations;
pub mod duties;
pub mod effects;
pub mod error;
pub mod events;
pub mod grant_keys;
pub mod instances;
pub mod keys;
pub mod lanes;
pub mod ledger;
pub mod migrate;
pub mod notify;
pub mod pool;
pub mod pools;
pub mod reach;
pub mod read;
pub mod recovery;
pub mod repeats;
pub mod revisions;
pub mod runs;
pub mod schedules;
pub mod secrets;
pub mod tenants;
pub mod transaction;
pub mod vitals;
pub mod written;

pub use error::Error;
pub use pool::{ConnectOptions, connect};
pub use repeats::Intent;
pub use sqlx::PgPool;
pub use written::{Author, Written};

use tidegate_model::TenantId;

/// The embedded migrations.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// The database, for what belongs to no tenant: keys, configuration, pools, instances.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
}

impl Store {
    /// Wraps a pool.
    pub const fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// The pool, for the modules of this crate and the probes of readiness.
    pub const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The only way to rows of a tenant (R2.2). The tenant must come from an authenticated principal.
    pub fn tenant(&self, tenant: &TenantId) -> TenantStore {
        TenantStore {
            store: self.clone(),
            tenant: tenant.clone(),
        }
    }

    /// The only way to work across tenants (R2.2); engine loops hold it, nothing else does.
    pub fn fleet(&self) -> Fleet {
        Fleet {
            store: self.clone(),
        }
    }
}

/// The rows of one tenant.
#[derive(Debug, Clone)]
pub struct TenantStore {
    store: Store,
    tenant: TenantId,
}

impl TenantStore {
    /// Whose rows.
    pub const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The text that every statement binds.
    pub(crate) fn key(&self) -> &str {
        self.tenant.as_str()
    }

    pub(crate) const fn pool(&self) -> &PgPool {
        self.store.pool()
    }

    /// Runs a named transaction; see [`Store::transaction`].
    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }
}

/// Work across tenants: claims, takeover, sweeps, retention.
#[derive(Debug, Clone)]
pub struct Fleet {
    store: Store,
}

impl Fleet {
    pub(crate) const fn pool(&self) -> &PgPool {
        self.store.pool()
    }

    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }
}

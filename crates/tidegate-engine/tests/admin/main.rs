//! Administration on a real database: keys, tenants, catalogue, secrets, configuration over several instances, pools,
//! generations, migrations, Redis.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail loudly"
)]

mod catalog;
mod config;
mod database_tls;
mod generations;
mod grants;
mod isolation;
mod keys;
mod listener;
mod migrations;
mod pooler;
mod pools;
mod readiness;
mod redis;
mod repeats;
mod rig;
mod roles;
mod secrets;
mod tenants;
mod tool_servers;
mod vitals;

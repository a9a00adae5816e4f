//! Administration.

pub mod create_key;
pub mod create_tenant;
pub mod delete_model;
pub mod delete_provider;
pub mod delete_tenant_override;
pub mod delete_tool_server;
pub mod get_policy_generation;
pub mod get_recovery;
pub mod get_tenant;
pub mod get_tenant_limits;
pub mod list_audit;
pub mod list_instances;
pub mod list_keys;
pub mod list_models;
pub mod list_providers;
pub mod list_revisions;
pub mod list_tenants;
pub mod list_tool_servers;
pub mod put_model;
pub mod put_provider;
pub mod put_tenant_override;
pub mod put_tool_server;
pub mod revoke_key;
pub mod set_policy_generation;
pub mod set_tenant_state;

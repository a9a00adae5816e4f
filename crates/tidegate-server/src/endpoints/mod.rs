//! One endpoint per file: its path, its OpenAPI text, and a handler that only translates.

pub mod admin;
pub mod admissions;
pub mod conversations;
pub mod me;
pub mod pools;
pub mod probes;
pub mod runs;
pub mod schedules;
pub mod worker;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::AppState;

/// Served by every instance.
pub(crate) fn always() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(probes::livez::livez))
        .routes(routes!(probes::readyz::readyz))
        .routes(routes!(probes::openapi_json::openapi_json))
        .routes(routes!(probes::metrics::metrics))
        .routes(routes!(probes::grant_keys::published_grant_keys))
        .routes(routes!(me::get_me::get_me))
}

/// Served by instances with the role `chat`.
pub(crate) fn chat() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(
            conversations::create_conversation::create_conversation,
            conversations::list_conversations::list_conversations
        ))
        .routes(routes!(conversations::get_conversation::get_conversation))
        .routes(routes!(conversations::list_messages::list_messages))
        .routes(routes!(conversations::submit_turn::submit_turn))
        .routes(routes!(runs::submit_run::submit_run))
        .routes(routes!(runs::list_runs::list_runs))
        .routes(routes!(runs::get_run::get_run))
        .routes(routes!(runs::stream_events::stream_events))
        .routes(routes!(runs::explain_run::explain_run))
        .routes(routes!(runs::cancel_run::cancel_run))
        .routes(routes!(runs::list_children::list_children))
        .routes(routes!(runs::answer_input::answer_input))
        .routes(routes!(runs::requeue_run::requeue_run))
        .routes(routes!(runs::resolve_run::resolve_run))
        .routes(routes!(runs::cancel_runs::cancel_runs))
        .routes(routes!(runs::requeue_runs::requeue_runs))
        .routes(routes!(schedules::list_schedules::list_schedules))
        .routes(routes!(schedules::put_schedule::put_schedule))
        .routes(routes!(schedules::get_schedule::get_schedule))
        .routes(routes!(schedules::delete_schedule::delete_schedule))
        .routes(routes!(schedules::pause_schedule::pause_schedule))
        .routes(routes!(schedules::resume_schedule::resume_schedule))
        .routes(routes!(me::get_my_limits::get_my_limits))
        .routes(routes!(me::get_my_usage::get_my_usage))
        .merge(for_workers())
        .merge(for_coordinators())
}

/// The worker protocol, served where runs are.
fn for_workers() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(worker::register_worker::register_worker))
        .routes(routes!(worker::worker_heartbeat::worker_heartbeat))
        .routes(routes!(worker::leave_pool::leave_pool))
        .routes(routes!(worker::claim_runs::claim_runs))
        .routes(routes!(worker::renew_leases::renew_leases))
        .routes(routes!(worker::read_context::read_context))
        .routes(routes!(worker::append_events::append_events))
        .routes(routes!(worker::record_intent::record_intent))
        .routes(routes!(worker::record_outcome::record_outcome))
        .routes(routes!(worker::complete_run::complete_run))
        .routes(routes!(worker::fail_run::fail_run))
        .routes(routes!(worker::release_run::release_run))
        .routes(routes!(worker::submit_child::submit_child))
        .routes(routes!(worker::wait_run::wait_run))
}

/// The admissions API.
fn for_coordinators() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(admissions::admit::admit))
        .routes(routes!(admissions::explain_admission::explain_admission))
        .routes(routes!(admissions::get_admission::get_admission))
        .routes(routes!(admissions::renew_admission::renew_admission))
        .routes(routes!(admissions::end_phase::end_phase))
        .routes(routes!(admissions::release_admission::release_admission))
        .routes(routes!(admissions::verify_grant::verify_grant))
}

/// Served by instances with the role `admin`.
pub(crate) fn admin() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(pools::list_pools::list_pools))
        .routes(routes!(pools::publish_descriptor::publish_descriptor))
        .routes(routes!(pools::set_epoch::set_epoch))
        .routes(routes!(pools::revoke_epoch::revoke_epoch))
        .routes(routes!(admin::create_tenant::create_tenant))
        .routes(routes!(admin::list_tenants::list_tenants))
        .routes(routes!(admin::get_tenant::get_tenant))
        .routes(routes!(admin::set_tenant_state::set_tenant_state))
        .routes(routes!(admin::get_tenant_limits::get_tenant_limits))
        .routes(routes!(
            admin::put_tenant_override::put_tenant_override,
            admin::delete_tenant_override::delete_tenant_override
        ))
        .routes(routes!(admin::create_key::create_key))
        .routes(routes!(admin::list_keys::list_keys))
        .routes(routes!(admin::revoke_key::revoke_key))
        .routes(routes!(admin::put_provider::put_provider))
        .routes(routes!(admin::list_providers::list_providers))
        .routes(routes!(admin::delete_provider::delete_provider))
        .routes(routes!(admin::put_model::put_model))
        .routes(routes!(admin::list_models::list_models))
        .routes(routes!(admin::delete_model::delete_model))
        .routes(routes!(admin::put_tool_server::put_tool_server))
        .routes(routes!(admin::list_tool_servers::list_tool_servers))
        .routes(routes!(admin::delete_tool_server::delete_tool_server))
        .routes(routes!(
            admin::get_policy_generation::get_policy_generation,
            admin::set_policy_generation::set_policy_generation
        ))
        .routes(routes!(admin::list_audit::list_audit))
        .routes(routes!(admin::list_revisions::list_revisions))
        .routes(routes!(admin::list_instances::list_instances))
        .routes(routes!(admin::get_recovery::get_recovery))
        .merge(of_the_ledger())
}

/// What an operator does with the ledger and with the keys of grants.
fn of_the_ledger() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(admin::list_resources::list_resources))
        .routes(routes!(
            admin::put_resource::put_resource,
            admin::get_resource::get_resource,
            admin::delete_resource::delete_resource
        ))
        .routes(routes!(admin::list_holders::list_holders))
        .routes(routes!(admin::audit_ledger::audit_ledger))
        .routes(routes!(admin::list_grant_keys::list_grant_keys))
        .routes(routes!(admin::rotate_grant_keys::rotate_grant_keys))
}

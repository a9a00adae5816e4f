//! The one table of routes: what exists, which role of an instance serves it, and who may call it.
//!
//! The router mounts by it, the gate authorises by it, the golden role × route matrix and the walk with foreign ids are
//! made from it. A route that is served but not listed here answers nothing: the gate refuses what it does not find.

use tidegate_engine::settings::Roles;
use tidegate_model::principal::{KeyScope, Role};

/// A method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads.
    Get,
    /// Acts or creates.
    Post,
    /// Creates or replaces under a name.
    Put,
    /// Removes.
    Delete,
}

impl Verb {
    /// The method's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// The verb of a method; `HEAD` is answered by the handler of `GET`.
    pub fn of(method: &http::Method) -> Option<Self> {
        match method.as_str() {
            "GET" | "HEAD" => Some(Self::Get),
            "POST" => Some(Self::Post),
            "PUT" => Some(Self::Put),
            "DELETE" => Some(Self::Delete),
            _ => None,
        }
    }
}

/// Which instances serve a route (R1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mount {
    /// All.
    Always,
    /// Those with the role `chat`.
    Chat,
    /// Those with the role `admin`.
    Admin,
}

impl Mount {
    /// Whether an instance with these roles serves it.
    pub const fn on(self, roles: Roles) -> bool {
        match self {
            Self::Always => true,
            Self::Chat => roles.chat,
            Self::Admin => roles.admin,
        }
    }
}

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone, without a key.
    Anyone,
    /// Keys of these roles.
    Roles(&'static [Role]),
    /// Keys of these roles that also carry the scope.
    RolesWithScope(&'static [Role], KeyScope),
}

impl Access {
    /// The roles that may call; none where no key is asked for.
    pub const fn roles(self) -> &'static [Role] {
        match self {
            Self::Anyone => &[],
            Self::Roles(roles) | Self::RolesWithScope(roles, _) => roles,
        }
    }

    /// The scope that is asked for besides the role.
    pub const fn scope(self) -> Option<KeyScope> {
        match self {
            Self::Anyone | Self::Roles(_) => None,
            Self::RolesWithScope(_, scope) => Some(scope),
        }
    }
}

/// What makes it harmless to send a request again (R3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// It changes nothing.
    Read,
    /// It accepts a run, which keeps the request's `Idempotency-Key`.
    Run,
    /// Its answer is kept with the request's `Idempotency-Key`, in the transaction of what it does.
    Key,
    /// The worker protocol and admissions: writes are told apart by their own ids and fences; a claim whose answer was lost
    /// is a lease that runs out, an admission is found again by its id. A key may be sent and changes nothing.
    Fence,
}

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Its method.
    pub verb: Verb,
    /// Its path with its parameters, for example `/v1/runs/{runId}`.
    pub path: &'static str,
    /// Which instances serve it.
    pub mount: Mount,
    /// Who may call it.
    pub access: Access,
}

/// Every role: for what a key may ask about itself.
const ANY_KEY: &[Role] = Role::ALL;
/// The platform's operator.
const PLATFORM: &[Role] = &[Role::SuperAdmin];
/// The operator, and a tenant's administrator for its own tenant; the engine narrows.
const ADMINISTRATORS: &[Role] = &[Role::SuperAdmin, Role::TenantAdmin];
/// People and programs that work in a tenant.
const TENANT: &[Role] = &[Role::TenantAdmin, Role::Member];
/// All that are bound to a tenant.
const BOUND_TO_TENANT: &[Role] = &[Role::TenantAdmin, Role::Member, Role::Coordinator];
/// Who keeps a queue of its own and asks for admissions.
const COORDINATOR: &[Role] = &[Role::Coordinator];
/// Who may look at admissions.
const WATCHES_ADMISSIONS: &[Role] = &[Role::TenantAdmin, Role::Coordinator];
/// Executors.
const WORKER: &[Role] = &[Role::Worker];
/// Who moves a pool from epoch to epoch.
const POOL_CONTROLLER: &[Role] = &[Role::PoolController];
/// Who may look at pools, and take away what must not be used any more.
const POOL_READERS: &[Role] = &[Role::SuperAdmin, Role::PoolController];

impl Route {
    /// What makes it harmless to send a request again.
    pub fn repeats(&self) -> Repeats {
        match self.path {
            _ if self.verb == Verb::Get => Repeats::Read,
            "/v1/runs" | "/v1/conversations/{conversationId}/turns" => Repeats::Run,
            "/v1/admissions/explain" | "/v1/admissions/{admissionId}/verify" => Repeats::Read,
            path if path.starts_with("/v1/worker/") || path.starts_with("/v1/admissions") => {
                Repeats::Fence
            }
            _ => Repeats::Key,
        }
    }
}

impl Route {
    /// Whether it has parameters in the query: the lists have, and take no others.
    pub fn takes_query(&self) -> bool {
        let list = [
            "/conversations",
            "/messages",
            "/runs",
            "/schedules",
            "/pools",
            "/resources",
            "/tenants",
            "/keys",
            "/providers",
            "/models",
            "/tool-servers",
            "/audit",
            "/revisions",
            "/instances",
        ];
        self.verb == Verb::Get && list.iter().any(|end| self.path.ends_with(end))
    }
}

const fn route(verb: Verb, path: &'static str, mount: Mount, access: Access) -> Route {
    Route {
        verb,
        path,
        mount,
        access,
    }
}

const fn open(path: &'static str) -> Route {
    route(Verb::Get, path, Mount::Always, Access::Anyone)
}

const fn chat(verb: Verb, path: &'static str, roles: &'static [Role]) -> Route {
    route(verb, path, Mount::Chat, Access::Roles(roles))
}

const fn admin(verb: Verb, path: &'static str, roles: &'static [Role]) -> Route {
    route(verb, path, Mount::Admin, Access::Roles(roles))
}

/// The table, in the order of the contract.
pub static ROUTES: &[Route] = &[
    open("/livez"),
    open("/readyz"),
    open("/openapi.json"),
    open("/.well-known/tidegate-keys"),
    route(
        Verb::Get,
        "/metrics",
        Mount::Always,
        Access::RolesWithScope(ANY_KEY, KeyScope::MetricsRead),
    ),
    chat(Verb::Post, "/v1/conversations", TENANT),
    chat(Verb::Get, "/v1/conversations", TENANT),
    chat(Verb::Get, "/v1/conversations/{conversationId}", TENANT),
    chat(
        Verb::Get,
        "/v1/conversations/{conversationId}/messages",
        TENANT,
    ),
    chat(
        Verb::Post,
        "/v1/conversations/{conversationId}/turns",
        TENANT,
    ),
    route(
        Verb::Post,
        "/v1/runs",
        Mount::Chat,
        Access::RolesWithScope(TENANT, KeyScope::RunsBusiness),
    ),
    chat(Verb::Get, "/v1/runs", TENANT),
    chat(Verb::Get, "/v1/runs/{runId}", TENANT),
    chat(Verb::Get, "/v1/runs/{runId}/events", TENANT),
    chat(Verb::Get, "/v1/runs/{runId}/explain", TENANT),
    chat(Verb::Get, "/v1/runs/{runId}/children", TENANT),
    chat(Verb::Post, "/v1/runs/{runId}/inputs", TENANT),
    chat(Verb::Post, "/v1/runs/{runId}/cancel", TENANT),
    chat(Verb::Post, "/v1/runs/{runId}/requeue", TENANT),
    chat(Verb::Post, "/v1/runs/{runId}/resolve", TENANT),
    chat(Verb::Post, "/v1/runs:cancel", TENANT),
    chat(Verb::Post, "/v1/runs:requeue", TENANT),
    chat(Verb::Get, "/v1/schedules", TENANT),
    chat(Verb::Put, "/v1/schedules/{name}", TENANT),
    chat(Verb::Get, "/v1/schedules/{name}", TENANT),
    chat(Verb::Delete, "/v1/schedules/{name}", TENANT),
    chat(Verb::Post, "/v1/schedules/{name}/pause", TENANT),
    chat(Verb::Post, "/v1/schedules/{name}/resume", TENANT),
    chat(Verb::Post, "/v1/admissions", COORDINATOR),
    chat(Verb::Post, "/v1/admissions/explain", BOUND_TO_TENANT),
    chat(
        Verb::Get,
        "/v1/admissions/{admissionId}",
        WATCHES_ADMISSIONS,
    ),
    chat(
        Verb::Post,
        "/v1/admissions/{admissionId}/renew",
        COORDINATOR,
    ),
    chat(
        Verb::Post,
        "/v1/admissions/{admissionId}/phase",
        COORDINATOR,
    ),
    chat(
        Verb::Post,
        "/v1/admissions/{admissionId}/release",
        COORDINATOR,
    ),
    chat(
        Verb::Post,
        "/v1/admissions/{admissionId}/verify",
        COORDINATOR,
    ),
    route(Verb::Get, "/v1/me", Mount::Always, Access::Roles(ANY_KEY)),
    chat(Verb::Get, "/v1/me/limits", BOUND_TO_TENANT),
    chat(Verb::Get, "/v1/me/usage", BOUND_TO_TENANT),
    chat(Verb::Post, "/v1/worker/register", WORKER),
    chat(Verb::Post, "/v1/worker/heartbeat", WORKER),
    chat(Verb::Delete, "/v1/worker/registration", WORKER),
    chat(Verb::Post, "/v1/worker/claim", WORKER),
    chat(Verb::Post, "/v1/worker/renew", WORKER),
    chat(Verb::Post, "/v1/worker/runs/{runId}/context", WORKER),
    chat(Verb::Post, "/v1/worker/runs/{runId}/events", WORKER),
    chat(Verb::Post, "/v1/worker/runs/{runId}/effects", WORKER),
    chat(
        Verb::Post,
        "/v1/worker/runs/{runId}/effects/{callId}",
        WORKER,
    ),
    chat(Verb::Post, "/v1/worker/runs/{runId}/complete", WORKER),
    chat(Verb::Post, "/v1/worker/runs/{runId}/fail", WORKER),
    chat(Verb::Post, "/v1/worker/runs/{runId}/release", WORKER),
    chat(Verb::Post, "/v1/worker/runs/{runId}/children", WORKER),
    chat(Verb::Post, "/v1/worker/runs/{runId}/wait", WORKER),
    admin(Verb::Get, "/v1/pools", POOL_READERS),
    admin(
        Verb::Put,
        "/v1/pools/{poolId}/descriptors/{epoch}",
        POOL_CONTROLLER,
    ),
    admin(Verb::Post, "/v1/pools/{poolId}/epoch", POOL_CONTROLLER),
    admin(Verb::Post, "/v1/pools/{poolId}/revoke", POOL_READERS),
    admin(Verb::Post, "/v1/admin/tenants", PLATFORM),
    admin(Verb::Get, "/v1/admin/tenants", PLATFORM),
    admin(Verb::Get, "/v1/admin/tenants/{tenant}", ADMINISTRATORS),
    admin(Verb::Post, "/v1/admin/tenants/{tenant}/state", PLATFORM),
    admin(
        Verb::Get,
        "/v1/admin/tenants/{tenant}/limits",
        ADMINISTRATORS,
    ),
    admin(Verb::Put, "/v1/admin/tenants/{tenant}/override", PLATFORM),
    admin(
        Verb::Delete,
        "/v1/admin/tenants/{tenant}/override",
        PLATFORM,
    ),
    admin(Verb::Post, "/v1/admin/keys", ADMINISTRATORS),
    admin(Verb::Get, "/v1/admin/keys", ADMINISTRATORS),
    admin(Verb::Delete, "/v1/admin/keys/{keyId}", ADMINISTRATORS),
    admin(Verb::Put, "/v1/admin/providers/{name}", PLATFORM),
    admin(Verb::Get, "/v1/admin/providers", PLATFORM),
    admin(Verb::Delete, "/v1/admin/providers/{name}", PLATFORM),
    admin(Verb::Put, "/v1/admin/models/{name}", PLATFORM),
    admin(Verb::Get, "/v1/admin/models", PLATFORM),
    admin(Verb::Delete, "/v1/admin/models/{name}", PLATFORM),
    admin(Verb::Put, "/v1/admin/tool-servers/{name}", PLATFORM),
    admin(Verb::Get, "/v1/admin/tool-servers", PLATFORM),
    admin(Verb::Delete, "/v1/admin/tool-servers/{name}", PLATFORM),
    admin(Verb::Get, "/v1/admin/policy-generation", POOL_READERS),
    admin(Verb::Post, "/v1/admin/policy-generation", PLATFORM),
    admin(Verb::Get, "/v1/admin/resources", PLATFORM),
    admin(Verb::Put, "/v1/admin/resources/{resource}", PLATFORM),
    admin(Verb::Get, "/v1/admin/resources/{resource}", PLATFORM),
    admin(Verb::Delete, "/v1/admin/resources/{resource}", PLATFORM),
    admin(
        Verb::Get,
        "/v1/admin/resources/{resource}/holders",
        PLATFORM,
    ),
    admin(Verb::Get, "/v1/admin/ledger", PLATFORM),
    admin(Verb::Get, "/v1/admin/grant-keys", PLATFORM),
    admin(Verb::Post, "/v1/admin/grant-keys/rotate", PLATFORM),
    admin(Verb::Get, "/v1/admin/audit", ADMINISTRATORS),
    admin(Verb::Get, "/v1/admin/revisions", PLATFORM),
    admin(Verb::Get, "/v1/admin/instances", PLATFORM),
    admin(Verb::Get, "/v1/admin/recovery", PLATFORM),
];

/// The route of a method and a path as it was registered.
pub fn find(verb: Verb, path: &str) -> Option<&'static Route> {
    ROUTES
        .iter()
        .find(|route| route.verb == verb && route.path == path)
}

/// The methods that a path has, for the header `Allow`.
pub fn allowed(path: &str) -> String {
    let mut verbs: Vec<&str> = Vec::new();
    for route in ROUTES.iter().filter(|route| route.path == path) {
        verbs.push(route.verb.as_str());
        if route.verb == Verb::Get {
            verbs.push("HEAD");
        }
    }
    verbs.join(", ")
}

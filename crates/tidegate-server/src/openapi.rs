//! The OpenAPI 3.1 document, made from the routes that are served and completed from the table of routes.

use utoipa::openapi::{
    ContactBuilder, Content, Info, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref,
    RefOr, Required, ResponseBuilder,
    extensions::ExtensionsBuilder,
    path::{Operation, ParameterBuilder, ParameterIn, PathItem},
    schema::{Object, Type},
    security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    tag::TagBuilder,
};

use tidegate_engine::settings::Roles;

use crate::{
    app,
    extract::IDEMPOTENCY_HEADER as HEADER,
    problem,
    routes::{self, Access, Repeats, Route, Verb},
};

const BEARER: &str = "key";

const TAGS: &[(&str, &str)] = &[
    (
        "probes",
        "Whether an instance lives and should get traffic; the contract; metrics.",
    ),
    ("conversations", "Conversations and their turns."),
    ("runs", "Runs: submit, follow, explain, cancel, put back."),
    (
        "schedules",
        "Schedules of runs: cron expressions in a time zone, what becomes of missed and overlapping due times.",
    ),
    ("me", "What a key may do and what its tenant has and uses."),
    (
        "worker",
        "The protocol of executors. Every write carries the fence of its lease.",
    ),
    ("pools", "Descriptors of pools and the epoch in force."),
    (
        "admin",
        "Tenants, keys, catalogue, audit, revisions, instances.",
    ),
];

/// The contract as the text that is served, committed and compared: keys in order, because extensions are kept in a map
/// whose order changes from process to process.
pub fn openapi_text() -> String {
    // A document of maps and strings always becomes JSON.
    let document = serde_json::to_value(openapi()).unwrap_or_default();
    format!("{document:#}\n")
}

/// The contract of an instance with all roles.
pub fn openapi() -> OpenApi {
    let served = app::endpoints(Roles::ALL).into_openapi();
    let mut document = OpenApiBuilder::new()
        .info(info())
        .paths(served.paths)
        .components(served.components)
        .tags(Some(TAGS.iter().map(|(name, text)| {
            TagBuilder::new()
                .name(*name)
                .description(Some(*text))
                .build()
        })))
        .build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(
        BEARER,
        SecurityScheme::Http(
            Http::builder()
                .scheme(HttpAuthScheme::Bearer)
                .description(Some("An API key, `tg_…`."))
                .build(),
        ),
    );
    let (name, schema) = (
        <tidegate_model::api::Problem as utoipa::ToSchema>::name(),
        <tidegate_model::api::Problem as utoipa::PartialSchema>::schema(),
    );
    components.schemas.insert(name.into_owned(), schema);
    let mut nested = Vec::new();
    <tidegate_model::api::Problem as utoipa::ToSchema>::schemas(&mut nested);
    components.schemas.extend(nested);
    for (path, item) in &mut document.paths.paths {
        complete(path, item);
    }
    document
}

fn info() -> Info {
    InfoBuilder::new()
        .title("Tidegate")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Control plane between many tenants and the agents that work for them. JSON in camelCase, times RFC 3339 \
             UTC, durations in milliseconds. A write takes the header `Idempotency-Key`; those of the worker protocol \
             need none, their fence tells a repeat. Every failure is a problem (RFC 9457) with a stable `code`.",
        ))
        .license(Some(
            LicenseBuilder::new()
                .name("Apache-2.0")
                .identifier(Some("Apache-2.0"))
                .build(),
        ))
        .contact(None::<ContactBuilder>.map(ContactBuilder::build))
        .build()
}

fn complete(path: &str, item: &mut PathItem) {
    let operations = [
        (Verb::Get, &mut item.get),
        (Verb::Post, &mut item.post),
        (Verb::Put, &mut item.put),
        (Verb::Delete, &mut item.delete),
    ];
    for (verb, operation) in operations {
        if let (Some(operation), Some(route)) = (operation, routes::find(verb, path)) {
            describe(operation, route);
        }
    }
}

/// Adds the header by which a write may be sent again.
fn explain_repeats(operation: &mut Operation, repeats: Repeats) {
    let text = match repeats {
        Repeats::Read | Repeats::Fence => return,
        Repeats::Run => {
            "The same key and request give the same run, as long as the run is kept; another request under it is \
             `IDEMPOTENCY_CONFLICT`. 1 to 200 printable ASCII characters."
        }
        Repeats::Key => {
            "The same key and request are done once and answered the same, for at least 24 hours; another request under \
             it is `IDEMPOTENCY_CONFLICT`. A repeat has the header `idempotent-replayed: true`. 1 to 200 printable ASCII \
             characters."
        }
    };
    let parameter = ParameterBuilder::new()
        .name(HEADER)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(text))
        .schema(Some(Object::with_type(Type::String)))
        .build();
    operation
        .parameters
        .get_or_insert_default()
        .push(parameter.into());
}

/// What the table knows: who may call; how it may be sent again; and that every failure is a problem.
fn describe(operation: &mut Operation, route: &Route) {
    let problem = ResponseBuilder::new()
        .description("Any failure.")
        .content(
            problem::MEDIA_TYPE,
            Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem")))),
        )
        .build();
    operation
        .responses
        .responses
        .insert("default".to_owned(), problem.into());
    explain_repeats(operation, route.repeats());
    if route.access == Access::Anyone {
        operation.security = Some(Vec::new());
        return;
    }
    operation.security = Some(vec![SecurityRequirement::new(BEARER, Vec::<String>::new())]);
    let roles: Vec<&str> = route
        .access
        .roles()
        .iter()
        .map(|role| role.as_str())
        .collect();
    let extensions = ExtensionsBuilder::new().add("x-tidegate-roles", roles);
    let extensions = match route.access.scope() {
        Some(scope) => extensions.add("x-tidegate-scope", scope.as_str()),
        None => extensions,
    };
    operation.extensions = Some(extensions.build());
}

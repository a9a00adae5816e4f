//! What a tool server must look like before it is stored: each refusal names its field.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_model::{
    api::{
        HttpTool, HttpTransport, PutToolServer, StdioTransport, StreamableHttpTransport, ToolMount,
        ToolTransport, ToolTransportView,
    },
    ids::CatalogName,
};
use tidegate_policy::{
    egress::Egress,
    tool_names::{NameRefusal, ToolName, assign, is_mountable, is_mounted},
    tool_requests::Template,
};
use tidegate_store::catalog::StoredToolServer;
use url::{Host, Url};

use crate::{Error, checks};

/// The longest program name, argument, or value of the environment or of a header.
const TEXT_MAX: usize = 10_000;
/// The longest address.
const URL_MAX: usize = 2_000;
/// The most arguments, variables, headers, marks or rules.
const ENTRIES_MAX: usize = 1_000;
/// The most tools of an HTTP API.
const HTTP_TOOLS_MAX: usize = 256;
/// The longest description of a tool.
const DESCRIPTION_MAX: usize = 4_000;
/// The largest schema, in bytes.
const SCHEMA_MAX: usize = 64 << 10;
/// The largest answer of an HTTP tool that may be read, in bytes.
const ANSWER_MAX: u32 = 8 << 20;
/// The longest that a call may be allowed to take.
const CALL_TIMEOUT_MAX_MS: u64 = 3_600_000;
/// Headers that belong to the protocols.
const OWN_HEADERS: [&str; 15] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Everything that can be said without looking at other servers.
pub(super) fn check(egress: &Egress, request: &PutToolServer) -> Result<(), Error> {
    match &request.transport {
        ToolTransport::Stdio(stdio) => check_stdio(stdio)?,
        ToolTransport::StreamableHttp(http) => check_streamable(egress, http)?,
        ToolTransport::Http(http) => check_http(egress, http, request)?,
    }
    count("tools", request.tools.len())?;
    count("tenants", request.tenants.as_ref().map_or(0, Vec::len))?;
    for tool in request.tools.keys() {
        checks::filled("tools", tool, checks::LABEL_MAX)?;
    }
    check_mount(&request.mount)?;
    for (field, value, most) in [
        (
            "callTimeoutMs",
            request.call_timeout_ms,
            CALL_TIMEOUT_MAX_MS,
        ),
        (
            "idleTimeoutMs",
            request.idle_timeout_ms,
            request.call_timeout_ms.unwrap_or(60_000),
        ),
    ] {
        if let Some(ms) = value.filter(|ms| !(1..=most).contains(ms)) {
            return Err(Error::invalid(
                field,
                format!("{field} must be 1 to {most}, found {ms}"),
            ));
        }
    }
    Ok(())
}

/// R20.1: names that collide or look alike are refused, with both of them. Of MCP servers only the names that the
/// operator wrote down are known here; the others are judged when a server lists them.
pub(super) fn check_names(
    server: &StoredToolServer,
    mut others: Vec<StoredToolServer>,
) -> Result<(), Error> {
    others.retain(|other| other.name != server.name);
    let known = others.iter().chain([server]).flat_map(known_names);
    let (_, refused) = assign(known);
    let own = refused.iter().find(|(name, _)| name.server == server.name);
    let Some((name, refusal)) = own else {
        return Ok(());
    };
    let remedy = match refusal {
        NameRefusal::NotPlain => "tools are named in printable ASCII",
        _ => "deny one of them in mount.deny, or give this server another mount.prefix",
    };
    Err(Error::invalid(
        "tools",
        format!(
            "{} cannot be mounted: {refusal}; {remedy}",
            name.canonical()
        ),
    ))
}

fn known_names(server: &StoredToolServer) -> BTreeSet<ToolName> {
    let exact = server.mount.allow.iter().flatten();
    let exact = exact.filter(|pattern| !pattern.ends_with('*'));
    let described: Vec<&String> = match &server.transport {
        ToolTransportView::Http { tools, .. } => tools.keys().collect(),
        _ => Vec::new(),
    };
    let domain: &CatalogName = server.mount.prefix.as_ref().unwrap_or(&server.name);
    server
        .tools
        .keys()
        .chain(exact)
        .chain(described.iter().copied())
        .filter(|tool| {
            let marked = server.tools.contains_key(*tool) || described.contains(tool);
            is_mounted(&server.mount, tool, marked)
        })
        .map(|tool| ToolName {
            domain: domain.clone(),
            tool: tool.clone(),
            server: server.name.clone(),
        })
        .collect()
}

fn count(field: &str, found: usize) -> Result<(), Error> {
    if found <= ENTRIES_MAX {
        return Ok(());
    }
    Err(Error::invalid(
        field,
        format!("{field} has {found} entries; at most {ENTRIES_MAX} are allowed"),
    ))
}

fn check_mount(mount: &ToolMount) -> Result<(), Error> {
    let allow = mount.allow.as_deref().unwrap_or_default();
    for (field, patterns) in [
        ("mount.allow", allow),
        ("mount.deny", mount.deny.as_slice()),
    ] {
        count(field, patterns.len())?;
        for pattern in patterns {
            checks::filled(field, pattern, checks::LABEL_MAX)?;
            if pattern.trim_end_matches('*').contains('*') || pattern.ends_with("**") {
                return Err(Error::invalid(
                    field,
                    format!("{field} holds {pattern:?}; a '*' may stand at the end only"),
                ));
            }
        }
    }
    Ok(())
}

fn check_stdio(stdio: &StdioTransport) -> Result<(), Error> {
    checks::filled("transport.stdio.command", &stdio.command, TEXT_MAX)?;
    count("transport.stdio.args", stdio.args.len())?;
    count("transport.stdio.env", stdio.env.len())?;
    for (index, arg) in stdio.args.iter().enumerate() {
        checks::text(&format!("transport.stdio.args[{index}]"), arg, TEXT_MAX)?;
    }
    for (name, value) in &stdio.env {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || name.len() > checks::LABEL_MAX || !name.bytes().all(plain) {
            return Err(Error::invalid(
                "transport.stdio.env",
                "transport.stdio.env has a name that is not made of letters, digits and '_'",
            ));
        }
        // The value is a secret: the message names the variable only.
        if value.contains('\0') || value.len() > TEXT_MAX {
            let field = format!("transport.stdio.env.{name}");
            let detail = format!("{field} holds a NUL byte or more than {TEXT_MAX} bytes");
            return Err(Error::invalid(field, detail));
        }
    }
    Ok(())
}

fn check_streamable(egress: &Egress, http: &StreamableHttpTransport) -> Result<(), Error> {
    check_url(egress, "transport.streamableHttp.url", &http.url)?;
    check_headers("transport.streamableHttp.headers", &http.headers)
}

/// An address that calls may be sent to, without a place for secrets in it. What a name stands for is checked at each
/// connection (O-27); addresses are refused here already.
fn check_url(egress: &Egress, field: &str, text: &str) -> Result<Url, Error> {
    let invalid = |why: String| Err(Error::invalid(field, format!("{field} {why}")));
    checks::filled(field, text, URL_MAX)?;
    let Ok(url) = Url::parse(text) else {
        return invalid("is no URL; give it as https://tools.example/path".to_owned());
    };
    if !matches!(url.scheme(), "http" | "https") {
        return invalid("must begin with https:// or http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return invalid(
            "must not hold a user or password; use headers, which are sealed".to_owned(),
        );
    }
    if url.fragment().is_some() || text.contains('\\') {
        return invalid("must not hold a fragment or a backslash".to_owned());
    }
    let address = match url.host() {
        None => return invalid("has no host".to_owned()),
        Some(Host::Domain(_)) => return Ok(url),
        Some(Host::Ipv4(v4)) => v4.into(),
        Some(Host::Ipv6(v6)) => v6.into(),
    };
    if egress.allows(address) {
        return Ok(url);
    }
    invalid(format!(
        "leads to {address}, which is not public; the operator of this server can allow its network in TIDEGATE_TOOL_NETWORKS"
    ))
}

fn check_headers(field: &str, headers: &BTreeMap<String, String>) -> Result<(), Error> {
    count(field, headers.len())?;
    for (name, value) in headers {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || name.len() > checks::LABEL_MAX || !name.bytes().all(token) {
            return Err(Error::invalid(
                field,
                format!("{field} has a name that is no name of an HTTP header"),
            ));
        }
        if OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            let detail = format!("{field}.{name} belongs to the protocol and cannot be set");
            return Err(Error::invalid(format!("{field}.{name}"), detail));
        }
        // The value is a secret: the message names the header only.
        if value.len() > TEXT_MAX || !value.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            let detail =
                format!("{field}.{name} must be printable ASCII of at most {TEXT_MAX} bytes");
            return Err(Error::invalid(format!("{field}.{name}"), detail));
        }
    }
    Ok(())
}

fn check_http(egress: &Egress, http: &HttpTransport, request: &PutToolServer) -> Result<(), Error> {
    let field = "transport.http.baseUrl";
    if check_url(egress, field, &http.base_url)?.query().is_some() {
        let detail = format!("{field} must not hold a query; write it into the paths of the tools");
        return Err(Error::invalid(field, detail));
    }
    check_headers("transport.http.headers", &http.headers)?;
    let field = "transport.http.tools";
    if !(1..=HTTP_TOOLS_MAX).contains(&http.tools.len()) {
        let found = http.tools.len();
        let detail = format!("{field} must name 1 to {HTTP_TOOLS_MAX} tools, found {found}");
        return Err(Error::invalid(field, detail));
    }
    for (name, tool) in &http.tools {
        if !is_mountable(name) {
            let detail =
                format!("{field} holds a name that is not 1 to 128 printable ASCII letters");
            return Err(Error::invalid(field, detail));
        }
        check_http_tool(&format!("{field}.{name}"), tool)?;
    }
    if let Some(unknown) = request
        .tools
        .keys()
        .find(|name| !http.tools.contains_key(*name))
    {
        let detail = format!("tools marks {unknown:?}, which {field} does not describe");
        return Err(Error::invalid("tools", detail));
    }
    Ok(())
}

fn check_http_tool(field: &str, tool: &HttpTool) -> Result<(), Error> {
    let invalid = |part: &str, why: String| {
        Err(Error::invalid(
            format!("{field}.{part}"),
            format!("{field}.{part} {why}"),
        ))
    };
    if tool.description.trim().is_empty() || tool.description.chars().count() > DESCRIPTION_MAX {
        return invalid(
            "description",
            format!("must have 1 to {DESCRIPTION_MAX} characters"),
        );
    }
    if tool.description.contains('\0') {
        return invalid("description", "must not hold a NUL byte".to_owned());
    }
    if tool.path.len() > URL_MAX {
        return invalid("path", format!("must have at most {URL_MAX} characters"));
    }
    if let Err(why) = check_places(tool) {
        return invalid("path", why);
    }
    if tool.schema["type"] != "object" {
        return invalid(
            "schema",
            "must be a JSON schema of type \"object\"".to_owned(),
        );
    }
    if tool.schema.to_string().len() > SCHEMA_MAX {
        return invalid("schema", format!("must have at most {SCHEMA_MAX} bytes"));
    }
    if let Some(status) = tool.statuses.keys().find(|status| {
        status.len() != 3
            || !status
                .parse()
                .is_ok_and(|status: u16| (200..=599).contains(&status))
    }) {
        return invalid(
            "statuses",
            format!("holds {status:?}; name statuses from 200 to 599"),
        );
    }
    match tool.max_bytes {
        Some(bytes) if !(1..=ANSWER_MAX).contains(&bytes) => invalid(
            "maxBytes",
            format!("must be 1 to {ANSWER_MAX}, found {bytes}"),
        ),
        _ => Ok(()),
    }
}

/// Each place in the path has its argument, and the path has all it needs.
fn check_places(tool: &HttpTool) -> Result<(), String> {
    let template = Template::parse(&tool.path)?;
    let properties = &tool.schema["properties"];
    let mut named = template.arguments().into_iter();
    if let Some(name) = named.find(|name| properties.get(name).is_none()) {
        return Err(format!(
            "names {{{name}}}, which is no property of the schema"
        ));
    }
    let required = tool.schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> = required.filter_map(|name| name.as_str()).collect();
    let mut needed = template.needed().into_iter();
    match needed.find(|name| !required.contains(name)) {
        Some(name) => Err(format!(
            "needs {{{name}}}; list it in the schema's required"
        )),
        None => Ok(()),
    }
}

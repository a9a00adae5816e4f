//! What a running server says of itself.

use std::time::Duration;

use tidegate_client::{Client, RetryPolicy};
use tidegate_model::{
    Code,
    api::{InstanceView, PageQuery, SecretState, ToolServerPhase, ToolServerView},
};

use super::Finding;
use crate::{cli::Context, connection::Who, failure::Failure, output::time, shell};

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clocks further apart than this are worth a word (R4.1).
const SKEW_WARN_MS: i64 = 500;

/// Every check over HTTP.
pub async fn look(context: &Context) -> Vec<Finding> {
    let Ok(anyone) = context.client(Who::Anyone) else {
        return vec![Finding::skip(
            "server",
            "no --url, no TIDEGATE_URL and no profile name one",
        )];
    };
    let patient = |client: Client| client.with_deadline(PATIENCE).with_retry(RetryPolicy::NONE);
    let anyone = patient(anyone);
    let mut findings = Vec::new();
    match anyone.ready().await {
        Ok(readiness) => {
            for check in readiness.checks {
                let found = format!("{}: {}", check.name, check.detail);
                findings.push(if check.ok {
                    Finding::ok("server", found)
                } else {
                    Finding::warn("server", found, "its log says more")
                });
            }
            if !readiness.ready {
                findings.push(Finding::fail(
                    "server",
                    format!("{} is not ready", anyone.base_url()),
                    "see the checks above; a server that drains is replaced, not repaired",
                ));
            }
        }
        Err(error) => {
            let failure = Failure::from(error);
            let usual = || "start one with `tidegate dev` or `tidegate serve`".to_owned();
            findings.push(Finding::fail(
                "server",
                failure.messages.join("; "),
                failure.remedy.unwrap_or_else(usual),
            ));
            return findings;
        }
    }
    match context.client(Who::Admin) {
        Ok(admin) => findings.extend(administration(&patient(admin)).await),
        Err(_) => findings.push(Finding::skip(
            "administration",
            "no administrator's key is at hand",
        )),
    }
    findings
}

async fn administration(admin: &Client) -> Vec<Finding> {
    match inspect(admin).await {
        Ok(findings) => findings,
        Err(error) if matches!(error.code(), Some(Code::Unauthenticated | Code::Forbidden)) => {
            vec![Finding::skip(
                "administration",
                "the key is no administrator's; `--as admin` takes the profile's",
            )]
        }
        Err(error) => vec![Finding::fail("administration", error.to_string(), "")],
    }
}

async fn inspect(admin: &Client) -> tidegate_client::Result<Vec<Finding>> {
    let page = PageQuery {
        limit: Some(200),
        cursor: None,
    };
    let mut findings: Vec<Finding> = Vec::new();
    for instance in admin.instances(&page).await?.items {
        findings.extend(of_instance(&instance));
    }
    for provider in admin.providers(&page).await?.items {
        if provider.api_key == SecretState::Unreadable {
            findings.push(Finding::fail(
                "providers",
                format!("the key of {} cannot be opened", provider.name),
                format!(
                    "`tidegate provider set {} --base-url {} --api-key-stdin`",
                    provider.name,
                    shell::word(&provider.base_url)
                ),
            ));
        }
    }
    for server in admin.tool_servers(&page).await?.items {
        findings.extend(of_tool_server(&server));
    }
    let default = admin
        .models(&page)
        .await?
        .items
        .into_iter()
        .find(|model| model.default);
    findings.push(match default {
        Some(model) => Finding::ok(
            "default model",
            format!("{} (provider {})", model.name, model.provider),
        ),
        None => Finding::warn(
            "default model",
            "none: turns fail with MODEL_NOT_CONFIGURED",
            "`tidegate provider set …`, then `tidegate model set … --default`",
        ),
    });
    Ok(findings)
}

/// Nothing of a server that is as it should be, and of the same trouble on several instances one line each.
fn of_tool_server(server: &ToolServerView) -> Vec<Finding> {
    let name = &server.name;
    if server.secret == SecretState::Unreadable {
        return vec![Finding::fail(
            "tool servers",
            format!("the secrets of {name} cannot be opened"),
            format!("store it again with `tidegate tool set {name}`"),
        )];
    }
    let mut findings = Vec::new();
    for state in &server.states {
        let on = state.instance_id;
        let detail = state.detail.as_deref().unwrap_or("no reason is known");
        match state.phase {
            ToolServerPhase::Ready => {}
            ToolServerPhase::Starting => findings.push(Finding::warn(
                "tool servers",
                format!("{name} is being started on {on}, since {}", state.since),
                "turns do without its tools until then",
            )),
            ToolServerPhase::Waiting => findings.push(Finding::warn(
                "tool servers",
                format!("{name} waits on {on} for one of the processes of that instance"),
                "raise TIDEGATE_MCP_MAX_PROCESSES, or remove a tool server",
            )),
            ToolServerPhase::Down => findings.push(Finding::fail(
                "tool servers",
                format!("{name} is down on {on}: {detail}"),
                format!("it is tried again by itself; see `tidegate tool list`, or set it anew with `tidegate tool set {name}`"),
            )),
        }
        for tool in &state.tools {
            if let Some(why) = &tool.refused {
                findings.push(Finding::warn(
                    "tool servers",
                    format!("{name}/{} is not offered by {on}: {why}", tool.name),
                    "change its mark or the rules of mounting with `tidegate tool set`",
                ));
            }
        }
    }
    findings
}

fn of_instance(instance: &InstanceView) -> Vec<Finding> {
    let id = instance.instance_id;
    if !instance.alive {
        return vec![Finding::warn(
            "instances",
            format!("{id} is gone since {}", time(instance.seen_at)),
            "its runs are taken over by others; its row goes away by itself within a day",
        )];
    }
    let work = if instance.draining {
        "drains and takes no new work"
    } else {
        "takes work"
    };
    let mut findings = vec![Finding::ok(
        "instances",
        format!("{id} {work}; it serves revision {}", instance.revision),
    )];
    if !instance.listening {
        findings.push(Finding::warn(
            "instances",
            format!("{id} hears no notifications and polls"),
            "give it a direct connection: a pooler in transaction mode or a standby delivers none",
        ));
    }
    if instance.clock_skew_ms.abs() > SKEW_WARN_MS {
        findings.push(Finding::warn(
            "instances",
            format!(
                "{id}: its clock is {} ms off the database's",
                instance.clock_skew_ms
            ),
            "set both machines' clocks by NTP; no decision depends on it",
        ));
    }
    findings
}

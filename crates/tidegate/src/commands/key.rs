//! `tidegate key`.

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use tidegate_client::Client;
use tidegate_engine::keys;
use tidegate_model::{
    KeyId, PoolId, TenantId,
    api::{CreateKey, CreatedKey, KeyGrants, KeyView},
    principal::{KeyScope, Role},
    run::ServiceClass,
};
use tidegate_store::Store;

use super::{
    migrate,
    page::{self, PageFlags},
    pool,
    repeat::RepeatFlags,
};
use crate::{
    cli::Context,
    compose::database::{self, Migrations},
    connection::Who,
    exit::Exit,
    failure::{Failure, Outcome},
    output::{Output, facts, or_dash, table, time},
};

/// API keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make the first super_admin key, once; needs the database (CONFIG_DB_URL), which it migrates, not a key
    Bootstrap {
        /// Make another super_admin key where the secret of the first is lost; also needs the CONFIG_ENC_KEY that opens the
        /// database's secrets
        #[arg(long)]
        recover: bool,
    },
    /// Make a key; its secret is shown this once
    Create(Create),
    /// List keys without their secrets
    List(PageFlags),
    /// Revoke a key on every instance
    Revoke {
        /// The key's id, key_…
        key_id: KeyId,
    },
}

/// What the new key may do.
#[derive(Debug, Args)]
pub struct Create {
    /// super_admin, tenant_admin, member, worker, coordinator, pool_controller or resource_owner
    #[arg(long)]
    role: Role,
    /// The tenant of a tenant_admin, member or coordinator
    #[arg(long)]
    tenant: Option<TenantId>,
    /// The pool of a worker
    #[arg(long)]
    pool: Option<PoolId>,
    /// The user that the key stands for
    #[arg(long)]
    user: Option<String>,
    /// runs:business, act_for_users or metrics:read; may be repeated
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<KeyScope>,
    /// The priority that its runs are granted, -100 to 100; 0 unless given
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    grant_priority: Option<i16>,
    /// The service class that its runs are granted (operators only); their kind's default unless given
    #[arg(long, value_name = "CLASS")]
    grant_service_class: Option<ServiceClass>,
    /// A label for people
    #[arg(long)]
    name: Option<String>,
    /// When it ends, for example 2030-01-31T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = crate::time::at)]
    expires_at: Option<DateTime<Utc>>,
    #[command(flatten)]
    repeat: RepeatFlags,
}

impl KeyCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        match self {
            Self::Bootstrap { recover: false } => bootstrap(context).await?,
            Self::Bootstrap { recover: true } => recover(context).await?,
            Self::Create(create) => {
                let body = CreateKey {
                    role: create.role,
                    tenant: create.tenant,
                    pool: create.pool,
                    user: create.user,
                    scopes: create.scopes,
                    grants: KeyGrants {
                        priority: create.grant_priority,
                        service_class: create.grant_service_class,
                    },
                    name: create.name,
                    expires_at: create.expires_at,
                };
                let client = context.client(Who::Admin)?;
                let created = create.repeat.on(&client).create_key(&body).await?;
                if let Err(error) = show_created(output, &created) {
                    client.revoke_key(created.key.key_id).await?;
                    return Err(unseen(&error));
                }
                remark(output, &client, &created.key).await;
            }
            Self::List(page) => {
                let answer = context.client(Who::Admin)?.keys(&page.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
            }
            Self::Revoke { key_id } => {
                context.client(Who::Admin)?.revoke_key(key_id).await?;
                let answer = serde_json::json!({ "keyId": key_id, "revoked": true });
                output.show(&answer, |_| format!("{key_id} is revoked"));
            }
        }
        Ok(Exit::Success)
    }
}

/// A worker's key may come before its pool, which nobody refuses; a wrong name looks the same, so that it is said. The key
/// is made and shown by now: nothing here fails the command.
async fn remark(output: Output, client: &Client, key: &KeyView) {
    let (Role::Worker, Some(pool)) = (key.role, &key.pool) else {
        return;
    };
    match pool::not_in_force(client, pool).await {
        Ok(None) => {}
        Ok(Some(missing)) => output.warn(&missing),
        Err(failure) => output.warn(&format!(
            "whether pool {pool} is published could not be looked up: {}",
            failure.messages.join("; ")
        )),
    }
}

async fn bootstrap(context: &Context) -> Outcome<()> {
    let output = context.output;
    let store = database::open(&context.settings()?.settings)?;
    let by = database::operator();
    let report = database::prepare(&store, &by, Migrations::Apply, None, database::AT_ONCE).await?;
    if let Some(warning) = &report.warning {
        output.warn(warning);
    }
    // Said before the key is asked for: the schema stays changed where that is refused.
    if let Some(version) = report.applied.iter().max() {
        let applied = migrate::applied(&report);
        output.notice(&format!(
            "the database was migrated: {applied}, it is at version {version}"
        ));
    }
    let created = keys::bootstrap(&store, &database::user())
        .await
        .map_err(|error| database::engine_failure(&error))?;
    show_or_take_back(output, &store, &created).await
}

/// Who reads and writes the database could give themselves anything; the key of its secrets proves that it is theirs.
async fn recover(context: &Context) -> Outcome<()> {
    let settings = context.settings()?.settings;
    settings.require_for_serve()?;
    let keyring = database::keyring(&settings)?;
    let store = database::open(&settings)?;
    let by = database::operator();
    let prepared = database::prepare(
        &store,
        &by,
        Migrations::Check,
        Some(&keyring),
        database::AT_ONCE,
    );
    if let Err(failure) = prepared.await {
        if database::is_empty(&store).await {
            let first = "nothing was lost here: `tidegate key bootstrap` makes the tables and the first key";
            return Err(failure.remedy(first));
        }
        return Err(failure);
    }
    database::check_key(&store, &keyring).await?;
    let created = keys::recover(&store, &database::user())
        .await
        .map_err(|error| database::engine_failure(&error))?;
    show_or_take_back(context.output, &store, &created).await
}

async fn show_or_take_back(output: Output, store: &Store, created: &CreatedKey) -> Outcome<()> {
    let Err(error) = show_created(output, created) else {
        return Ok(());
    };
    keys::take_back_bootstrap(store, &database::user(), created.key.key_id)
        .await
        .map_err(|error| database::engine_failure(&error))?;
    Err(unseen(&error))
}

/// A key whose secret nobody has seen was taken back.
fn unseen(error: &std::io::Error) -> Failure {
    Failure::failed(format!(
        "the secret could not be written to standard output ({error}); the key was revoked"
    ))
    .remedy("make room or correct where the output goes, and run the command again")
}

/// Shows a new key with its secret, which nothing shows again.
fn show_created(output: Output, created: &CreatedKey) -> std::io::Result<()> {
    output.try_show(created, |created| {
        facts([
            ("key", Some(created.key.key_id.to_string())),
            ("role", Some(created.key.role.to_string())),
            (
                "tenant",
                created.key.tenant.as_ref().map(ToString::to_string),
            ),
            ("pool", created.key.pool.as_ref().map(ToString::to_string)),
            ("secret", created.secret.clone()),
        ])
    })?;
    if created.secret.is_some() {
        output.note("the secret is shown this once; keep it in TIDEGATE_KEY");
    } else {
        output.note(&format!(
            "the key was made, but the answer with its secret was lost on the way: revoke it with `tidegate key revoke \
             {}` and make another",
            created.key.key_id
        ));
    }
    Ok(())
}

fn list(keys: &[KeyView]) -> String {
    table(
        [
            "key",
            "role",
            "tenant",
            "pool",
            "scopes",
            "name",
            "last used",
            "state",
        ],
        keys.iter().map(|key| {
            let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.as_str()).collect();
            [
                key.key_id.to_string(),
                key.role.to_string(),
                or_dash(key.tenant.as_ref()),
                or_dash(key.pool.as_ref()),
                scopes.join(" "),
                or_dash(key.name.as_deref()),
                or_dash(key.last_used_at.map(time)),
                match (key.revoked_at, key.expires_at) {
                    (Some(at), _) => format!("revoked {}", time(at)),
                    (None, Some(at)) => format!("until {}", time(at)),
                    (None, None) => "valid".to_owned(),
                },
            ]
        }),
    )
}

//! Which server a command speaks to, and with which key: flags, then `TIDEGATE_URL` and `TIDEGATE_KEY`, then the profile.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use secrecy::SecretString;
use tidegate_client::Client;

use crate::{
    exit::Exit,
    failure::{Failure, Outcome},
    profile::{self, Profile},
};

/// How long a command tries in all before it says that it cannot reach the server.
const PATIENCE: Duration = Duration::from_secs(15);

/// Flags of every command that speaks to a server.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub struct Connection {
    /// The server's address, for example http://127.0.0.1:8480 [env: TIDEGATE_URL]
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// The API key; better in TIDEGATE_KEY, because flags are visible in the list of processes
    #[arg(long, global = true, value_name = "KEY", hide_possible_values = true)]
    key: Option<String>,
    /// Which key of the profile to use, for example admin, acme or globex
    // The id stands apart from the `name` that many commands take: clap keeps one value per id.
    #[arg(
        id = "as",
        long = "as",
        global = true,
        value_name = "NAME",
        conflicts_with = "key"
    )]
    name: Option<String>,
    /// The profile that `tidegate dev` wrote [env: TIDEGATE_PROFILE]
    #[arg(long, global = true, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// PEM file with the authority that signed the server's certificate, trusted besides the system's [env: TIDEGATE_CA]
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// Whose key a command takes from the profile unless told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The administrator.
    Admin,
    /// Who publishes descriptors of pools.
    Controller,
    /// A member of a tenant.
    Tenant,
    /// Nobody needs a key.
    Anyone,
}

impl Connection {
    /// A client for this command.
    pub fn client(&self, who: Who) -> Outcome<Client> {
        let profile = self.read_profile()?;
        let url = self
            .url
            .clone()
            .or_else(|| variable("TIDEGATE_URL"))
            .or_else(|| profile.as_ref().map(|profile| profile.url.clone()))
            .ok_or_else(|| {
                Failure::usage("no server is named and no `tidegate dev` has left a profile").remedy(
                    "start one with `tidegate dev`, or give --url and --key (TIDEGATE_URL, TIDEGATE_KEY)",
                )
            })?;
        let mut builder = Client::builder(&url).deadline(PATIENCE);
        if let Some(key) = self.choose_key(profile.as_ref(), who)? {
            builder = builder.key(key);
        }
        let named = self.ca.clone().map(|path| ("--ca", path));
        let ca = named.or_else(|| Some(("TIDEGATE_CA", variable("TIDEGATE_CA")?.into())));
        if let Some((given_by, path)) = ca {
            let pem = std::fs::read(&path).map_err(|error| {
                let what = format!("{given_by}: cannot read {}", path.display());
                Failure::caused(Exit::Usage, what, &error)
            })?;
            builder = builder.ca_pem(pem);
        }
        Ok(builder.build()?)
    }

    fn read_profile(&self) -> Outcome<Option<Profile>> {
        let named = self
            .profile
            .clone()
            .or_else(|| variable("TIDEGATE_PROFILE").map(PathBuf::from));
        if let Some(path) = named {
            let profile = Profile::read(&path)?;
            return profile.map(Some).ok_or_else(|| {
                Failure::usage(format!("there is no profile {}", path.display()))
                    .remedy("`tidegate dev` writes one into its data directory")
            });
        }
        profile::default_path().map_or(Ok(None), |path| Profile::read(&path))
    }

    fn choose_key(&self, profile: Option<&Profile>, who: Who) -> Outcome<Option<SecretString>> {
        let given = self.key.clone().or_else(|| {
            // A named key of the profile is more specific than the environment.
            self.name
                .is_none()
                .then(|| variable("TIDEGATE_KEY"))
                .flatten()
        });
        if let Some(key) = given {
            return Ok(Some(key.into()));
        }
        let keys = profile.map(|profile| &profile.keys);
        if let Some(name) = &self.name {
            let known: Vec<&str> = keys
                .into_iter()
                .flat_map(|keys| keys.keys().map(String::as_str))
                .collect();
            return keys
                .and_then(|keys| keys.get(name))
                .map(|key| Some(key.clone().into()))
                .ok_or_else(|| {
                    Failure::usage(format!("the profile has no key named `{name}`"))
                        .remedy(format!("one of: {}", known.join(", ")))
                });
        }
        let wanted = match who {
            Who::Admin => Some("admin"),
            Who::Controller => Some("controller"),
            Who::Tenant => profile.and_then(|profile| profile.default.as_deref()),
            Who::Anyone => None,
        };
        let key = wanted.and_then(|name| keys?.get(name));
        match key {
            Some(key) => Ok(Some(key.clone().into())),
            None if who == Who::Anyone => Ok(None),
            None => Err(Failure::usage("no API key is given and the profile has none that fits")
                .remedy(
                    "set TIDEGATE_KEY, or make a first key with `tidegate key bootstrap` where the database is at hand",
                )),
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

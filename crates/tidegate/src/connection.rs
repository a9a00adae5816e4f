//! Which server a command speaks to, and with which key: flags, then `TIDEGATE_URL` and `TIDEGATE_KEY`, then the profile.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use secrecy::SecretString;
use tidegate_client::{Client, Error};

use crate::{
    failure::{Failure, Outcome},
    files,
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
    /// Who asks for admissions in a tenant.
    Coordinator,
    /// Nobody needs a key.
    Anyone,
}

/// A value and what gave it, for a refusal to name.
struct Sourced {
    value: String,
    source: String,
}

impl Sourced {
    fn new(value: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            source: source.into(),
        }
    }

    fn of_variable(name: &str) -> Option<Self> {
        variable(name).map(|value| Self::new(value, name))
    }

    /// As a key. One that no header can carry would be taken for a server that cannot be reached; the key is not shown.
    fn into_key(self) -> Outcome<SecretString> {
        if self.value.bytes().all(|byte| byte.is_ascii_graphic()) && !self.value.is_empty() {
            return Ok(self.value.into());
        }
        let at_the_end = self.value.trim_end().bytes().all(|b| b.is_ascii_graphic());
        let what = if at_the_end && !self.value.trim_end().is_empty() {
            "ends in a line break or a space"
        } else {
            "holds a space, a line break or another character that no key has"
        };
        Err(
            Failure::usage(format!("{}: the API key {what}", self.source))
                .remedy("give the key alone, tg_…, as it was shown when it was made"),
        )
    }
}

impl Connection {
    /// A client for this command.
    pub fn client(&self, who: Who) -> Outcome<Client> {
        let profile = self.read_profile()?;
        let url = self.choose_url(profile.as_ref())?;
        let mut builder = Client::builder(&url.value).deadline(PATIENCE);
        if let Some(key) = self.choose_key(profile.as_ref(), who)? {
            builder = builder.key(key.into_key()?);
        }
        let named = self.ca.clone().map(|path| ("--ca", path));
        let ca = named.or_else(|| Some(("TIDEGATE_CA", variable("TIDEGATE_CA")?.into())));
        if let Some((given_by, path)) = ca {
            let pem = files::bytes(given_by, &path)?;
            builder = builder.ca_pem(pem);
        }
        builder.build().map_err(|error| match error {
            // The client knows the address by its variable only.
            Error::Configuration {
                field: "TIDEGATE_URL",
                detail,
            } => Failure::usage(format!("{}: {detail}", url.source)),
            other => other.into(),
        })
    }

    fn choose_url(&self, profile: Option<&Named>) -> Outcome<Sourced> {
        self.url
            .as_ref()
            .map(|url| Sourced::new(url, "--url"))
            .or_else(|| Sourced::of_variable("TIDEGATE_URL"))
            .or_else(|| profile.map(|named| Sourced::new(&named.profile.url, &named.place)))
            .ok_or_else(|| {
                Failure::usage("no server is named and no `tidegate dev` has left a profile").remedy(
                    "start one with `tidegate dev`, or give --url and --key (TIDEGATE_URL, TIDEGATE_KEY)",
                )
            })
    }

    fn read_profile(&self) -> Outcome<Option<Named>> {
        let named = self
            .profile
            .clone()
            .or_else(|| variable("TIDEGATE_PROFILE").map(PathBuf::from));
        if let Some(path) = named {
            let profile = Named::read(&path)?;
            return profile.map(Some).ok_or_else(|| {
                Failure::usage(format!("there is no profile {}", path.display()))
                    .remedy("`tidegate dev` writes one into its data directory")
            });
        }
        profile::default_path().map_or(Ok(None), |path| Named::read(&path))
    }

    fn choose_key(&self, profile: Option<&Named>, who: Who) -> Outcome<Option<Sourced>> {
        if let Some(key) = &self.key {
            return Ok(Some(Sourced::new(key, "--key")));
        }
        if let Some(name) = &self.name {
            // A named key of the profile is more specific than the environment.
            return named_key(profile, name).map(Some);
        }
        if let Some(key) = Sourced::of_variable("TIDEGATE_KEY") {
            return Ok(Some(key));
        }
        let wanted = match who {
            Who::Admin => Some("admin".to_owned()),
            Who::Controller => Some("controller".to_owned()),
            Who::Tenant => profile.and_then(|named| named.profile.default.clone()),
            Who::Coordinator => {
                let tenant = profile.and_then(|named| named.profile.default.as_ref());
                tenant.map(|tenant| coordinator_of(tenant))
            }
            Who::Anyone => None,
        };
        match wanted.and_then(|name| profile?.key(&name)) {
            Some(key) => Ok(Some(key)),
            None if who == Who::Anyone => Ok(None),
            None => Err(Failure::usage("no API key is given and the profile has none that fits")
                .remedy(
                    "set TIDEGATE_KEY, or make a first key with `tidegate key bootstrap` where the database is at hand",
                )),
        }
    }
}

/// The name in a profile of the key that asks for admissions in a tenant.
pub fn coordinator_of(tenant: &str) -> String {
    format!("{tenant}-coordinator")
}

/// A profile and where it was read.
struct Named {
    profile: Profile,
    place: String,
}

impl Named {
    fn read(path: &Path) -> Outcome<Option<Self>> {
        let profile = Profile::read(path)?;
        Ok(profile.map(|profile| Self {
            profile,
            place: format!("the profile {}", path.display()),
        }))
    }

    fn key(&self, name: &str) -> Option<Sourced> {
        let key = self.profile.keys.get(name)?;
        Some(Sourced::new(key, format!("`{name}` in {}", self.place)))
    }
}

fn named_key(profile: Option<&Named>, name: &str) -> Outcome<Sourced> {
    let Some(named) = profile else {
        return Err(
            Failure::usage(format!("--as {name}: there is no profile to take a key from")).remedy(
                "`tidegate dev` writes one; --profile FILE names another, TIDEGATE_KEY gives a key without any",
            ),
        );
    };
    named.key(name).ok_or_else(|| {
        let known: Vec<&str> = named.profile.keys.keys().map(String::as_str).collect();
        let place = &named.place;
        let failure = Failure::usage(format!("--as {name}: {place} has no key of this name"));
        if known.is_empty() {
            failure.remedy("it has no keys at all; give one in TIDEGATE_KEY")
        } else {
            failure.remedy(format!("one of: {}", known.join(", ")))
        }
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    /// Bad input: a name that no profile has is answered with the names that there are, or with where keys come from.
    #[test]
    fn a_key_that_no_profile_has_is_refused_with_what_there_is() {
        let refused = |profile: Option<&Named>| {
            let failure = named_key(profile, "admin").err().expect("refused");
            assert_eq!(failure.exit, Exit::Usage);
            failure.remedy.expect("a remedy")
        };
        let mut named = Named {
            profile: Profile::default(),
            place: "the profile p".to_owned(),
        };
        assert!(refused(None).contains("tidegate dev"));
        assert!(refused(Some(&named)).contains("no keys at all"));
        let keys = &mut named.profile.keys;
        keys.insert("acme".to_owned(), "tg_x".to_owned());
        assert_eq!(refused(Some(&named)), "one of: acme");
        assert!(named_key(Some(&named), "acme").is_ok());
    }
}

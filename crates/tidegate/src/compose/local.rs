//! What a server needs of its own machine, looked at before the database is: files that settings name, and addresses.

use std::path::Path;

use tidegate_engine::settings::Settings;
use tidegate_server::Local;

use crate::failure::{Failure, Outcome, chain};

/// Takes it, or says which setting is at fault (exit code 2). Nothing elsewhere has been asked or changed then.
pub fn take(settings: &Settings) -> Outcome<Local> {
    for (variable, path) in authorities(settings) {
        pem(path).map_err(|found| {
            Failure::usage(format!("{variable}: {} {found}", path.display()))
                .remedy("give a PEM file with certificate authorities, readable by the server, or leave it out")
        })?;
    }
    Local::take(settings).map_err(|error| Failure::usage(chain(&error)))
}

/// Files with certificate authorities, by the variable that names them.
pub fn authorities(settings: &Settings) -> impl Iterator<Item = (&'static str, &Path)> {
    [
        ("TIDEGATE_LLM_EXTRA_CA", &settings.llm_extra_ca),
        ("RATE_LIMIT_REDIS_CA", &settings.rate_limit_redis_ca),
    ]
    .into_iter()
    .filter_map(|(variable, path)| Some((variable, path.as_deref()?)))
}

/// What keeps a file from being one of PEM.
pub fn pem(path: &Path) -> Result<(), String> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.contains("-----BEGIN ") => Ok(()),
        Ok(_) => Err("is no PEM file".to_owned()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

//! Defaults < file < environment < flags.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    SettingProblem, Settings, SettingsError,
    setting::{Setting, Source, Takes},
    table::ENTRIES,
};

/// The file that is read where none is named.
pub const DEFAULT_FILE: &str = "tidegate.toml";
/// Variables with these prefixes are ours, so that an unknown one is a mistake.
const PREFIXES: [&str; 5] = [
    "TIDEGATE_",
    "RUN_EXECUTION_",
    "RUN_RETENTION_",
    "RUN_EVENT_",
    "LLM_PROVIDER_",
];
/// Variables with our prefix that are no settings of a server.
const OTHER_VARIABLES: [&str; 7] = [
    "TIDEGATE_CONFIG",
    "TIDEGATE_URL",
    "TIDEGATE_KEY",
    "TIDEGATE_LLM_API_KEY",
    "TIDEGATE_PROFILE",
    "TIDEGATE_CA",
    "TIDEGATE_PG_WHEEL",
];
/// A guess is offered only up to this distance; beyond it would confuse.
const NEAREST_MAX: f64 = 0.6;

/// Where settings come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A file that was named; it must exist. Else `tidegate.toml` of `directory` is read where there is one.
    pub file: Option<PathBuf>,
    /// The working directory.
    pub directory: PathBuf,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// Flags: the setting's name and the text.
    pub flags: Vec<(String, String)>,
    /// Settings, by name, that the command has values of its own for: what is given for them is neither checked nor taken.
    pub ignored: &'static [&'static str],
}

impl Sources {
    /// The process's own environment and working directory. Variables that are not Unicode are left out: none of ours
    /// could be.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        let environment: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            file: file.or_else(|| {
                let named = environment.get("TIDEGATE_CONFIG")?;
                (!named.is_empty()).then(|| PathBuf::from(named))
            }),
            directory: PathBuf::from("."),
            environment,
            flags,
            ignored: &[],
        }
    }
}

/// Settings with the source of each.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The values.
    pub settings: Settings,
    sources: BTreeMap<&'static str, Source>,
}

impl Loaded {
    /// Where a setting's value came from.
    pub fn source(&self, name: &str) -> Source {
        self.sources.get(name).cloned().unwrap_or(Source::Default)
    }
}

/// Reads all sources, or says everything that is wrong with them.
pub fn load(sources: &Sources) -> Result<Loaded, SettingsError> {
    let mut loader = Loader {
        loaded: Loaded {
            settings: Settings::default(),
            sources: BTreeMap::new(),
        },
        problems: Vec::new(),
        ignored: sources.ignored,
    };
    loader.file(sources);
    loader.environment(&sources.environment);
    for (name, text) in &sources.flags {
        loader.flag(name, text);
    }
    if loader.problems.is_empty() {
        loader.problems = loader.loaded.settings.broken_relations();
    }
    if loader.problems.is_empty() {
        Ok(loader.loaded)
    } else {
        Err(SettingsError {
            problems: loader.problems,
        })
    }
}

struct Loader {
    loaded: Loaded,
    problems: Vec<SettingProblem>,
    ignored: &'static [&'static str],
}

impl Loader {
    fn file(&mut self, sources: &Sources) {
        let (path, named) = match &sources.file {
            Some(path) => (path.clone(), true),
            None => (sources.directory.join(DEFAULT_FILE), false),
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if !named && error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                let reason = error.to_string();
                return self.problems.push(SettingProblem::File { path, reason });
            }
        };
        match text.parse::<toml::Table>() {
            Ok(table) => self.table(&path, table),
            // The parser's own text repeats the line at fault, which may hold a secret.
            Err(error) => self.problems.push(SettingProblem::File {
                reason: format!("{} ({})", error.message(), place_of(&text, error.span())),
                path,
            }),
        }
    }

    fn table(&mut self, path: &Path, table: toml::Table) {
        for (key, value) in table {
            let Some(index) = ENTRIES.iter().position(|entry| entry.setting.key == key) else {
                let known = ENTRIES.iter().map(|entry| entry.setting.key);
                // `lease_ms` for `leaseMs` is the commonest slip.
                let nearest = ENTRIES
                    .iter()
                    .find(|entry| entry.setting.name == key || entry.setting.env == key)
                    .map(|entry| entry.setting.key.to_owned())
                    .or_else(|| nearest(&key, known));
                self.problems.push(SettingProblem::UnknownKey {
                    path: path.to_owned(),
                    key,
                    nearest,
                });
                continue;
            };
            let setting = &ENTRIES[index].setting;
            let place = format!("{}: key `{}`", path.display(), setting.key);
            match text_of(setting, &value) {
                Ok(text) => self.set(index, place, &text, Source::File(path.to_owned())),
                Err(found) => self.problems.push(SettingProblem::BadValue {
                    place,
                    found,
                    allowed: setting.allowed(),
                }),
            }
        }
    }

    fn environment(&mut self, environment: &BTreeMap<String, String>) {
        for (index, entry) in ENTRIES.iter().enumerate() {
            let env = entry.setting.env;
            if let Some(text) = environment.get(env).filter(|text| !text.is_empty()) {
                self.set(index, env.to_owned(), text, Source::Environment(env));
            }
        }
        for name in environment.keys() {
            let ours = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            let known = ENTRIES.iter().any(|entry| entry.setting.env == name)
                || OTHER_VARIABLES.contains(&name.as_str());
            if ours && !known {
                let names = ENTRIES.iter().map(|entry| entry.setting.env);
                self.problems.push(SettingProblem::UnknownVariable {
                    name: name.clone(),
                    nearest: nearest(name, names.chain(OTHER_VARIABLES)),
                });
            }
        }
    }

    fn flag(&mut self, name: &str, text: &str) {
        let flag = format!("--{}", name.replace('_', "-"));
        match ENTRIES
            .iter()
            .position(|entry| entry.setting.name == name && !entry.setting.secret)
        {
            Some(index) => self.set(index, flag.clone(), text, Source::Flag(flag)),
            None => self.problems.push(SettingProblem::Relation(format!(
                "{flag} is no flag of a setting; `tidegate config` lists all settings"
            ))),
        }
    }

    fn set(&mut self, index: usize, place: String, text: &str, source: Source) {
        let entry = &ENTRIES[index];
        let setting = &entry.setting;
        if self.ignored.contains(&setting.name) {
            self.loaded.sources.insert(setting.name, source);
            return;
        }
        let found = match setting.rule.check(text) {
            Err(found) => found,
            Ok(()) if (entry.set)(&mut self.loaded.settings, text) => {
                self.loaded.sources.insert(setting.name, source);
                return;
            }
            Ok(()) => "something else".to_owned(),
        };
        self.problems.push(SettingProblem::BadValue {
            place,
            found: if setting.secret { found } else { quoted(text) },
            allowed: setting.allowed(),
        });
    }
}

/// The text of a value in the file, or what was found in its place.
fn text_of(setting: &Setting, value: &toml::Value) -> Result<String, String> {
    match (setting.takes, value) {
        (Takes::Integer, toml::Value::Integer(number)) => Ok(number.to_string()),
        (Takes::Switch, toml::Value::Boolean(on)) => Ok(if *on { "on" } else { "off" }.to_owned()),
        (
            Takes::Text | Takes::Switch | Takes::List | Takes::OneOf(_),
            toml::Value::String(text),
        ) => Ok(text.clone()),
        (Takes::List, toml::Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().ok_or_else(|| shape(item).to_owned()))
            .collect::<Result<Vec<&str>, String>>()
            .map(|items| items.join(",")),
        (_, other) => Err(shape(other).to_owned()),
    }
}

const fn shape(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::String(_) => "a string",
        toml::Value::Integer(_) => "an integer",
        toml::Value::Float(_) => "a number with a fraction",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Datetime(_) => "a time",
        toml::Value::Array(_) => "an array",
        toml::Value::Table(_) => "a table",
    }
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    let cut = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{cut}")
}

fn place_of(text: &str, span: Option<std::ops::Range<usize>>) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else {
        return "somewhere in the file".to_owned();
    };
    format!("line {}", before.matches('\n').count() + 1)
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    known
        .map(|other| {
            let alike = strsim::normalized_damerau_levenshtein(&lower, &other.to_ascii_lowercase());
            (alike, other)
        })
        .filter(|(alike, _)| *alike >= NEAREST_MAX)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, other)| other.to_owned())
}

#[cfg(test)]
mod tests;

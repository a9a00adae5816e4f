use secrecy::ExposeSecret;

use super::super::{Rule, Source, Takes, table::table};
use super::*;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn from_environment(pairs: &[(&str, &str)]) -> Result<Loaded, SettingsError> {
    load(&Sources {
        directory: PathBuf::from("/nonexistent"),
        environment: pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Sources::default()
    })
}

fn from_file(text: &str) -> Result<Loaded, SettingsError> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(DEFAULT_FILE), text).unwrap();
    load(&Sources {
        directory: dir.path().to_owned(),
        ..Sources::default()
    })
}

fn refusal(result: Result<Loaded, SettingsError>) -> String {
    result.unwrap_err().to_string()
}

/// R1.4: defaults < file < environment < flags, and each value knows its source.
#[test]
fn the_stronger_source_wins_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my.toml");
    std::fs::write(&file, "leaseMs = 40000\nrenewMs = 8000\ngraceMs = 1\n").unwrap();
    let loaded = load(&Sources {
        file: Some(file.clone()),
        directory: dir.path().to_owned(),
        environment: [
            ("TIDEGATE_LEASE_MS", "50000"),
            ("TIDEGATE_RENEW_MS", "7000"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        flags: vec![("lease_ms".to_owned(), "60000".to_owned())],
        ..Sources::default()
    })
    .unwrap();
    let settings = &loaded.settings;
    assert_eq!(
        (
            settings.lease_ms,
            settings.renew_ms,
            settings.grace_ms,
            settings.max_attempts
        ),
        (60_000, 7_000, 1, 5)
    );
    assert_eq!(
        loaded.source("lease_ms"),
        Source::Flag("--lease-ms".to_owned())
    );
    assert_eq!(
        loaded.source("renew_ms"),
        Source::Environment("TIDEGATE_RENEW_MS")
    );
    assert_eq!(loaded.source("grace_ms"), Source::File(file));
    assert_eq!(loaded.source("max_attempts"), Source::Default);
}

/// R1.4: unknown keys are an error that names the nearest known key.
#[test]
fn unknown_names_are_refused_with_the_nearest() {
    for (text, nearest) in [
        ("leasMs = 1", "leaseMs"),
        ("lease_ms = 1", "leaseMs"),
        ("rateLimitRedisURL = 'redis://h'", "rateLimitRedisUrl"),
    ] {
        let message = refusal(from_file(text));
        assert!(
            message.contains(&format!("did you mean `{nearest}`")),
            "{message}"
        );
    }
    for (name, nearest) in [
        ("TIDEGATE_LEASE", "TIDEGATE_LEASE_MS"),
        ("RUN_EXECUTION_CONCURENCY", "RUN_EXECUTION_CONCURRENCY"),
        ("LLM_PROVIDER_MAX_INFLIGHT", "LLM_PROVIDER_MAX_IN_FLIGHT"),
    ] {
        let message = refusal(from_environment(&[(name, "1")]));
        assert_eq!(
            message,
            format!(
                "unknown environment variable {name}; did you mean `{nearest}`? `tidegate config` lists all settings"
            )
        );
    }
    let message = refusal(from_environment(&[("TIDEGATE_ZZZZZZZZZZZZZZZZZZZZZ", "1")]));
    assert!(!message.contains("did you mean"), "{message}");
    assert!(from_environment(&[("TIDEGATE_URL", "http://x"), ("HOME", "/h")]).is_ok());
}

/// R1.4: a bad value names the variable, what was found and what is allowed.
#[test]
fn bad_values_say_where_what_and_what_is_allowed() {
    for (name, value, message) in [
        (
            "TIDEGATE_LEASE_MS",
            "soon",
            "TIDEGATE_LEASE_MS: found \"soon\"; allowed: an integer from 200 to 3600000",
        ),
        (
            "TIDEGATE_MAX_ATTEMPTS",
            "99999999999999999999",
            "TIDEGATE_MAX_ATTEMPTS: found \"99999999999999999999\"; allowed: an integer from 1 to 100",
        ),
        (
            "RUN_EXECUTION_CONCURRENCY",
            "-1",
            "RUN_EXECUTION_CONCURRENCY: found \"-1\"; allowed: an integer from 0 to 1000",
        ),
        (
            "RUN_FAIRNESS",
            "maybe",
            "RUN_FAIRNESS: found \"maybe\"; allowed: on or off",
        ),
        (
            "TIDEGATE_ROLES",
            "chat,worker",
            "TIDEGATE_ROLES: found \"chat,worker\"; allowed: chat, admin, or both, comma separated",
        ),
        (
            "TIDEGATE_LOG_FORMAT",
            "xml",
            "TIDEGATE_LOG_FORMAT: found \"xml\"; allowed: one of: text, json",
        ),
        (
            "TIDEGATE_LISTEN",
            "8480",
            "TIDEGATE_LISTEN: found \"8480\"; allowed: address:port, for example 127.0.0.1:8480",
        ),
    ] {
        assert_eq!(refusal(from_environment(&[(name, value)])), message);
    }
    let message = refusal(from_file("leaseMs = \"30000\"\nroles = [1]\n"));
    assert!(
        message.contains("key `leaseMs`: found a string; allowed: an integer"),
        "{message}"
    );
    assert!(
        message.contains("key `roles`: found an integer"),
        "{message}"
    );
}

/// R1.1, R1.8: a refused secret is not shown.
#[test]
fn no_message_shows_a_secret() {
    for (name, value) in [
        ("CONFIG_DB_URL", "mysql://u:hunter2@h/d"),
        ("CONFIG_ENC_KEY", "hunter2"),
        ("CONFIG_ENC_KEY_PREVIOUS", "aHVudGVyMg=="),
        ("RATE_LIMIT_REDIS_URL", "hunter2"),
    ] {
        let message = refusal(from_environment(&[(name, value)]));
        assert!(
            message.starts_with(name) && message.contains("allowed: "),
            "{message}"
        );
        assert!(
            !message.contains("hunter2") && !message.contains("aHVudGVyMg"),
            "{message}"
        );
    }
    let message = refusal(from_file("databaseUrl = \"postgres://u:hunter2@h/d\nx = 1"));
    assert!(
        message.contains("line 1") && !message.contains("hunter2"),
        "{message}"
    );

    let loaded = from_environment(&[
        ("CONFIG_DB_URL", "postgres://u:hunter2@h/d?password=hunter2"),
        ("CONFIG_ENC_KEY", KEY),
    ])
    .unwrap();
    let shown = format!("{:?} {:?}", loaded.rows(), loaded.settings);
    assert!(
        !shown.contains("hunter2") && !shown.contains(KEY),
        "{shown}"
    );
    assert!(shown.contains("postgres://(redacted)@h/d"));
    assert_eq!(
        loaded
            .settings
            .enc_key
            .map(|key| key.expose_secret().to_owned()),
        Some(KEY.to_owned())
    );
}

/// R1.1: where both are missing both are named, with how to get a value.
#[test]
fn what_serve_needs_is_named_all_at_once() {
    let loaded = from_environment(&[("CONFIG_DB_URL", ""), ("CONFIG_ENC_KEY", "")]).unwrap();
    let message = loaded.settings.require_for_serve().unwrap_err().to_string();
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines.len(), 2, "{message}");
    assert!(lines[0].starts_with("CONFIG_DB_URL is not set") && lines[0].contains("postgres://"));
    assert!(
        lines[1].starts_with("CONFIG_ENC_KEY is not set")
            && lines[1].contains("openssl rand -base64 32")
    );
}

#[test]
fn contradictions_are_refused_by_name() {
    for (pairs, names) in [
        (
            &[("TIDEGATE_LEASE_MS", "27000")][..],
            ["TIDEGATE_LEASE_MS", "TIDEGATE_RENEW_MS"],
        ),
        (
            &[("TIDEGATE_BACKOFF_MAX_MS", "10")],
            ["TIDEGATE_BACKOFF_BASE_MS", "TIDEGATE_BACKOFF_MAX_MS"],
        ),
        (
            &[("TIDEGATE_LISTENER_DEAD_MS", "5000")],
            [
                "TIDEGATE_LISTENER_DEAD_MS",
                "TIDEGATE_LISTENER_HEARTBEAT_MS",
            ],
        ),
        (
            &[("TIDEGATE_TLS_CERT", "c.pem")],
            ["TIDEGATE_TLS_CERT", "TIDEGATE_TLS_KEY"],
        ),
        (
            &[("TIDEGATE_METRICS_LISTEN", "127.0.0.1:8480")],
            ["TIDEGATE_METRICS_LISTEN", "TIDEGATE_LISTEN"],
        ),
    ] {
        let message = refusal(from_environment(pairs));
        assert!(names.iter().all(|name| message.contains(name)), "{message}");
    }
}

#[test]
fn a_named_file_must_exist_and_be_toml() {
    let missing = load(&Sources {
        file: Some("/nonexistent/t.toml".into()),
        ..Sources::default()
    });
    assert!(refusal(missing).contains("cannot use the configuration file /nonexistent/t.toml"));
    assert!(refusal(from_file("a = = 1")).contains("line 1"));
}

/// R1.9: every setting says its scope, and the table has no name twice.
#[test]
fn the_table_is_sound() {
    assert!(Settings::default().broken_relations().is_empty());
    let mut seen = std::collections::BTreeSet::new();
    for setting in table() {
        for (what, name) in [
            ("name", setting.name),
            ("env", setting.env),
            ("key", setting.key),
        ] {
            assert!(seen.insert((what, name)), "{what} {name} twice");
        }
        let meaning = setting.meaning;
        assert!(
            !meaning.is_empty() && !meaning.contains('\n'),
            "{}",
            setting.name
        );
        let bounded = matches!(setting.rule, Rule::Range(..) | Rule::ZeroOr(..));
        assert_eq!(setting.takes == Takes::Integer, bounded, "{}", setting.name);
    }
    let markdown = super::super::markdown();
    assert!(table().all(|setting| markdown.contains(setting.env)));
}

/// R1.9: what the requirement counts per instance says so, and what is shared through the database says that.
#[test]
fn settings_say_how_far_they_reach() {
    use tidegate_model::api::LimitScope;
    for setting in table() {
        let per_instance = ["RUN_EXECUTION_", "LLM_PROVIDER_"]
            .iter()
            .any(|prefix| setting.env.starts_with(prefix));
        if per_instance {
            assert_eq!(setting.scope, LimitScope::Instance, "{}", setting.env);
        }
        let decides_for_all = [
            "TIDEGATE_LEASE_MS",
            "TIDEGATE_MAX_ATTEMPTS",
            "TIDEGATE_QUEUE_MAX_AGE_MS",
            "RUN_FAIRNESS",
        ];
        if decides_for_all.contains(&setting.env) {
            assert_eq!(setting.scope, LimitScope::Cluster, "{}", setting.env);
        }
    }
}

/// R1.4: each feature once; one that is not built is off and says so, one that is always on cannot be off.
#[test]
fn features_are_told_as_they_are() {
    let features = super::super::features(&Settings::default());
    let mut names = std::collections::BTreeSet::new();
    for feature in &features {
        assert!(names.insert(feature.name), "{} twice", feature.name);
        let missing = feature.switch == "not in this release";
        assert_eq!(missing, !feature.built, "{}", feature.name);
        assert!(feature.built || !feature.on_by_default, "{}", feature.name);
        assert_eq!(feature.on_here, feature.on_by_default, "{}", feature.name);
    }
}

/// Every default can be written in a file or a variable and comes back the same.
#[test]
fn defaults_survive_their_own_text() {
    let defaults = from_environment(&[]).unwrap();
    let pairs: Vec<(String, String)> = defaults
        .rows()
        .into_iter()
        .filter(|row| !row.secret)
        .filter_map(|row| Some((row.env.to_owned(), row.value?)))
        .collect();
    let again = load(&Sources {
        environment: pairs.into_iter().collect(),
        ..Sources::default()
    })
    .unwrap();
    let values = |loaded: &Loaded| {
        loaded
            .rows()
            .into_iter()
            .map(|row| row.value)
            .collect::<Vec<_>>()
    };
    assert_eq!(values(&defaults), values(&again));
}

/// Bad input (R1.2): a command with a database and a key of its own takes none from the environment, whatever stands there.
#[test]
fn what_a_command_has_of_its_own_is_neither_checked_nor_taken() {
    let environment = [
        ("CONFIG_ENC_KEY", "no key"),
        ("CONFIG_DB_URL", "no address"),
    ];
    let refusal = refusal(from_environment(&environment));
    assert!(refusal.contains("CONFIG_ENC_KEY"), "{refusal}");
    let loaded = load(&Sources {
        environment: environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ignored: &["database_url", "enc_key"],
        ..Sources::default()
    })
    .unwrap();
    assert!(loaded.settings.enc_key.is_none() && loaded.settings.database_url.is_none());
    assert_eq!(
        loaded.source("enc_key"),
        Source::Environment("CONFIG_ENC_KEY")
    );
}

use std::collections::BTreeMap;

use secrecy::ExposeSecret as _;
use tidegate_engine::{Engine, catalog, ops};
use tidegate_model::{
    Code,
    api::{
        PageQuery, ProviderKind, PutModel, PutProvider, PutToolServer, SecretState,
        SideEffectLevel, StdioTransport, ToolMount, ToolTransport,
    },
};

use crate::rig::{World, id, operator, refused, whole_database};

const CANARY: &str = "sk-canary-91c4";
const CANARY_HEX: &str = "736b2d63616e6172792d39316334";

pub fn provider(url: &str, key: Option<&str>) -> PutProvider {
    PutProvider {
        kind: ProviderKind::OpenAiCompatible,
        base_url: url.to_owned(),
        api_key: key.map(str::to_owned),
        max_in_flight: Some(3),
        rpm: None,
        max_queue: Some(0),
        queue_timeout_ms: Some(0),
    }
}

pub fn tool_server(env: &[(&str, &str)]) -> PutToolServer {
    let env = env.iter();
    PutToolServer {
        transport: ToolTransport::Stdio(StdioTransport {
            command: "mcp-server-git".to_owned(),
            args: vec!["--repository".to_owned(), ".".to_owned()],
            env: env
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        }),
        mount: ToolMount::default(),
        tools: BTreeMap::from([("git_log".to_owned(), SideEffectLevel::Read)]),
        tenants: None,
        call_timeout_ms: None,
        idle_timeout_ms: None,
    }
}

async fn put(engine: &Engine, name: &str, key: Option<&str>) {
    let request = provider("https://api.example/v1", key);
    catalog::put_provider(engine, &operator(), id(name), request)
        .await
        .unwrap();
}

/// R1.8: a key is kept, replaced and removed; it is never shown.
#[tokio::test]
async fn a_providers_key_is_kept_replaced_and_removed() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let key_of = async |engine: &Engine| {
        let catalog = catalog::resolved(engine).await.unwrap();
        let provider = &catalog.providers[0];
        provider
            .api_key
            .as_ref()
            .map(|key| key.expose_secret().to_owned())
    };
    put(&engine, "openai", Some("one")).await;
    assert_eq!(key_of(&engine).await.as_deref(), Some("one"));
    put(&engine, "openai", None).await;
    assert_eq!(
        key_of(&engine).await.as_deref(),
        Some("one"),
        "absent keeps it"
    );
    put(&engine, "openai", Some("two")).await;
    assert_eq!(key_of(&engine).await.as_deref(), Some("two"));
    put(&engine, "openai", Some("")).await;
    assert_eq!(key_of(&engine).await, None, "empty removes it");
    let listed = catalog::list_providers(&engine, &operator()).await.unwrap();
    assert_eq!(listed[0].api_key, SecretState::Absent);
    assert_eq!(
        (listed[0].max_in_flight, listed[0].max_queue),
        (Some(3), Some(0))
    );
}

#[tokio::test]
async fn models_need_their_provider_and_one_is_the_default() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let admin = operator();
    let model = |default| PutModel {
        provider: id("openai"),
        upstream_model: "gpt".to_owned(),
        default,
    };
    let orphan = catalog::put_model(&engine, &admin, id("fast"), model(true))
        .await
        .unwrap_err();
    assert_eq!(orphan.problem().field.as_deref(), Some("provider"));
    put(&engine, "openai", None).await;
    catalog::put_model(&engine, &admin, id("fast"), model(true))
        .await
        .unwrap();
    catalog::put_model(&engine, &admin, id("smart"), model(true))
        .await
        .unwrap();
    let resolved = catalog::resolved(&engine).await.unwrap();
    assert_eq!(resolved.default_model().unwrap().name, id("smart"));
    assert_eq!(resolved.models.iter().filter(|m| m.is_default).count(), 1);
    let used = catalog::delete_provider(&engine, &admin, &id("openai"))
        .await
        .unwrap_err();
    assert_eq!(used.code(), Code::StateConflict);
    assert!(used.to_string().contains("fast, smart"), "{used}");
    for name in ["fast", "smart"] {
        catalog::delete_model(&engine, &admin, &id(name))
            .await
            .unwrap();
    }
    catalog::delete_provider(&engine, &admin, &id("openai"))
        .await
        .unwrap();
    assert_eq!(
        refused(catalog::delete_provider(&engine, &admin, &id("openai")).await),
        Code::NotFound
    );
    assert_eq!(
        refused(catalog::delete_model(&engine, &admin, &id("fast")).await),
        Code::NotFound
    );
}

#[tokio::test]
async fn malformed_providers_are_refused_by_field() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    let admin = operator();
    let good = || provider("https://api.example/v1", None);
    let providers = [
        (provider("api.example", None), "baseUrl"),
        (provider("https://user:secret@api.example", None), "baseUrl"),
        (
            PutProvider {
                max_in_flight: Some(0),
                ..good()
            },
            "maxInFlight",
        ),
        (
            PutProvider {
                rpm: Some(u32::MAX),
                ..good()
            },
            "rpm",
        ),
        (
            PutProvider {
                queue_timeout_ms: Some(3_600_001),
                ..good()
            },
            "queueTimeoutMs",
        ),
        (provider("https://api.example/v1", Some("a\0b")), "apiKey"),
    ];
    for (request, field) in providers {
        let error = catalog::put_provider(&engine, &admin, id("p"), request)
            .await
            .unwrap_err();
        assert_eq!(error.problem().field.as_deref(), Some(field));
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(engine.store().list_providers().await.unwrap().len(), 0);
}

/// O-25: secrets stand in no plain column, no audit row, no error and no debug output.
#[tokio::test]
async fn canary_secrets_are_found_nowhere() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    put(&engine, "openai", Some(CANARY)).await;
    put(&engine, "openai", Some(&format!("{CANARY}-2"))).await;
    let acme = crate::rig::tenant(&engine, "acme").await;
    let server = PutToolServer {
        tenants: Some(vec![acme]),
        ..tool_server(&[("GIT_TOKEN", CANARY)])
    };
    catalog::put_tool_server(&engine, &operator(), id("git"), server)
        .await
        .unwrap();
    for (table, row) in whole_database(&world.db).await {
        assert!(!row.contains(CANARY), "{table}: {row}");
        // bytea shows as hexadecimal.
        assert!(!row.contains(CANARY_HEX), "{table} holds it as bytes");
    }
    let catalog = catalog::resolved(&engine).await.unwrap();
    let shown = [
        format!("{catalog:?}"),
        format!("{engine:?}"),
        format!(
            "{:?}",
            catalog::list_providers(&engine, &operator()).await.unwrap()
        ),
        format!(
            "{:?}",
            catalog::list_tool_servers(&engine, &operator())
                .await
                .unwrap()
        ),
        format!(
            "{:?}",
            ops::audit(&engine, &operator(), &PageQuery::default())
                .await
                .unwrap()
        ),
    ];
    for text in shown {
        assert!(!text.contains(CANARY), "{text}");
    }
    let git = &catalog.tool_servers[0];
    assert_eq!(
        git.secrets["GIT_TOKEN"].expose_secret(),
        CANARY,
        "but it can be used"
    );
    assert!(git.serves(&id("acme")) && !git.serves(&id("globex")));
    assert_eq!(git.call_timeout_ms, 60_000);
}

/// R1.8: one row that does not open affects its own users only, and is named.
#[tokio::test]
async fn one_unreadable_secret_affects_its_row_only() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    put(&engine, "good", Some("one")).await;
    put(&engine, "torn", Some("two")).await;
    put(&engine, "moved", Some("three")).await;
    let git = tool_server(&[("TOKEN", "four")]);
    catalog::put_tool_server(&engine, &operator(), id("git"), git)
        .await
        .unwrap();
    for damage in [
        "UPDATE providers SET sealed = set_byte(sealed, 40, get_byte(sealed, 40) # 1) WHERE name = 'torn'",
        // An envelope of another row does not open here.
        "UPDATE providers SET sealed = (SELECT sealed FROM providers WHERE name = 'good') WHERE name = 'moved'",
        "UPDATE tool_servers SET sealed = '\\x01'",
    ] {
        sqlx::query(damage).execute(world.db.pool()).await.unwrap();
    }
    let engine = world.engine(World::settings()).await;
    let listed = catalog::list_providers(&engine, &operator()).await.unwrap();
    let shown: Vec<_> = listed
        .iter()
        .map(|p| (p.name.as_str(), p.api_key))
        .collect();
    let (bad, good) = (SecretState::Unreadable, SecretState::Sealed);
    assert_eq!(shown, [("good", good), ("moved", bad), ("torn", bad)]);
    let catalog = catalog::resolved(&engine).await.unwrap();
    let usable: Vec<_> = catalog
        .providers
        .iter()
        .map(|p| p.unreadable.is_none())
        .collect();
    assert_eq!(usable, [true, false, false]);
    assert!(catalog.providers[0].api_key.is_some() && catalog.providers[2].api_key.is_none());
    let why = catalog.tool_servers[0].unreadable.as_deref().unwrap();
    assert!(
        why.contains("tool_servers git") && why.contains("store it again"),
        "{why}"
    );
    let sealed = tidegate_engine::secrets::status(engine.store(), &world.keyring)
        .await
        .unwrap();
    let named: Vec<_> = sealed
        .unreadable
        .iter()
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(named, ["moved", "torn", "git"]);
    // Storing it again heals it.
    put(&engine, "torn", Some("five")).await;
    let catalog = catalog::resolved(&engine).await.unwrap();
    assert!(catalog.providers[2].unreadable.is_none());
}

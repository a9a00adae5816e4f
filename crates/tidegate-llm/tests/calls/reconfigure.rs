//! Changing the configuration under load.

use std::sync::Arc;

use futures::StreamExt;
use tidegate_llm::{Catalogue, ChatRequest, FaultKind, LlmError, UnusableProvider};
use tidegate_mock_provider::{MockProvider, Scenario};
use tidegate_model::Code;

use crate::support::{Rig, catalogue, fault, foreground, name, one, request, rig};

const HOLD: &str = "[[rule]]\nname = \"a\"\nreply = { text = \"old a b c\", delay_ms = 30 }\n";

/// R17: a change is in force for the next call and disturbs none in flight; a cap counts across it.
#[tokio::test]
async fn a_new_address_serves_new_calls_while_old_ones_end_in_peace() {
    let rig = rig(HOLD, |config| config.limits.max_in_flight = one(2)).await;
    let mut old = rig
        .model()
        .chat(request("hi"), &foreground())
        .await
        .unwrap();
    let other = MockProvider::start(
        Scenario::parse("[[rule]]\nname = \"b\"\nreply = { text = \"new\" }\n").unwrap(),
    )
    .await
    .unwrap();
    let config = rig.config(|config| {
        config.base_url = other.url().to_owned();
        config.limits.max_in_flight = one(1);
    });
    rig.providers.replace(catalogue(config));
    assert_eq!(rig.in_flight(), 1, "what is in flight still counts");
    let waiter = rig.ask("next");
    tokio::pin!(waiter);
    assert!(
        futures::poll!(&mut waiter).is_pending(),
        "the cap of 1 is taken by the old call"
    );
    let mut text = String::new();
    while let Some(delta) = old.next().await {
        if let tidegate_llm::Delta::Text(more) = delta.unwrap() {
            text.push_str(&more);
        }
    }
    assert_eq!(text, "old a b c");
    assert_eq!(waiter.await.unwrap().text, "new");
    assert_eq!((rig.mock.stats().requests, other.stats().requests), (1, 1));
}

#[tokio::test]
async fn a_higher_cap_lets_waiters_go_at_once() {
    let rig = Arc::new(rig(HOLD, |config| config.limits.max_in_flight = one(1)).await);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let rig = Arc::clone(&rig);
            tokio::spawn(async move { rig.ask("hi").await.map(|answer| answer.text) })
        })
        .collect();
    rig.until("three in the queue", |rig: &Rig| rig.waiting() == 3)
        .await;
    rig.providers.replace(catalogue(
        rig.config(|config| config.limits.max_in_flight = one(4)),
    ));
    assert_eq!((rig.in_flight(), rig.waiting()), (4, 0));
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

/// R1.8: a provider that cannot be used affects its own models only, and says why.
#[tokio::test]
async fn a_broken_provider_hurts_nobody_else() {
    let rig = rig(HOLD, |_| ()).await;
    let mut bad = rig.config(|config| config.ca_file = Some("missing.pem".into()));
    bad.id = name("bad");
    let mut all = catalogue(rig.config(|_| ()));
    for (alias, provider) in [
        ("broken", "bad"),
        ("sealed", "sealed"),
        ("orphan", "nobody"),
    ] {
        let mut route = all.models[0].clone();
        (route.alias, route.provider) = (name(alias), name(provider));
        all.models.push(route);
    }
    all.providers.push(bad);
    let sealed = UnusableProvider {
        id: name("sealed"),
        reason: "its key cannot be opened".to_owned(),
        code: Code::SecretUnreadable,
    };
    all.unusable.push(sealed.clone());
    let unusable = rig.providers.replace(all);
    assert_eq!(unusable.len(), 2);
    assert_eq!(unusable[0], sealed);
    assert!(
        unusable[1]
            .reason
            .starts_with("its ca_file missing.pem cannot be read"),
        "{}",
        unusable[1].reason
    );
    let configured = (Code::ModelNotConfigured, false);
    for (alias, words, expected) in [
        ("broken", "ca_file", configured),
        ("sealed", "cannot be opened", (Code::SecretUnreadable, true)),
        ("orphan", "tidegate provider set", configured),
    ] {
        let error = rig.providers.model(&name(alias)).unwrap_err();
        assert!(
            matches!(&error, LlmError::Unusable { reason, .. } if reason.contains(words)),
            "{error}"
        );
        assert_eq!((error.code(), error.is_transient()), expected, "{alias}");
    }
    rig.ask("still works").await.unwrap();
    assert_eq!(rig.providers.views().len(), 3);
}

#[tokio::test]
async fn removed_providers_and_models_are_gone_for_new_calls() {
    let rig = rig(HOLD, |_| ()).await;
    let model = rig.model();
    rig.providers.replace(Catalogue::default());
    assert!(matches!(
        rig.providers.model(&name("default")),
        Err(LlmError::UnknownModel { .. })
    ));
    assert!(
        model
            .chat(request("begun before"), &foreground())
            .await
            .is_ok()
    );
    assert!(rig.providers.aliases().is_empty());
}

#[tokio::test]
async fn a_new_key_is_used_from_the_next_call_on() {
    let scenario = Scenario::parse(HOLD)
        .unwrap()
        .with_api_key("sk-new-0123456789");
    let rig = crate::support::rig_of(scenario, |_| ()).await;
    let fault = fault(
        rig.ask_with(
            ChatRequest {
                stream: false,
                ..request("hi")
            },
            &foreground(),
        )
        .await,
    );
    assert_eq!(fault.kind, FaultKind::Auth);
    rig.providers.replace(catalogue(
        rig.config(|config| config.api_key = Some("sk-new-0123456789".into())),
    ));
    rig.ask("hi").await.unwrap();
}

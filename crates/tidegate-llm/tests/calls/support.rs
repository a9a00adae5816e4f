//! One provider, one model, one list of records.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use secrecy::SecretString;
use tidegate_llm::{
    Answer, CallClass, CallContext, CallOutcome, CallRecord, Catalogue, ChatRequest, Dice,
    LlmError, Message, Model, ModelRoute, ProviderConfig, Providers, RetryPolicy, ToolSpec,
    collect,
};
use tidegate_mock_provider::{MockHandle, MockProvider, Scenario};
use tidegate_model::ids::CatalogName;

/// Nothing on this machine takes longer than this.
pub const SOON: Duration = Duration::from_secs(5);

pub struct Rig {
    pub mock: MockHandle,
    pub providers: Providers,
    pub records: Records,
}

/// The records taken so far.
#[derive(Clone, Default)]
pub struct Records(Arc<Mutex<Vec<CallRecord>>>);

impl Records {
    pub fn all(&self) -> Vec<CallRecord> {
        self.0.lock().unwrap().clone()
    }

    pub fn outcomes(&self) -> Vec<&'static str> {
        self.all()
            .iter()
            .map(|record| record.outcome.as_str())
            .collect()
    }

    /// The only record there is.
    pub fn only(&self) -> CallRecord {
        let all = self.all();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }
}

pub fn name(text: &str) -> CatalogName {
    text.parse().unwrap()
}

pub fn one(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

/// A rig without retries, unless the test sets them.
pub async fn rig(scenario: &str, change: impl FnOnce(&mut ProviderConfig)) -> Rig {
    rig_of(Scenario::parse(scenario).unwrap(), change).await
}

pub async fn rig_of(scenario: Scenario, change: impl FnOnce(&mut ProviderConfig)) -> Rig {
    // Several tests share the process: whoever comes first installs it.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let mock = MockProvider::start(scenario).await.unwrap();
    let records = Records::default();
    let sink = records.clone();
    let recorder = Arc::new(move |record: &CallRecord| sink.0.lock().unwrap().push(record.clone()));
    let providers = Providers::with_dice(recorder, Dice::from_fn(|| 0.0));
    let rig = Rig {
        mock,
        providers,
        records,
    };
    let config = rig.config(change);
    assert_eq!(rig.providers.replace(catalogue(config)), vec![]);
    rig
}

pub fn catalogue(config: ProviderConfig) -> Catalogue {
    let route = ModelRoute {
        alias: name("default"),
        provider: config.id.clone(),
        model: "m".to_owned(),
    };
    Catalogue {
        providers: vec![config],
        models: vec![route],
        ..Catalogue::default()
    }
}

impl Rig {
    pub fn config(&self, change: impl FnOnce(&mut ProviderConfig)) -> ProviderConfig {
        let mut config = ProviderConfig::new(name("mock"), self.mock.url());
        config.api_key = Some(SecretString::from("sk-test-0123456789"));
        config.retry = RetryPolicy::NONE;
        change(&mut config);
        config
    }

    pub fn model(&self) -> Model {
        self.providers.model(&name("default")).unwrap()
    }

    pub async fn ask(&self, text: &str) -> Result<Answer, LlmError> {
        self.ask_with(request(text), &foreground()).await
    }

    pub async fn ask_with(
        &self,
        request: ChatRequest,
        call: &CallContext,
    ) -> Result<Answer, LlmError> {
        collect(self.model().chat(request, call).await?).await
    }

    pub fn in_flight(&self) -> u32 {
        self.providers.views()[0].state.as_ref().unwrap().in_flight
    }

    pub fn waiting(&self) -> u32 {
        let view = *self.providers.views()[0].state.as_ref().unwrap();
        view.waiting_foreground + view.waiting_background
    }

    /// Waits until the limiter shows what is wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + SOON;
        while !wanted(self) {
            assert!(
                tokio::time::Instant::now() < deadline,
                "never happened: {what}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

pub fn request(text: &str) -> ChatRequest {
    ChatRequest::new(vec![
        Message::System("be brief".to_owned()),
        Message::User(text.to_owned()),
    ])
}

pub fn foreground() -> CallContext {
    CallContext::new(CallClass::Foreground)
}

pub fn background() -> CallContext {
    CallContext::new(CallClass::Background)
}

pub fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "for tests".to_owned(),
        parameters: serde_json::json!({ "type": "object" }),
    }
}

/// The kind of a provider's fault.
pub fn fault(result: Result<Answer, LlmError>) -> tidegate_llm::ProviderFault {
    match result {
        Err(LlmError::Provider(fault)) => fault,
        other => panic!("a fault of the provider was expected, got {other:?}"),
    }
}

/// Whether the record says that the caller left.
pub fn left(record: &CallRecord) -> bool {
    matches!(
        record.outcome,
        CallOutcome::ClientClosed | CallOutcome::LeftQueue
    )
}

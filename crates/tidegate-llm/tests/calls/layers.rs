//! The layers around providers that misbehave in ways no HTTP server can.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tidegate_llm::{
    CallClass, CallContext, CallOutcome, CallRecord, ChatRequest, ChatStream, Delta, Dice,
    FaultKind, Finish, FinishReason, Limited, LimiterSettings, LlmError, Provider, ProviderLimiter,
    Timeouts, Usage, collect,
};
use tidegate_model::ids::CatalogName;

use crate::support::{foreground, name, request};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trick {
    PanicsWhenAsked,
    PanicsInTheStream,
    EndsWithoutAnEnd,
    GoesOnAfterTheEnd,
}

#[derive(Debug)]
struct Trickster {
    id: CatalogName,
    trick: Trick,
}

#[async_trait]
impl Provider for Trickster {
    fn id(&self) -> &CatalogName {
        &self.id
    }

    async fn chat(
        &self,
        _request: &ChatRequest,
        _call: &CallContext,
    ) -> Result<ChatStream, LlmError> {
        let trick = self.trick;
        assert!(trick != Trick::PanicsWhenAsked, "on purpose");
        let end = Finish {
            reason: FinishReason::Stop,
            usage: Usage::Unknown,
            model: None,
        };
        let text = || Ok(Delta::Text("a".to_owned()));
        let pieces = match trick {
            Trick::EndsWithoutAnEnd | Trick::PanicsWhenAsked => vec![text()],
            Trick::PanicsInTheStream | Trick::GoesOnAfterTheEnd => {
                vec![text(), Ok(Delta::Finished(end)), text()]
            }
        };
        let pieces = stream::iter(pieces).inspect(move |delta| {
            let at_end = matches!(delta, Ok(Delta::Finished(_)));
            assert!(!(at_end && trick == Trick::PanicsInTheStream), "on purpose");
        });
        Ok(pieces.boxed())
    }
}

struct Layer {
    limited: Arc<Limited>,
    limiter: Arc<ProviderLimiter>,
    records: Arc<Mutex<Vec<CallRecord>>>,
}

fn layer(trick: Trick) -> Layer {
    let limiter =
        ProviderLimiter::new(name("p"), LimiterSettings::default(), Dice::from_fn(|| 0.0));
    let records = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&records);
    let recorder = Arc::new(move |record: &CallRecord| sink.lock().unwrap().push(record.clone()));
    let provider = Arc::new(Trickster {
        id: name("p"),
        trick,
    });
    let wrapped = Limited::new(
        provider,
        Arc::clone(&limiter),
        Timeouts::default(),
        recorder,
    );
    Layer {
        limited: Arc::new(wrapped),
        limiter,
        records,
    }
}

/// R13.2: whatever a provider's code does, the slot comes back once and there is one record.
#[tokio::test]
async fn a_misbehaving_provider_costs_neither_slot_nor_record() {
    for (trick, outcome) in [
        (Trick::PanicsWhenAsked, CallOutcome::Panicked),
        (Trick::PanicsInTheStream, CallOutcome::Panicked),
        (
            Trick::EndsWithoutAnEnd,
            CallOutcome::Failed(FaultKind::CutStream),
        ),
        (Trick::GoesOnAfterTheEnd, CallOutcome::Answered),
    ] {
        let layer = layer(trick);
        let limited = Arc::clone(&layer.limited);
        let task = tokio::spawn(async move {
            let mut pieces = 0;
            let mut stream = limited.chat(&request("hi"), &foreground()).await.unwrap();
            while stream.next().await.is_some() {
                pieces += 1;
            }
            pieces
        });
        let result = task.await;
        match trick {
            Trick::PanicsWhenAsked | Trick::PanicsInTheStream => {
                assert!(result.unwrap_err().is_panic());
            }
            Trick::EndsWithoutAnEnd | Trick::GoesOnAfterTheEnd => {
                assert_eq!(result.unwrap(), 2, "{trick:?}");
            }
        }
        assert_eq!(layer.limiter.view().in_flight, 0, "{trick:?}");
        let records = layer.records.lock().unwrap();
        assert_eq!(
            records
                .iter()
                .map(|record| record.outcome)
                .collect::<Vec<_>>(),
            [outcome],
            "{trick:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_given_to_collect_needs_an_end() {
    let cut: ChatStream = stream::iter(vec![Ok(Delta::Text("a".to_owned()))]).boxed();
    assert!(
        matches!(collect(cut).await, Err(LlmError::Provider(fault)) if fault.kind == FaultKind::CutStream)
    );
}

/// A future that is dropped before it was ever polled has asked for nothing.
#[tokio::test]
async fn a_call_that_never_began_is_no_call() {
    let layer = layer(Trick::GoesOnAfterTheEnd);
    let (question, call) = (request("hi"), CallContext::new(CallClass::Background));
    drop(layer.limited.chat(&question, &call));
    assert!(layer.records.lock().unwrap().is_empty());
}

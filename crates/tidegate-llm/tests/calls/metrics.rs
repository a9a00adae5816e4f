//! What is measured, and under how many names.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::support::{background, foreground, request, rig};

/// Keeps the series that were touched.
#[derive(Default, Clone)]
struct Series(Arc<Mutex<BTreeSet<String>>>);

impl Series {
    fn touch(&self, key: &Key) {
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        self.0
            .lock()
            .unwrap()
            .insert(format!("{}{{{}}}", key.name(), labels.join(",")));
    }
}

impl Recorder for Series {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.touch(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.touch(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.touch(key);
        Histogram::noop()
    }
}

/// O-35: nothing that a caller or a provider chooses becomes a label. R21.1: limiter queues are measured.
#[tokio::test]
async fn series_are_named_by_the_operator_alone_o_35() {
    let scenario = "[[rule]]\nname = \"no\"\nwhen = { text_contains = \"bad\" }\nfault = { kind = \"status\", status = 400, code = \"{{text}}\" }\n[[rule]]\nname = \"a\"\nreply = { text = \"{{text}}\" }\n";
    let rig = rig(scenario, |_| ()).await;
    let series = Series::default();
    let guard = metrics::set_default_local_recorder(&series);
    for n in 0..20 {
        for (text, call) in [("good", foreground()), ("bad", background())] {
            let _answer = rig.ask_with(request(&format!("{text} {n}")), &call).await;
        }
    }
    drop(guard);
    let series = series.0.lock().unwrap();
    for wanted in [
        "tidegate_llm_calls_total{provider=mock,class=foreground,outcome=answered}",
        "tidegate_llm_calls_total{provider=mock,class=background,outcome=refused}",
        "tidegate_llm_in_flight{provider=mock}",
        "tidegate_llm_waiting{provider=mock,class=background}",
        "tidegate_llm_admission_limit{provider=mock}",
        "tidegate_llm_tokens_total{provider=mock,direction=output,certainty=exact}",
    ] {
        assert!(
            series.contains(wanted),
            "{wanted} is missing in {series:#?}"
        );
    }
    assert!(series.len() <= 14, "{series:#?}");
}

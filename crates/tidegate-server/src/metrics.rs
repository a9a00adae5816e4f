//! The recorder behind `/metrics`, and what the HTTP edge measures (R21.1).

use std::{sync::OnceLock, time::Duration};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

/// Buckets of every duration, in seconds: from a cached answer to a long poll.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Sums are drained this often, so that memory stays flat where nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// Installs the process's recorder, once; later calls give the same handle.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = LOCK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(handle) = HANDLE.get() {
        return Ok(handle.clone());
    }
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
        .install_recorder()?;
    describe();
    Ok(HANDLE.get_or_init(|| handle).clone())
}

/// Drains sums until `stop`.
pub async fn upkeep(handle: PrometheusHandle, stop: CancellationToken) {
    let mut tick = tokio::time::interval(UPKEEP);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        handle.run_upkeep();
    }
}

fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!(
        "tidegate_http_requests_total",
        "Requests answered, by method, route and status."
    );
    describe_counter!("tidegate_http_panics_total", "Handlers that panicked.");
    describe_counter!(
        "tidegate_claims_returned_total",
        "Leases handed back because their claimer had gone."
    );
    describe_gauge!(
        "tidegate_http_requests_in_flight",
        "Requests that are being answered."
    );
    describe_gauge!("tidegate_sse_streams", "Open event streams.");
    describe_histogram!(
        "tidegate_http_request_duration_seconds",
        Unit::Seconds,
        "Time from the head of a request to the head of its answer."
    );
}

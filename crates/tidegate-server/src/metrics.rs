//! The recorder behind `/metrics`, and what the HTTP edge measures (R21.1).

use std::{sync::OnceLock, time::Duration};

use metrics::Unit;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

/// Buckets of every duration, in seconds: from a cached answer to a long poll.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Buckets of what one statement carries, in runs.
const RUNS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
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
        .set_buckets_for_metric(Matcher::Suffix("_runs".to_owned()), RUNS)?
        .set_buckets_for_metric(Matcher::Suffix("_calls".to_owned()), RUNS)?
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

/// What the metrics of server, engine and store mean; `tidegate-llm` and `tidegate-agent` describe their own.
fn describe() {
    for (name, meaning) in COUNTERS {
        metrics::describe_counter!(*name, *meaning);
    }
    for (name, meaning) in GAUGES {
        metrics::describe_gauge!(*name, *meaning);
    }
    for (name, meaning) in DURATIONS {
        metrics::describe_histogram!(*name, Unit::Seconds, *meaning);
    }
    for (name, meaning) in BATCHES {
        metrics::describe_histogram!(*name, Unit::Count, *meaning);
    }
}

const COUNTERS: &[(&str, &str)] = &[
    (
        "tidegate_reviews_total",
        "Runs that went to a person, because nobody knows whether an effect happened.",
    ),
    (
        "tidegate_admissions_expired_total",
        "Admissions that were not renewed in time.",
    ),
    (
        "tidegate_admissions_total",
        "Calls of the admissions API by what came of them.",
    ),
    (
        "tidegate_attempts_total",
        "Attempts that ended, by outcome.",
    ),
    (
        "tidegate_batches_split_total",
        "Batches that were run call by call because one of them was refused by the database.",
    ),
    (
        "tidegate_children_total",
        "Children that runs asked for, by whether they were accepted.",
    ),
    (
        "tidegate_claims_returned_total",
        "Leases handed back because their claimer had gone.",
    ),
    (
        "tidegate_claims_short_total",
        "Times a claim found a requirement class short of something.",
    ),
    (
        "tidegate_config_listener_losses_total",
        "Times the listener for config changes was lost.",
    ),
    (
        "tidegate_config_publish_failures_total",
        "Config changes that were committed but not announced.",
    ),
    (
        "tidegate_event_streams_stalled_total",
        "Event streams that were cut because their readers took nothing.",
    ),
    (
        "tidegate_fenced_writes_total",
        "Writes of attempts refused because their fence was not that of the open lease.",
    ),
    (
        "tidegate_generation_rises_total",
        "Times the generation of fences rose.",
    ),
    (
        "tidegate_grants_too_large_total",
        "Admissions of more than a grant can name, which were answered without one.",
    ),
    (
        "tidegate_hints_failed_total",
        "Hints of new work that were not sent; the others poll.",
    ),
    (
        "tidegate_http_deadlines_total",
        "Requests that were not answered in time.",
    ),
    ("tidegate_http_panics_total", "Handlers that panicked."),
    (
        "tidegate_http_requests_total",
        "Requests by method, route and status; `left` where the client did not wait.",
    ),
    (
        "tidegate_loop_restarts_total",
        "Loops that panicked and were started again, by loop.",
    ),
    (
        "tidegate_pruned_total",
        "Ended runs, and events of them, that were deleted after their time.",
    ),
    (
        "tidegate_schedule_due_total",
        "Due times of schedules by what became of them: run, skipped, refused.",
    ),
    (
        "tidegate_takeovers_total",
        "Expired leases that were taken over.",
    ),
    (
        "tidegate_transaction_retries_total",
        "Transactions run again after a serialisation failure, by name.",
    ),
    (
        "tidegate_unreadable_secrets_total",
        "Sealed secrets that neither key opened.",
    ),
];

const GAUGES: &[(&str, &str)] = &[
    (
        "tidegate_clock_skew_seconds",
        "This machine's wall clock ahead of the database's.",
    ),
    (
        "tidegate_config_listening",
        "1 while notifications of config changes arrive.",
    ),
    ("tidegate_event_streams", "Open event streams of clients."),
    ("tidegate_followed_runs", "Runs whose events are followed."),
    ("tidegate_generation", "The generation of fences in force."),
    (
        "tidegate_hot_table_bytes",
        "Size of each hot table with its indexes.",
    ),
    (
        "tidegate_hot_table_dead_rows",
        "Rows of each hot table that are gone and not vacuumed.",
    ),
    (
        "tidegate_http_requests_in_flight",
        "Requests that are being answered.",
    ),
    ("tidegate_lanes", "Lanes with waiting runs."),
    (
        "tidegate_ledger_capacity",
        "How much there is of bounded resources, by kind.",
    ),
    (
        "tidegate_ledger_in_use",
        "How much of bounded resources is held, by kind.",
    ),
    ("tidegate_redis_up", "1 while Redis answers."),
    (
        "tidegate_snapshot_age_transactions",
        "Transactions since the oldest snapshot of a session, a prepared transaction or a slot.",
    ),
    (
        "tidegate_snapshot_held_seconds",
        "How long the oldest of them is held, where that is known.",
    ),
];

const DURATIONS: &[(&str, &str)] = &[
    ("tidegate_claim_seconds", "Time of a claim's statements."),
    (
        "tidegate_http_request_duration_seconds",
        "Time from the head of a request to the head of its answer.",
    ),
    (
        "tidegate_queue_wait_seconds",
        "Time from acceptance or return to the queue to a lease, by service class.",
    ),
    (
        "tidegate_stop_to_release_seconds",
        "Time from a cancel to the release of what the run held.",
    ),
    (
        "tidegate_transaction_seconds",
        "Time of transactions, by name.",
    ),
];

const BATCHES: &[(&str, &str)] = &[
    (
        "tidegate_ledger_batch_calls",
        "Calls that one transaction over the ledger decided.",
    ),
    (
        "tidegate_close_batch_runs",
        "Attempts that one transaction closed for their holders.",
    ),
    (
        "tidegate_submit_batch_runs",
        "Runs that one statement accepted.",
    ),
];

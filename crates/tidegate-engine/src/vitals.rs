//! Watching over the database's hot tables (R21.1): gauges on every instance, a line in the log by one of them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tidegate_model::lasting::Lasting;
use tidegate_policy::vitals::{Alarm, Bounds, HolderKind, Vitals, alarms};
use tokio_util::sync::CancellationToken;

use crate::{Engine, Error, settings::Settings, trouble::Trouble};

/// How often an instance looks.
const EVERY: Duration = Duration::from_secs(15);
/// The name of the duty to speak of it.
const DUTY: &str = "vitals";
/// How long the duty is held after a look.
const DUTY_MS: i64 = 40_000;

/// From when on a person is told, as the settings say.
pub fn bounds(settings: &Settings) -> Bounds {
    Bounds {
        dead_rows: i64::from(settings.hot_dead_rows_max),
        held_ms: i64::from(settings.snapshot_held_max_ms),
    }
}

/// Looks until stopped.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut trouble = Trouble::new("looking at the hot tables");
    let mut said = Said::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY.mul_f64(0.75 + 0.5 * crate::clock::jitter())) => {}
        }
        match look(&engine, bounds(engine.settings())).await {
            Ok(alarms) => {
                trouble.over();
                let duty = engine
                    .store()
                    .fleet()
                    .hold_duty(DUTY, engine.instance(), DUTY_MS)
                    .await;
                if matches!(duty, Ok(Some(_))) {
                    said.say(&alarms);
                }
            }
            Err(error) => trouble.met(&error),
        }
    }
}

/// One look: sets the gauges, and answers what a person should do.
pub async fn look(engine: &Engine, bounds: Bounds) -> Result<Vec<Alarm>, Error> {
    let vitals = engine.store().vitals().await?;
    measure(&vitals);
    Ok(alarms(&vitals, bounds))
}

#[expect(clippy::cast_precision_loss, reason = "gauges for people")]
fn measure(vitals: &Vitals) {
    for table in &vitals.tables {
        let name = table.table.clone();
        metrics::gauge!("tidegate_hot_table_dead_rows", "table" => name.clone())
            .set(table.dead_rows as f64);
        metrics::gauge!("tidegate_hot_table_bytes", "table" => name).set(table.bytes as f64);
    }
    for kind in HolderKind::ALL {
        let of_kind = || vitals.holders.iter().filter(|holder| holder.kind == *kind);
        let held_ms = of_kind().filter_map(|holder| holder.held_ms).max();
        let xids = of_kind().map(|holder| holder.xids).max();
        metrics::gauge!("tidegate_snapshot_held_seconds", "kind" => kind.as_str())
            .set(held_ms.unwrap_or(0) as f64 / 1_000.0);
        metrics::gauge!("tidegate_snapshot_age_transactions", "kind" => kind.as_str())
            .set(xids.unwrap_or(0) as f64);
    }
}

/// What was said of each trouble that lasts.
#[derive(Debug, Default)]
struct Said(HashMap<String, Lasting>);

impl Said {
    fn say(&mut self, alarms: &[Alarm]) {
        let now = Instant::now();
        for alarm in alarms {
            let lasting = self.0.entry(alarm.about.clone()).or_default();
            // What is found changes with every look; what it is about is the trouble.
            if let Some(said) = lasting.met(now, &alarm.about) {
                tracing::warn!(
                    found = alarm.found,
                    remedy = alarm.remedy,
                    seconds = said.lasts.as_secs(),
                    "the database needs a person"
                );
            }
        }
        self.0.retain(|about, lasting| {
            let lasts = alarms.iter().any(|alarm| alarm.about == *about);
            if !lasts && let Some(said) = lasting.over(now) {
                let seconds = said.lasts.as_secs();
                tracing::warn!(about, seconds, "this trouble of the database is over");
            }
            lasts
        });
    }
}

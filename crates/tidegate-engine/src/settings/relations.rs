//! Relations between values that must hold, refused by name.

use super::{SettingProblem, Settings, SettingsError, table::ENTRIES};

impl Settings {
    /// Every relation that does not hold.
    pub(super) fn broken_relations(&self) -> Vec<SettingProblem> {
        let three_renewals = self.renew_ms.saturating_mul(3);
        let checks = [
            (
                self.lease_ms > three_renewals,
                format!(
                    "TIDEGATE_LEASE_MS ({}) must be more than three times TIDEGATE_RENEW_MS ({}), so that two lost \
                     renewals do not lose a lease; raise the first above {three_renewals} or lower the second",
                    self.lease_ms, self.renew_ms
                ),
            ),
            (
                self.takeover_sweep_ms <= self.lease_ms,
                format!(
                    "TIDEGATE_TAKEOVER_SWEEP_MS ({}) must not exceed TIDEGATE_LEASE_MS ({})",
                    self.takeover_sweep_ms, self.lease_ms
                ),
            ),
            (
                self.backoff_base_ms <= self.backoff_max_ms,
                format!(
                    "TIDEGATE_BACKOFF_BASE_MS ({}) must not exceed TIDEGATE_BACKOFF_MAX_MS ({})",
                    self.backoff_base_ms, self.backoff_max_ms
                ),
            ),
            (
                self.listener_dead_ms > self.listener_heartbeat_ms,
                format!(
                    "TIDEGATE_LISTENER_DEAD_MS ({}) must exceed TIDEGATE_LISTENER_HEARTBEAT_MS ({}), or a healthy \
                     listener is taken for dead",
                    self.listener_dead_ms, self.listener_heartbeat_ms
                ),
            ),
            (
                self.tls_cert.is_some() == self.tls_key.is_some(),
                "TIDEGATE_TLS_CERT and TIDEGATE_TLS_KEY go together: set both or neither"
                    .to_owned(),
            ),
            (
                self.metrics_listen
                    .is_none_or(|address| address.port() == 0 || address != self.listen),
                format!(
                    "TIDEGATE_METRICS_LISTEN and TIDEGATE_LISTEN are both {}; give /metrics a port of its own",
                    self.listen
                ),
            ),
        ];
        checks
            .into_iter()
            .filter(|(holds, _)| !holds)
            .map(|(_, text)| SettingProblem::Relation(text))
            .collect()
    }

    /// Refuses settings without what `tidegate serve` needs (R1.1): where both are missing both are named.
    pub fn require_for_serve(&self) -> Result<(), SettingsError> {
        self.require(&["database_url", "enc_key"])
    }

    /// Refuses settings where one of these has no value.
    pub fn require(&self, names: &[&str]) -> Result<(), SettingsError> {
        let problems: Vec<SettingProblem> = ENTRIES
            .iter()
            .filter(|entry| names.contains(&entry.setting.name) && (entry.show)(self).is_none())
            .map(|entry| SettingProblem::Missing {
                env: entry.setting.env,
                meaning: entry
                    .setting
                    .meaning
                    .split(';')
                    .next()
                    .unwrap_or_default()
                    .trim_end_matches('.'),
                allowed: entry.setting.allowed(),
            })
            .collect();
        if problems.is_empty() {
            Ok(())
        } else {
            Err(SettingsError { problems })
        }
    }
}

//! How tool servers stand on each instance, as the instances themselves say.

use std::collections::BTreeMap;

use serde_json::json;
use tidegate_model::{
    InstanceId,
    api::{ToolServerPhase, ToolServerState, ToolState},
    ids::CatalogName,
    strict,
};

use crate::{Error, Store, error::stored};

/// What an instance says of one of its tool servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServerReport {
    /// The server.
    pub server: CatalogName,
    /// Where it is in its life.
    pub phase: ToolServerPhase,
    /// Why it is down.
    pub detail: Option<String>,
    /// Its tools.
    pub tools: Vec<ToolState>,
}

impl Store {
    /// Replaces what an instance says of its tool servers. `false` where the instance has no row yet.
    pub async fn report_tool_servers(
        &self,
        instance: InstanceId,
        reports: Vec<ToolServerReport>,
    ) -> Result<bool, Error> {
        self.transaction("tool_servers.report", move |tx| {
            let reports = reports.clone();
            Box::pin(async move {
                let names: Vec<String> = reports.iter().map(|report| report.server.to_string()).collect();
                let phases: Vec<String> = reports.iter().map(|report| report.phase.to_string()).collect();
                let details: Vec<Option<String>> = reports.iter().map(|report| report.detail.clone()).collect();
                let tools: Vec<_> = reports.iter().map(|report| json!(report.tools)).collect();
                sqlx::query!(
                    "DELETE FROM tool_server_states WHERE instance_id = $1 AND server <> ALL ($2)",
                    instance.as_uuid(),
                    &names,
                )
                .execute(&mut *tx)
                .await?;
                let known = sqlx::query!(
                    "INSERT INTO tool_server_states AS s (instance_id, server, phase, detail, tools)
                     SELECT i.instance_id, r.server, r.phase, r.detail, r.tools
                     FROM instances i,
                          unnest($2::text[], $3::text[], $4::text[], $5::jsonb[]) AS r (server, phase, detail, tools)
                     WHERE i.instance_id = $1
                     ON CONFLICT (instance_id, server) DO UPDATE SET
                         phase = excluded.phase, detail = excluded.detail, tools = excluded.tools,
                         since = CASE WHEN s.phase = excluded.phase THEN s.since ELSE clock_timestamp() END",
                    instance.as_uuid(),
                    &names,
                    &phases,
                    &details as &[Option<String>],
                    &tools,
                )
                .execute(&mut *tx)
                .await?;
                Ok(names.is_empty() || known.rows_affected() > 0)
            })
        })
        .await
    }

    /// How each tool server stands on instances that were seen within `dead_after_ms`.
    pub async fn tool_server_states(
        &self,
        dead_after_ms: i64,
    ) -> Result<BTreeMap<CatalogName, Vec<ToolServerState>>, Error> {
        let rows = sqlx::query!(
            "SELECT s.server, s.instance_id, s.phase, s.detail, s.since, s.tools
             FROM tool_server_states s JOIN instances i USING (instance_id)
             WHERE i.seen_at > clock_timestamp() - $1::bigint * interval '1 millisecond'
             ORDER BY s.server, i.started_at, s.instance_id",
            dead_after_ms,
        )
        .fetch_all(self.pool())
        .await?;
        let mut states: BTreeMap<CatalogName, Vec<ToolServerState>> = BTreeMap::new();
        for row in rows {
            let state = ToolServerState {
                instance_id: InstanceId::from_uuid(row.instance_id),
                phase: stored(&row.phase, "tool_server_states.phase")?,
                detail: row.detail,
                since: row.since,
                tools: strict::from_value(row.tools).map_err(|_| Error::Corrupt {
                    what: "tool_server_states.tools",
                })?,
            };
            states
                .entry(stored(&row.server, "tool_server_states.server")?)
                .or_default()
                .push(state);
        }
        Ok(states)
    }
}

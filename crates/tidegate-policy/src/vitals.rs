//! When the database needs a person: dead rows that vacuum does not get at, and whoever keeps it from them (R21.1).
//!
//! The queue lives in tables that stay small only while vacuum follows. One forgotten session, prepared transaction or
//! replication slot that holds an old snapshot stops it for all tables, and every claim then walks over the dead.

use std::fmt;

/// What holds no time is too old when it is this many transactions behind.
pub const XIDS_MAX: i64 = 1_000_000;

/// A table whose rows come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableVitals {
    /// Its name.
    pub table: String,
    /// Rows that are there, as the statistics say.
    pub live_rows: i64,
    /// Rows that are gone and not vacuumed.
    pub dead_rows: i64,
    /// Its size with indexes.
    pub bytes: i64,
}

/// What can hold an old snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderKind {
    /// A session with an open transaction, or a standby that feeds back.
    Session,
    /// A transaction that was prepared and not finished.
    Prepared,
    /// A replication slot.
    Slot,
}

impl HolderKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[Self::Session, Self::Prepared, Self::Slot];

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Prepared => "prepared",
            Self::Slot => "slot",
        }
    }
}

/// Who holds an old snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHolder {
    /// What it is.
    pub kind: HolderKind,
    /// The process id, the name of the prepared transaction or of the slot.
    pub name: String,
    /// The user and the program of a session.
    pub of: Option<String>,
    /// For how long, where that is known.
    pub held_ms: Option<i64>,
    /// How many transactions have begun since.
    pub xids: i64,
}

/// What the database says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vitals {
    /// The hot tables.
    pub tables: Vec<TableVitals>,
    /// Who holds snapshots, the oldest first.
    pub holders: Vec<SnapshotHolder>,
}

/// From when on a person is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Dead rows of one hot table.
    pub dead_rows: i64,
    /// How long a snapshot may be held.
    pub held_ms: i64,
}

/// Something that a person should do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// The same for the same trouble as long as it lasts.
    pub about: String,
    /// What was found.
    pub found: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for SnapshotHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            HolderKind::Session => write!(f, "session {}", self.name)?,
            HolderKind::Prepared => write!(f, "prepared transaction {}", self.name)?,
            HolderKind::Slot => write!(f, "replication slot {}", self.name)?,
        }
        match &self.of {
            Some(of) => write!(f, " ({of})"),
            None => Ok(()),
        }
    }
}

impl SnapshotHolder {
    const fn is_too_old(&self, bounds: Bounds) -> bool {
        match self.held_ms {
            Some(held) => held > bounds.held_ms,
            None => self.xids > XIDS_MAX,
        }
    }

    fn remedy(&self) -> String {
        let name = self.name.replace('\'', "''");
        match self.kind {
            HolderKind::Session => format!(
                "end what it does, or the session: SELECT pg_terminate_backend({name}); set \
                 idle_in_transaction_session_timeout for its user"
            ),
            HolderKind::Prepared => {
                format!("finish it: COMMIT PREPARED '{name}' or ROLLBACK PREPARED '{name}'")
            }
            HolderKind::Slot => format!(
                "let its consumer catch up, or drop it if that is gone: SELECT pg_drop_replication_slot('{name}')"
            ),
        }
    }
}

/// What a person should do about what was found, the snapshots first: they are often the cause of the dead rows.
pub fn alarms(vitals: &Vitals, bounds: Bounds) -> Vec<Alarm> {
    let mut alarms: Vec<Alarm> = vitals
        .holders
        .iter()
        .filter(|holder| holder.is_too_old(bounds))
        .map(|holder| Alarm {
            about: holder.to_string(),
            found: match holder.held_ms {
                Some(held) => format!(
                    "{holder} has held a snapshot for {} s; vacuum removes nothing that was deleted since",
                    held / 1_000
                ),
                None => format!(
                    "{holder} holds a snapshot that is {} transactions old; vacuum removes nothing that was deleted since",
                    holder.xids
                ),
            },
            remedy: holder.remedy(),
        })
        .collect();
    let held_back = !alarms.is_empty();
    let dead = vitals
        .tables
        .iter()
        .filter(|table| table.dead_rows > bounds.dead_rows);
    alarms.extend(dead.map(|table| Alarm {
        about: format!("dead rows of {}", table.table),
        found: format!(
            "{} has {} dead rows beside {} live ones; claims get slower",
            table.table, table.dead_rows, table.live_rows
        ),
        remedy: if held_back {
            "end what holds the old snapshot; autovacuum then does the rest".to_owned()
        } else {
            format!(
                "see that autovacuum runs (autovacuum = on, enough autovacuum_max_workers), or once: VACUUM {}",
                table.table
            )
        },
    }));
    alarms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(kind: HolderKind, name: &str, held_ms: Option<i64>, xids: i64) -> SnapshotHolder {
        SnapshotHolder {
            kind,
            name: name.to_owned(),
            of: None,
            held_ms,
            xids,
        }
    }

    const BOUNDS: Bounds = Bounds {
        dead_rows: 1_000,
        held_ms: 60_000,
    };

    /// R21.1: each kind of holder is told by its name with what ends it; what is young or small is nobody's trouble.
    #[test]
    fn each_trouble_names_its_remedy() {
        let table = |name: &str, dead_rows| TableVitals {
            table: name.to_owned(),
            live_rows: 10,
            dead_rows,
            bytes: 8_192,
        };
        let mut vitals = Vitals {
            tables: vec![table("run_queue", 1_001), table("run_leases", 1_000)],
            holders: vec![
                holder(HolderKind::Session, "77", Some(60_001), 5),
                holder(HolderKind::Session, "78", Some(60_000), XIDS_MAX + 1),
                holder(HolderKind::Prepared, "it's", Some(90_000), 5),
                holder(HolderKind::Slot, "old", None, XIDS_MAX + 1),
                holder(HolderKind::Slot, "young", None, XIDS_MAX),
            ],
        };
        let found = alarms(&vitals, BOUNDS);
        let remedies: Vec<&str> = found.iter().map(|alarm| alarm.remedy.as_str()).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        for (remedy, word) in remedies.iter().zip([
            "pg_terminate_backend(77)",
            "ROLLBACK PREPARED 'it''s'",
            "pg_drop_replication_slot('old')",
            "old snapshot",
        ]) {
            assert!(remedy.contains(word), "{remedy}");
        }
        vitals.holders.clear();
        let found = alarms(&vitals, BOUNDS);
        assert_eq!(found.len(), 1);
        assert!(found[0].remedy.contains("VACUUM run_queue"), "{found:?}");
        vitals.tables.clear();
        assert!(alarms(&vitals, BOUNDS).is_empty());
    }
}

//! Noticing a pooler that hands out a server session per transaction (PgBouncer's transaction mode and the like).
//!
//! Two client connections are held open at once and asked in turn for the number of their server process. Two real
//! connections always answer two numbers, each always the same. Behind such a pooler a process goes back after each
//! statement, so that either both answer the same one or one changes its answer. The simple protocol is used, because
//! prepared statements behind an old pooler fail by themselves.

use sqlx::{PgConnection, Row as _};

/// Rounds of questions; a pooler under load may answer one round like real connections.
const ROUNDS: usize = 3;

/// Whether the two connections share server sessions.
pub(super) async fn is_pooled(
    first: &mut PgConnection,
    second: &mut PgConnection,
) -> Result<bool, sqlx::Error> {
    let mut firsts = Vec::with_capacity(ROUNDS);
    let mut seconds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        firsts.push(process(first).await?);
        seconds.push(process(second).await?);
    }
    Ok(judge(&firsts, &seconds))
}

async fn process(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    let row = sqlx::raw_sql("SELECT pg_backend_pid()::text")
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}

fn judge(firsts: &[String], seconds: &[String]) -> bool {
    let changes = |answers: &[String]| answers.windows(2).any(|pair| pair[0] != pair[1]);
    changes(firsts) || changes(seconds) || firsts.iter().any(|first| seconds.contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_steady_processes_are_two_connections() {
        let pids = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(!judge(&pids("1 1 1"), &pids("2 2 2")));
        assert!(
            judge(&pids("1 1 1"), &pids("1 1 1")),
            "one process for both"
        );
        assert!(judge(&pids("1 3 1"), &pids("2 2 2")), "the first one moved");
        assert!(
            judge(&pids("1 1 1"), &pids("2 2 3")),
            "the second one moved"
        );
    }
}

//! What goes wrong, in an order that the seed decides.

use std::time::Duration;

use rand::{RngExt as _, rngs::StdRng, seq::SliceRandom as _};
use tidegate_testkit::TestCluster;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::rig::{LEASE, World};

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A server is killed and another one started.
    Kill,
    /// A server stands still for less than a lease.
    ShortPause,
    /// A server stands still for longer than a lease.
    LongPause,
    /// PostgreSQL is stopped and started.
    Restart,
    /// PostgreSQL is killed and started.
    Crash,
    /// A transaction stays open, so that nothing that dies can be removed.
    Pin,
}

const ALL: [Fault; 6] = [
    Fault::Kill,
    Fault::ShortPause,
    Fault::LongPause,
    Fault::Restart,
    Fault::Crash,
    Fault::Pin,
];

pub struct Faults {
    rng: StdRng,
    /// The rest of this round, in which each comes once.
    round: Vec<Fault>,
    rounds: usize,
    /// Held until a transaction that pins is let go.
    pinned: Option<DropGuard>,
}

impl Faults {
    pub fn new(rng: StdRng) -> Self {
        Self {
            rng,
            round: Vec::new(),
            rounds: 0,
            pinned: None,
        }
    }

    pub fn each_has_come(&self) -> bool {
        self.rounds > 1 || (self.rounds == 1 && self.round.is_empty())
    }

    pub fn next(&mut self) -> Fault {
        if self.round.is_empty() {
            self.round = ALL.to_vec();
            self.round.shuffle(&mut self.rng);
            self.rounds += 1;
        }
        self.round.pop().expect("one of a round")
    }

    pub async fn inflict(&mut self, fault: Fault, world: &mut World, cluster: &TestCluster) {
        let victim = self.rng.random_range(0..world.servers.len());
        match fault {
            Fault::Kill => {
                world.servers[victim].process.kill9();
                world.servers.swap_remove(victim);
                world.add_server().await;
            }
            Fault::ShortPause => pause(world, victim, LEASE / 2).await,
            Fault::LongPause => pause(world, victim, LEASE + Duration::from_millis(700)).await,
            Fault::Restart => cluster.cluster().restart().await.expect("restart"),
            Fault::Crash => {
                cluster.cluster().kill9().await.expect("kill");
                cluster.cluster().restart().await.expect("start");
            }
            // The one before ends here: at most one round is pinned.
            Fault::Pin => self.pinned = Some(pin(world).await),
        }
    }

    /// Nothing goes wrong any more.
    pub async fn end(&mut self, world: &mut World) {
        self.pinned = None;
        for server in &mut world.servers {
            server.process.thaw();
        }
        world.until_count("SELECT 1::bigint", 1).await;
    }
}

async fn pause(world: &mut World, victim: usize, length: Duration) {
    world.servers[victim].process.freeze();
    tokio::time::sleep(length).await;
    world.servers[victim].process.thaw();
}

/// Opens a snapshot that stays until the guard goes; a restart of the database ends it too.
async fn pin(world: &World) -> DropGuard {
    let pool = world.db.pool().clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let let_go = CancellationToken::new();
    let waits = let_go.clone();
    tokio::spawn(async move {
        let mut transaction = pool
            .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
            .await?;
        sqlx::query("SELECT count(*) FROM agent_runs")
            .execute(&mut *transaction)
            .await?;
        let _ = tell.send(());
        waits.cancelled().await;
        transaction.rollback().await
    });
    // Where the database is not up at this moment nothing is pinned in this round.
    let _ = told.await;
    let_go.drop_guard()
}

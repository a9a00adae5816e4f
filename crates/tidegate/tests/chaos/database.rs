//! PostgreSQL killed and restarted under load.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidegate_model::api::{CreateConversation, SubmitTurn};

use crate::rig::{World, own_database};

/// R4.4, R21.4: no acknowledged run is lost, and the servers serve again without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_restart_loses_no_run() {
    let (cluster, db) = own_database().await;
    let world = World::new(db, 2, 8, 8, Duration::from_millis(300)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let accepted = Arc::new(AtomicUsize::new(0));
    let mut producers = Vec::new();
    for (_, client) in &world.tenants {
        let (client, stop, accepted) = (client.clone(), Arc::clone(&stop), Arc::clone(&accepted));
        producers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let submitted = async {
                    let conversation = client
                        .create_conversation(&CreateConversation::default())
                        .await?;
                    let turn = SubmitTurn {
                        input: "hello".to_owned(),
                        capability: None,
                        requirements: None,
                        service_class: None,
                        deadline: None,
                        user: None,
                    };
                    client
                        .submit_turn(conversation.conversation_id, &turn, None)
                        .await
                };
                if submitted.await.is_ok() {
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }));
    }
    for _ in 0..3 {
        let before = accepted.load(Ordering::Relaxed);
        cluster.cluster().restart().await.expect("restart");
        // Work is accepted again through servers that nobody restarted.
        let deadline = std::time::Instant::now() + Duration::from_mins(1);
        while accepted.load(Ordering::Relaxed) < before + 8 {
            assert!(
                std::time::Instant::now() < deadline,
                "nothing is accepted after a restart\n{}",
                world.logs()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.await.expect("producer");
    }
    let runs = world.count("SELECT count(*) FROM agent_runs").await;
    assert!(
        runs >= i64::try_from(accepted.load(Ordering::Relaxed)).expect("small"),
        "every acknowledged run is there"
    );
    world.until_all_succeeded().await;
    assert!(world.admin.ready().await.expect("readiness").ready);
}

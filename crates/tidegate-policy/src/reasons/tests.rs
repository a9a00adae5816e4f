use proptest::prelude::*;

use super::*;
use tidegate_model::pool_reason::PoolReason;

fn facts() -> LaneFacts {
    LaneFacts {
        tenant: "acme".parse().unwrap(),
        tenant_active: true,
        bucket: QuotaBucket::Foreground,
        capability: "chat".parse().unwrap(),
        running: 0,
        cap: Some(2),
        fairness_on: true,
        pools: Eligibility {
            eligible: vec!["builtin".parse().unwrap()],
            ..Eligibility::default()
        },
        workers: vec![PoolWorkers {
            pool: "builtin".parse().unwrap(),
            slots: 8,
            busy: 8,
        }],
        background_served: true,
        short: Vec::new(),
        unroutable_grace_ms: 600_000,
    }
}

fn codes(facts: &LaneFacts) -> Vec<QueueReason> {
    lane(facts).iter().map(Cause::code).collect()
}

/// R3.9: each cause of a lane is found from its facts, and all that hold are returned, ranked.
#[test]
fn causes_follow_from_the_facts() {
    use QueueReason as Q;
    assert_eq!(codes(&facts()), [Q::WaitingForWorker]);

    let full = LaneFacts {
        running: 2,
        ..facts()
    };
    assert_eq!(codes(&full), [Q::TenantForegroundCap]);
    let unfair = LaneFacts {
        fairness_on: false,
        ..full.clone()
    };
    assert_eq!(codes(&unfair), [Q::WaitingForWorker]);

    let background = LaneFacts {
        bucket: QuotaBucket::Background,
        cap: Some(1),
        running: 1,
        ..facts()
    };
    assert_eq!(codes(&background), [Q::TenantBackgroundCap]);
    let disabled = LaneFacts {
        background_served: false,
        ..background.clone()
    };
    assert_eq!(
        codes(&disabled),
        [Q::BackgroundDisabled, Q::TenantBackgroundCap]
    );

    let refused = RefusedPool {
        pool: "builtin".parse().unwrap(),
        reason: PoolReason::CapabilityMissing,
        also: Vec::new(),
    };
    let nowhere = LaneFacts {
        pools: Eligibility {
            refused: vec![refused],
            ..Eligibility::default()
        },
        ..full
    };
    assert_eq!(codes(&nowhere), [Q::NoEligiblePool, Q::TenantForegroundCap]);
}

/// R3.9, R6.4: the remedy names the pool that lacks least, and what it lacks.
#[test]
fn the_remedy_names_the_nearest_pool() {
    let refused = |pool: &str, reason, also: &[PoolReason]| RefusedPool {
        pool: pool.parse().unwrap(),
        reason,
        also: also.to_vec(),
    };
    let remedy = |pools: Vec<RefusedPool>| {
        let facts = LaneFacts {
            pools: Eligibility {
                refused: pools,
                ..Eligibility::default()
            },
            ..facts()
        };
        lane(&facts)[0].remedy()
    };
    let other = refused("other", PoolReason::CapabilityMissing, &[]);
    let far = refused(
        "far",
        PoolReason::SandboxTooWeak,
        &[PoolReason::ToolMissing],
    );
    let near = refused("near", PoolReason::DescriptorExpired, &[]);
    let said = remedy(vec![other.clone(), far, near]);
    assert!(
        said.contains("near") && said.contains("expiresAt"),
        "{said}"
    );
    assert!(!said.contains("far"), "{said}");
    assert!(remedy(vec![other]).starts_with("publish and activate"));
}

#[test]
fn a_suspended_tenant_is_told_so() {
    let suspended = LaneFacts {
        tenant_active: false,
        ..facts()
    };
    let causes = lane(&suspended);
    assert_eq!(causes.len(), 1);
    assert!(causes[0].remedy().contains("tidegate tenant resume acme"));
}

#[test]
fn the_remedy_of_a_missing_worker_differs_from_that_of_a_busy_one() {
    let with = |slots, busy| {
        let mut facts = facts();
        facts.workers[0].slots = slots;
        facts.workers[0].busy = busy;
        lane(&facts)[0].remedy()
    };
    assert!(with(0, 0).starts_with("start a worker"));
    assert!(with(8, 8).contains("RUN_EXECUTION_CONCURRENCY"));
    assert!(with(8, 7).starts_with("nothing to do"));
}

/// R3.9: parked runs have their own causes; waiting and review are not queue reasons.
#[test]
fn parked_runs_have_their_own_cause() {
    let run_id = RunId::new();
    let rival = RunId::new();
    let facts = |why| ParkedFacts {
        why,
        due: DateTime::from_timestamp_millis(1_000),
        run_id,
        conversation_id: Some(ConversationId::new()),
        active_run: Some(rival),
        active_state: None,
        attempts: 1,
        max_attempts: 5,
        last_code: Some(Code::ProviderFailed),
    };
    for (why, code, text) in [
        (
            ParkReason::ConversationBusy,
            QueueReason::ConversationBusy,
            format!("tidegate run cancel {rival}"),
        ),
        (
            ParkReason::Scheduled,
            QueueReason::Scheduled,
            format!("tidegate run requeue {run_id}"),
        ),
        (
            ParkReason::RetryBackoff,
            QueueReason::RetryBackoff,
            "attempt 2 of 5".to_owned(),
        ),
    ] {
        let cause = parked(&facts(why)).unwrap();
        assert_eq!(cause.code(), code);
        assert!(cause.remedy().contains(&text), "{}", cause.remedy());
        let again = Cause::from_stored(cause.code(), &cause.facts());
        assert_eq!(again, Some(cause));
    }
    assert_eq!(parked(&facts(ParkReason::Waiting)), None);
    assert_eq!(parked(&facts(ParkReason::Review)), None);
}

#[test]
fn facts_of_another_release_are_not_guessed() {
    let facts = serde_json::json!({"running": "two"});
    assert_eq!(
        Cause::from_stored(QueueReason::TenantForegroundCap, &facts),
        None
    );
    assert_eq!(Cause::from_stored(QueueReason::PressureStage, &facts), None);
}

proptest! {
    /// R3.9: a queued run always has a cause, the shown one is the first by rank, and what is stored reads back.
    #[test]
    fn there_is_always_a_cause_and_it_reads_back(
        place in 0_usize..3, running in -1_i64..10, cap in prop::option::of(0_i64..9), fairness_on: bool,
        active: bool, eligible: bool, served: bool,
    ) {
        let mut given = LaneFacts {
            bucket: QuotaBucket::ALL[place], running, cap, fairness_on, tenant_active: active,
            background_served: served || place != 1, ..facts()
        };
        if !eligible {
            given.pools.eligible.clear();
        }
        let causes = lane(&given);
        prop_assert!(!causes.is_empty());
        prop_assert!(causes.is_sorted_by_key(|cause| cause.code().rank()));
        for cause in causes {
            prop_assert!(!cause.remedy().is_empty());
            let again = Cause::from_stored(cause.code(), &cause.facts());
            prop_assert_eq!(again, Some(cause));
        }
    }
}

//! Schedules: what is due is fired once, and what is missed, overlaps or is refused follows its rule.

use chrono::{DateTime, Utc};
use futures::future::join_all;
use serde_json::{Value, json};
use tidegate_engine::{
    runs,
    schedules::{
        delete,
        fire::{self, Round},
        get, list,
        pause::{self, Firing},
        put,
    },
    tenants,
};
use tidegate_model::{
    Code, PoolId, RunId,
    api::{
        PageQuery, PutSchedule, RunBudget, RunFilter, RunView, ScheduleView, ScheduledRun,
        SetTenantState, SubmitRun,
    },
    ids::ScheduleName,
    limits,
    principal::{KeyScope, TenantState},
    run::{QuotaBucket, RunKind, RunState, ServiceClass},
    schedule::{MissedRuns, Overlap, SkipReason},
};

use crate::rig::{World, acme, member, operator, settings, task};

fn name(text: &str) -> ScheduleName {
    text.parse().expect("name")
}

/// On the first of each month: what a test calls due is not overtaken by the clock meanwhile.
fn monthly() -> PutSchedule {
    PutSchedule {
        cron: "@monthly".to_owned(),
        time_zone: None,
        missed_runs: MissedRuns::default(),
        catch_up_window_ms: Some(limits::CATCH_UP_MAX_MS),
        overlap: Overlap::Allow,
        run: ScheduledRun {
            capability: "chat".parse().expect("capability"),
            input: json!({"report": "sales"}),
            service_class: None,
            priority: None,
            max_attempts: None,
            budget: None,
            user: None,
        },
    }
}

impl World {
    async fn put(&self, schedule: &str, request: PutSchedule) -> ScheduleView {
        put::put(&self.engine, &member("acme"), name(schedule), request)
            .await
            .expect("schedule")
    }

    async fn schedule(&self, schedule: &str) -> ScheduleView {
        get::get(&self.engine, &member("acme"), &name(schedule))
            .await
            .expect("schedule")
    }

    async fn turn_to(&self, schedule: &str, firing: Firing) -> ScheduleView {
        pause::pause(&self.engine, &member("acme"), &name(schedule), firing)
            .await
            .expect("pause")
    }

    /// The first of this month, or of one before or after it.
    async fn month(&self, ago: i32) -> DateTime<Utc> {
        sqlx::query_scalar(
            "SELECT (date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') - $1 * interval '1 month') AT TIME ZONE 'UTC'",
        )
        .bind(ago)
        .fetch_one(self.db.pool())
        .await
        .expect("clock")
    }

    /// A month passes over the runs that were fired.
    async fn a_month_passes(&self) {
        sqlx::raw_sql(
            "ALTER TABLE agent_runs DISABLE TRIGGER ALL;
             UPDATE agent_runs SET due_at = due_at - interval '1 month';",
        )
        .execute(self.db.pool())
        .await
        .expect("age");
    }

    /// The schedule has not been looked at since this due time.
    async fn unsettled_since(&self, schedule: &str, due: DateTime<Utc>) {
        let changed = sqlx::query("UPDATE schedules SET next_due_at = $2 WHERE name = $1")
            .bind(schedule)
            .bind(due)
            .execute(self.db.pool())
            .await
            .expect("schedule");
        assert_eq!(changed.rows_affected(), 1);
    }

    async fn round(&self) -> Round {
        fire::round(&self.engine).await.expect("round")
    }

    /// The runs of a schedule, by due time.
    async fn runs_of(&self, schedule: &str) -> Vec<RunView> {
        let filter = RunFilter {
            schedule: Some(name(schedule)),
            ..RunFilter::default()
        };
        let mut runs = runs::list::list(&self.engine, &member("acme"), filter)
            .await
            .expect("runs")
            .items;
        runs.sort_by_key(|run| run.schedule.as_ref().map(|due| due.due_at));
        runs
    }

    async fn due_times(&self, schedule: &str) -> Vec<DateTime<Utc>> {
        let runs = self.runs_of(schedule).await;
        let due = runs.into_iter().filter_map(|run| run.schedule);
        due.map(|due| due.due_at).collect()
    }

    async fn set_acme(&self, state: TenantState) {
        tenants::set_state(&self.engine, &operator(), &acme(), SetTenantState { state })
            .await
            .expect("state");
    }
}

/// R3.14, R3.2: a due time gives one run of kind `scheduled`, uncounted, whose worker is told the due time.
#[tokio::test]
async fn a_due_time_becomes_a_run() {
    let world = World::new(settings()).await;
    let made = world.put("report", monthly()).await;
    assert_eq!(made.next_due_times.len(), 5);
    assert!(made.next_due_times[0] > world.now().await);
    assert_eq!(world.round().await, Round::default(), "nothing is due yet");
    let due = world.month(0).await;
    world.unsettled_since("report", due).await;
    assert_eq!(world.round().await.runs, 1);
    assert_eq!(world.round().await, Round::default());
    let lease = world
        .claim(&PoolId::builtin(), 10)
        .await
        .pop()
        .expect("lease");
    assert_eq!(lease.run.kind, RunKind::Scheduled);
    assert_eq!(lease.run.quota_bucket, QuotaBucket::Uncounted);
    assert_eq!(lease.run.service_class, ServiceClass::Deferrable);
    assert_eq!(lease.run.input, json!({"report": "sales"}));
    let told = lease.run.schedule.clone().expect("due time");
    assert_eq!((told.name, told.due_at), (name("report"), due));
    world.complete(&lease).await;
    let run = world.get(lease.run.run_id).await;
    assert_eq!(run.state, RunState::Succeeded);
    assert_eq!(run.schedule.expect("due time").due_at, due);
    let after = world.schedule("report").await;
    assert_eq!(after.last_run.expect("run").run_id, lease.run.run_id);
    assert_eq!(after.next_due_times[0], world.month(-1).await);
    // R3.2: no other way leads to this kind.
    let (me, kind) = (member("acme"), RunKind::Scheduled);
    let asked = runs::submit::submit_as(&world.engine, &me, kind, task("chat")).await;
    assert!(asked.is_err());
}

/// What was written of a run, by table, without what is each run's own.
async fn written(world: &World, run: RunId) -> Vec<Value> {
    let mut rows = Vec::new();
    for sql in [
        "SELECT to_jsonb(t) - '{run_id,root_run_id,request_digest,created_at}'::text[]
            || jsonb_build_object('root', t.root_run_id = t.run_id)
         FROM agent_runs t WHERE run_id = $1",
        "SELECT to_jsonb(t) - '{run_id,position,queued_at,expires_at}'::text[]
            || jsonb_build_object('expires', t.expires_at - t.queued_at)
         FROM run_queue t WHERE run_id = $1",
        "SELECT to_jsonb(t) - '{run_id,at}'::text[] FROM run_events t WHERE run_id = $1",
    ] {
        let found: Vec<Value> = sqlx::query_scalar(sql)
            .bind(run.as_uuid())
            .fetch_all(world.db.pool())
            .await
            .expect("rows");
        assert_eq!(found.len(), 1, "{sql}");
        rows.extend(found);
    }
    rows
}

/// R3.14, R3.2: runs of schedules have a statement of their own; it writes, column by column, what a submission of the same
/// writes.
#[tokio::test]
async fn a_fired_run_is_written_like_a_submitted_one() {
    let world = World::new(settings()).await;
    let mut me = member("acme");
    me.scopes.push(KeyScope::ActForUsers);
    me.grants.priority = Some(7);
    let run = ScheduledRun {
        service_class: Some(ServiceClass::Deferrable),
        priority: Some(-5),
        max_attempts: Some(3),
        budget: Some(RunBudget {
            tokens: Some(1_000),
            execution_ms: Some(60_000),
        }),
        user: Some("somebody".to_owned()),
        ..monthly().run
    };
    let submit = SubmitRun {
        service_class: run.service_class,
        priority: run.priority,
        max_attempts: run.max_attempts,
        budget: run.budget,
        user: run.user.clone(),
        input: run.input.clone(),
        ..task("chat")
    };
    let schedule = PutSchedule { run, ..monthly() };
    put::put(&world.engine, &me, name("report"), schedule)
        .await
        .expect("schedule");
    let due = world.month(0).await;
    world.unsettled_since("report", due).await;
    assert_eq!(world.round().await.runs, 1);
    let fired = world.runs_of("report").await[0].run_id;
    let submitted = runs::submit::submit(&world.engine, &me, submit, None)
        .await
        .expect("run");
    let mut expected = written(&world, submitted.run_id).await;
    // What makes it a run of a schedule, and nothing else.
    let due_at = due.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let (row, told) = (json!("scheduled"), &mut expected[2]["body"]);
    told["kind"] = row.clone();
    told["schedule"] = json!("report");
    told["dueAt"] = json!(due_at);
    expected[0]["kind"] = row;
    expected[0]["schedule"] = json!("report");
    let mut found = written(&world, fired).await;
    assert!(found[0]["due_at"].take().is_string());
    assert_eq!(found, expected);
}

/// R3.14: many instances that look at the same time fire each due time once, more schedules than a batch holds too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_instances_fire_a_due_time_once() {
    let world = World::new(settings()).await;
    let mut engines = Vec::new();
    for _ in 0..4 {
        engines.push(world.instance(settings()).await);
    }
    for n in 0..60 {
        world.put(&format!("s{n}"), monthly()).await;
    }
    let due = world.month(0).await;
    for _ in 0..3 {
        sqlx::query("UPDATE schedules SET next_due_at = $1")
            .bind(due)
            .execute(world.db.pool())
            .await
            .expect("due");
        join_all(engines.iter().map(fire::round)).await;
        assert_eq!(world.round().await.runs, 0, "nothing is left");
    }
    let counts: (i64, i64) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT schedule) FROM agent_runs WHERE kind = 'scheduled'",
    )
    .fetch_one(world.db.pool())
    .await
    .expect("count");
    // The same due time was offered three times over; it was fired before.
    assert_eq!(counts, (60, 60));
}

/// R3.14: due times within a pause follow the rule for missed runs, and the next one is that of the clock.
#[tokio::test]
async fn what_a_pause_missed_follows_its_rule() {
    let world = World::new(settings()).await;
    for (rule, months) in [
        (MissedRuns::Skip, vec![]),
        (MissedRuns::RunOnce, vec![0]),
        (MissedRuns::RunAll, vec![2, 1, 0]),
    ] {
        let schedule = rule.as_str().to_lowercase();
        let request = PutSchedule {
            missed_runs: rule,
            ..monthly()
        };
        world.put(&schedule, request).await;
        let paused = world.turn_to(&schedule, Firing::Paused).await;
        assert!(paused.paused && paused.next_due_times.is_empty());
        world.unsettled_since(&schedule, world.month(2).await).await;
        world.round().await;
        assert!(world.due_times(&schedule).await.is_empty(), "{rule}");
        world.turn_to(&schedule, Firing::Resumed).await;
        world.round().await;
        let mut expected = Vec::new();
        for ago in months {
            expected.push(world.month(ago).await);
        }
        assert_eq!(world.due_times(&schedule).await, expected, "{rule}");
        let next = world.schedule(&schedule).await.next_due_times[0];
        assert_eq!(next, world.month(-1).await, "{rule}");
    }
}

/// R3.14: a suspended tenant's schedules do not fire; when it is resumed they make up by their rule, within the window.
#[tokio::test]
async fn a_suspended_tenant_fires_nothing_until_it_is_resumed() {
    let world = World::new(settings()).await;
    let all = |window_days: i64| PutSchedule {
        missed_runs: MissedRuns::RunAll,
        catch_up_window_ms: Some(window_days * 24 * 3_600_000),
        ..monthly()
    };
    world.put("wide", all(366)).await;
    world.put("narrow", all(32)).await;
    world.set_acme(TenantState::Suspended).await;
    for schedule in ["wide", "narrow"] {
        world.unsettled_since(schedule, world.month(3).await).await;
    }
    assert_eq!(world.round().await, Round::default());
    let refused = put::put(&world.engine, &member("acme"), name("new"), monthly()).await;
    assert_eq!(
        refused.expect_err("suspended").code(),
        Code::TenantSuspended
    );
    world.set_acme(TenantState::Active).await;
    world.round().await;
    assert_eq!(world.due_times("wide").await.len(), 4);
    // 32 days reach back one month or, on its last day or first, two.
    let narrow = world.due_times("narrow").await;
    assert_eq!(narrow.last(), Some(&world.month(0).await));
    assert!(narrow.len() < 3, "{narrow:?}");
}

/// R3.14: while a run is open the next one starts beside it, does not come, or takes its place.
#[tokio::test]
async fn overlapping_due_times_follow_their_rule() {
    let world = World::new(settings()).await;
    for rule in Overlap::ALL {
        let request = PutSchedule {
            overlap: *rule,
            ..monthly()
        };
        world.put(rule.as_str(), request).await;
        world
            .unsettled_since(rule.as_str(), world.month(0).await)
            .await;
    }
    assert_eq!(world.round().await.runs, 3);
    world.a_month_passes().await;
    for rule in Overlap::ALL {
        world
            .unsettled_since(rule.as_str(), world.month(0).await)
            .await;
    }
    let round = world.round().await;
    assert_eq!((round.runs, round.skipped, round.replaced), (2, 1, 1));
    let mut states = Vec::new();
    for rule in Overlap::ALL {
        let runs = world.runs_of(rule.as_str()).await;
        states.push(runs.iter().map(|run| run.state).collect::<Vec<_>>());
    }
    let (queued, cancelled) = (RunState::Queued, RunState::Cancelled);
    assert_eq!(
        states,
        [vec![queued, queued], vec![queued], vec![cancelled, queued]]
    );
    let skipped = world.schedule("skip").await.last_skipped.expect("skipped");
    assert_eq!(
        (skipped.due_at, skipped.why),
        (world.month(0).await, SkipReason::Overlap)
    );
}

/// R3.14, R3.10: a run that is replaced while it runs is told to stop; one that has ended is in nobody's way.
#[tokio::test]
async fn a_running_run_is_replaced_and_an_ended_one_is_no_overlap() {
    let world = World::new(settings()).await;
    for rule in [Overlap::Skip, Overlap::Replace] {
        let request = PutSchedule {
            overlap: rule,
            ..monthly()
        };
        world.put(rule.as_str(), request).await;
        world
            .unsettled_since(rule.as_str(), world.month(0).await)
            .await;
    }
    world.round().await;
    for lease in world.claim(&PoolId::builtin(), 10).await {
        let due = lease.run.schedule.clone().expect("due time");
        if due.name == name("skip") {
            world.complete(&lease).await;
        }
    }
    world.a_month_passes().await;
    for schedule in ["skip", "replace"] {
        world.unsettled_since(schedule, world.month(0).await).await;
    }
    assert_eq!(world.round().await.runs, 2);
    let replaced = &world.runs_of("replace").await[0];
    assert!(replaced.cancel_requested, "{replaced:?}");
    assert_eq!(world.runs_of("skip").await[0].state, RunState::Succeeded);
}

/// R3.14: a run that is refused says so and keeps no other schedule from firing; the next due time is tried again.
#[tokio::test]
async fn a_refused_run_stops_no_other_schedule() {
    let world = World::new(settings()).await;
    for schedule in ["a-cursed", "b-lost", "c-fine"] {
        world.put(schedule, monthly()).await;
        world.unsettled_since(schedule, world.month(0).await).await;
    }
    for trouble in [
        "UPDATE schedules SET capability = 'cursed' WHERE name = 'a-cursed'",
        "UPDATE schedules SET time_zone = 'Mars/Olympus' WHERE name = 'b-lost'",
        "ALTER TABLE agent_runs ADD CONSTRAINT no_curses CHECK (capability <> 'cursed')",
    ] {
        sqlx::raw_sql(trouble)
            .execute(world.db.pool())
            .await
            .expect("trouble");
    }
    let round = world.round().await;
    assert_eq!((round.runs, round.refused), (1, 2));
    assert_eq!(world.due_times("c-fine").await, [world.month(0).await]);
    let cursed = world.schedule("a-cursed").await;
    let error = cursed.last_error.clone().expect("error");
    assert_eq!(
        (error.code, error.due_at),
        (Code::Internal, world.month(0).await)
    );
    assert_eq!(cursed.next_due_times[0], world.month(-1).await);
    let lost = world.schedule("b-lost").await.last_error.expect("error");
    assert_eq!(lost.code, Code::InvalidArgument);
    assert!(lost.detail.contains("Mars/Olympus"), "{}", lost.detail);
    assert_eq!(
        world.round().await,
        Round::default(),
        "not tried in between"
    );
    sqlx::raw_sql("ALTER TABLE agent_runs DROP CONSTRAINT no_curses")
        .execute(world.db.pool())
        .await
        .expect("cure");
    world
        .unsettled_since("a-cursed", world.month(0).await)
        .await;
    assert_eq!(world.round().await.runs, 1);
    assert_eq!(world.schedule("a-cursed").await.last_error, None);
}

/// R3.14: what could never be due is refused by its field, with the remedy.
#[tokio::test]
async fn what_cannot_be_scheduled_is_refused_by_field() {
    let world = World::new(settings()).await;
    let with = |edit: fn(&mut PutSchedule)| {
        let mut request = monthly();
        edit(&mut request);
        request
    };
    for (request, field, remedy) in [
        (
            with(|s| s.cron = "every day".to_owned()),
            "cron",
            "five fields",
        ),
        (
            with(|s| s.cron = "0 0 31 2 *".to_owned()),
            "cron",
            "no such day",
        ),
        (
            with(|s| s.time_zone = Some("Europe/Berlim".to_owned())),
            "timeZone",
            "did you mean Europe/Berlin?",
        ),
        (
            with(|s| s.catch_up_window_ms = Some(5)),
            "catchUpWindowMs",
            "60000",
        ),
        (
            with(|s| s.run.max_attempts = Some(0)),
            "run.maxAttempts",
            "1 to 100",
        ),
        (
            with(|s| s.run.priority = Some(5)),
            "run.priority",
            "only lower",
        ),
        (
            with(|s| s.run.service_class = Some(ServiceClass::Interactive)),
            "run.serviceClass",
            "deferrable",
        ),
        (
            with(|s| s.run.input = json!("x".repeat(70_000))),
            "run.input",
            "reference",
        ),
    ] {
        let refused = put::put(&world.engine, &member("acme"), name("bad"), request).await;
        let problem = refused.expect_err(field).problem();
        assert_eq!(problem.field.as_deref(), Some(field), "{problem:?}");
        let detail = problem.detail.expect("detail");
        assert!(detail.contains(remedy), "{detail}");
    }
}

/// R3.14: a schedule that is replaced goes on from now, paused if it was; one that is deleted leaves its runs.
#[tokio::test]
async fn a_replaced_schedule_continues_from_now_and_a_deleted_one_leaves_its_runs() {
    let world = World::new(settings()).await;
    let me = member("acme");
    let all = PutSchedule {
        missed_runs: MissedRuns::RunAll,
        ..monthly()
    };
    world.put("report", all.clone()).await;
    world.unsettled_since("report", world.month(0).await).await;
    world.round().await;
    let run: RunId = world.runs_of("report").await[0].run_id;
    world.turn_to("report", Firing::Paused).await;
    world.unsettled_since("report", world.month(5).await).await;
    assert!(world.put("report", all).await.paused);
    world.turn_to("report", Firing::Resumed).await;
    assert_eq!(world.round().await, Round::default());
    let page = list::list(&world.engine, &me, &PageQuery::default()).await;
    assert_eq!(page.expect("list").items.len(), 1);
    let theirs = get::get(&world.engine, &member("globex"), &name("report")).await;
    assert_eq!(theirs.expect_err("foreign").code(), Code::NotFound);
    delete::delete(&world.engine, &me, &name("report"))
        .await
        .expect("delete");
    let again = delete::delete(&world.engine, &me, &name("report")).await;
    assert_eq!(again.expect_err("gone").code(), Code::NotFound);
    let left = world.get(run).await;
    assert_eq!(left.state, RunState::Queued);
    assert_eq!(left.schedule.expect("due time").name, name("report"));
}

/// R3.14: nobody schedules without end.
#[tokio::test]
async fn the_schedules_of_a_tenant_are_bounded() {
    let world = World::new(settings()).await;
    world.put("s0", monthly()).await;
    sqlx::raw_sql(
        "INSERT INTO schedules (tenant, name, scope, cron, time_zone, missed_runs, catch_up_window_ms, overlap, capability,
             class, service_class, priority, priority_source, input, request_digest, next_due_at)
         SELECT tenant, 's' || n, scope, cron, time_zone, missed_runs, catch_up_window_ms, overlap, capability, class,
             service_class, priority, priority_source, input, request_digest, next_due_at
         FROM schedules, generate_series(1, 999) n",
    )
    .execute(world.db.pool())
    .await
    .expect("fill");
    let refused = put::put(&world.engine, &member("acme"), name("more"), monthly()).await;
    assert_eq!(refused.expect_err("full").code(), Code::StateConflict);
    world.put("s7", monthly()).await;
}

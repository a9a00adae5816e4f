-- R3.14: schedules of runs. A due time is fired under the lock of the schedule's row, in the transaction that writes the
-- next one; what guards it besides is the run itself, which is unique by schedule and due time.
CREATE TABLE schedules (
    tenant          text        COLLATE "C" NOT NULL REFERENCES tenants (tenant),
    name            text        COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 63),
    scope           text        COLLATE "C" NOT NULL,
    cron            text        NOT NULL CHECK (length(cron) BETWEEN 1 AND 200),
    time_zone       text        NOT NULL CHECK (length(time_zone) BETWEEN 1 AND 64),
    missed_runs     text        NOT NULL CHECK (missed_runs IN ('skip', 'runOnce', 'runAll')),
    catch_up_window_ms bigint   NOT NULL CHECK (catch_up_window_ms > 0),
    overlap         text        NOT NULL CHECK (overlap IN ('allow', 'skip', 'replace')),
    paused          boolean     NOT NULL DEFAULT false,
    -- What each run is; the same bounds as in agent_runs.
    capability      text        COLLATE "C" NOT NULL,
    class           integer     NOT NULL,
    service_class   text        NOT NULL CHECK (service_class IN ('interactive', 'standard', 'deferrable', 'speculative')),
    priority        smallint    NOT NULL,
    priority_source text        NOT NULL,
    max_attempts    integer     CHECK (max_attempts BETWEEN 1 AND 100),
    budget_tokens   bigint      CHECK (budget_tokens > 0),
    budget_ms       bigint      CHECK (budget_ms > 0),
    input           jsonb       NOT NULL,
    -- Keyed, never returned or logged.
    request_digest  bytea       NOT NULL CHECK (length(request_digest) = 32),
    user_name       text,
    created_by      uuid,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The earliest due time that was neither run nor skipped.
    next_due_at     timestamptz NOT NULL,
    last_due_at     timestamptz,
    last_run_id     uuid,
    -- The latest due time that no run came of by the schedule's own rules.
    skipped_due_at  timestamptz,
    skipped_why     text        CHECK (skipped_why IN ('missed', 'overlap')),
    -- Why no run could come of the latest due time; gone with the next run.
    error_due_at    timestamptz,
    error_code      text,
    error_detail    text        CHECK (length(error_detail) <= 2000),
    PRIMARY KEY (tenant, name),
    CHECK ((last_due_at IS NULL) = (last_run_id IS NULL)),
    CHECK ((skipped_due_at IS NULL) = (skipped_why IS NULL)),
    CHECK ((error_due_at IS NULL) = (error_code IS NULL) AND (error_code IS NULL) = (error_detail IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX schedules_due ON schedules (scope, next_due_at) WHERE NOT paused;

-- Which due time of which schedule a run is of. Written at insert, never changed: the run outlives the schedule.
ALTER TABLE agent_runs
    ADD COLUMN schedule text        COLLATE "C",
    ADD COLUMN due_at   timestamptz;
-- R3.14: a due time fires once, whoever fires it. Only scheduled runs stand in it.
CREATE UNIQUE INDEX agent_runs_schedules ON agent_runs (tenant, schedule, due_at) WHERE schedule IS NOT NULL;

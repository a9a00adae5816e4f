-- Hot and cold: agent_runs, run_attempts, run_ends and run_events are insert-only; a row of run_queue exists while a run
-- may be claimed, one of run_leases while it runs, one of run_parked while it can do neither. State is derived: ended,
-- else leased, else parked, else queued. Buckets in the narrow tables: 0 foreground, 1 background, 2 uncounted.
--
-- These tables have no CHECK constraints: PostgreSQL reads and plans each of them anew in every statement that writes a row,
-- which took half of the time of a submission (docs/adr/0014-checks-in-tests.md). What they would say stands in
-- crates/tidegate-testkit/src/checks.sql, and every test database has it.

CREATE TABLE conversations (
    tenant          text        COLLATE "C" NOT NULL REFERENCES tenants (tenant),
    conversation_id uuid        NOT NULL,
    title           text        CHECK (length(title) <= 200),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    user_name       text,
    -- R3.7: the turn that is not over; the next one waits in run_parked. Changed only under the row's lock.
    active_run      uuid,
    next_turn       bigint      NOT NULL DEFAULT 1,
    next_message    bigint      NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant, conversation_id)
) WITH (fillfactor = 80);

CREATE TABLE messages (
    tenant          text        COLLATE "C" NOT NULL,
    conversation_id uuid        NOT NULL,
    seq             bigint      NOT NULL,
    turn_no         bigint      NOT NULL,
    role            text        NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    content         jsonb       NOT NULL,
    run_id          uuid,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, conversation_id, seq),
    FOREIGN KEY (tenant, conversation_id) REFERENCES conversations (tenant, conversation_id)
);

CREATE TABLE agent_runs (
    tenant          text        COLLATE "C" NOT NULL,
    run_id          uuid        NOT NULL,
    scope           text        COLLATE "C" NOT NULL,
    kind            text        NOT NULL,
    -- R3.2: derived at insert; a generated column cannot be written, and the trigger below refuses every update.
    quota_bucket    text        NOT NULL GENERATED ALWAYS AS (CASE kind
                        WHEN 'conversation_turn' THEN 'foreground'
                        WHEN 'background_work.v1' THEN 'background'
                        WHEN 'scheduled' THEN 'uncounted'
                        WHEN 'child' THEN 'uncounted'
                        WHEN 'business_task' THEN 'uncounted' END) STORED,
    capability      text        COLLATE "C" NOT NULL,
    class           integer     NOT NULL,
    service_class   text        NOT NULL,
    priority        smallint    NOT NULL,
    priority_source text        NOT NULL,
    conversation_id uuid,
    turn_no         bigint,
    parent_run_id   uuid,
    root_run_id     uuid        NOT NULL,
    idempotency_key text,
    -- Keyed, never returned or logged.
    request_digest  bytea       NOT NULL,
    -- R4.7: the retry policy is stored with the run, takeover needs nothing else.
    max_attempts    integer     NOT NULL,
    backoff_base_ms bigint      NOT NULL,
    backoff_max_ms  bigint      NOT NULL,
    budget_tokens   bigint,
    budget_ms       bigint,
    run_at          timestamptz,
    deadline        timestamptz,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by      uuid,
    user_name       text,
    input           jsonb       NOT NULL,
    PRIMARY KEY (tenant, run_id)
);
CREATE UNIQUE INDEX agent_runs_idempotency ON agent_runs (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX agent_runs_turns ON agent_runs (tenant, conversation_id, turn_no) WHERE conversation_id IS NOT NULL;
CREATE TRIGGER agent_runs_are_immutable BEFORE UPDATE ON agent_runs
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE SEQUENCE run_queue_position;

CREATE TABLE run_queue (
    scope        text        COLLATE "C" NOT NULL,
    bucket       smallint    NOT NULL,
    tenant       text        COLLATE "C" NOT NULL,
    class        integer     NOT NULL,
    -- 0 woken or taken over, 1 others.
    rank         smallint    NOT NULL,
    -- Negated priority, so that the key ascends.
    urgency      smallint    NOT NULL,
    position     bigint      NOT NULL DEFAULT nextval('run_queue_position'),
    run_id       uuid        NOT NULL,
    -- What travels with a run from lease to queue and back.
    attempts     integer     NOT NULL DEFAULT 0,
    fence_number bigint      NOT NULL DEFAULT 0,
    leases_lost  integer     NOT NULL DEFAULT 0,
    spent_tokens bigint      NOT NULL DEFAULT 0,
    spent_ms     bigint      NOT NULL DEFAULT 0,
    next_seq     bigint      NOT NULL,
    queued_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The deadline or the greatest age in the queue, whichever is first.
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (scope, bucket, tenant, class, rank, urgency, position)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);

CREATE TABLE run_leases (
    scope             text        COLLATE "C" NOT NULL,
    bucket            smallint    NOT NULL,
    tenant            text        COLLATE "C" NOT NULL,
    run_id            uuid        NOT NULL,
    class             integer     NOT NULL,
    urgency           smallint    NOT NULL,
    attempt           integer     NOT NULL,
    fence_generation  integer     NOT NULL,
    fence_number      bigint      NOT NULL,
    leases_lost       integer     NOT NULL,
    spent_tokens      bigint      NOT NULL,
    spent_ms          bigint      NOT NULL,
    next_seq          bigint      NOT NULL,
    pool              text        COLLATE "C" NOT NULL,
    holder            text        NOT NULL,
    incarnation       bigint      NOT NULL,
    -- The instance that granted it; another one may renew it.
    instance_id       uuid        NOT NULL,
    conversation_id   uuid,
    queued_at         timestamptz NOT NULL,
    started_at        timestamptz NOT NULL,
    lease_until       timestamptz NOT NULL,
    -- The deadline or the end of the execution budget, whichever is first.
    must_end_at       timestamptz,
    -- R3.12: what its tenant was charged by estimate, settled when it ends.
    charged           bigint      NOT NULL DEFAULT 0,
    -- R3.10: a mark, not an event; obeyed at the next renewal, fenced off after the grace.
    stop_reason       text,
    stop_requested_at timestamptz,
    PRIMARY KEY (scope, bucket, tenant, run_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);

-- R3.4: the database itself refuses one background lease too many: a slot is below the cap when it is taken, and unique.
CREATE TABLE background_slots (
    scope  text     COLLATE "C" NOT NULL,
    tenant text     COLLATE "C" NOT NULL,
    slot   smallint NOT NULL CHECK (slot BETWEEN 1 AND 64),
    run_id uuid     NOT NULL,
    PRIMARY KEY (scope, tenant, slot)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE run_parked (
    tenant          text        COLLATE "C" NOT NULL,
    run_id          uuid        NOT NULL,
    why             text        NOT NULL,
    due             timestamptz,
    scope           text        COLLATE "C" NOT NULL,
    bucket          smallint    NOT NULL,
    class           integer     NOT NULL,
    urgency         smallint    NOT NULL,
    conversation_id uuid,
    turn_no         bigint,
    attempts        integer     NOT NULL DEFAULT 0,
    fence_number    bigint      NOT NULL DEFAULT 0,
    leases_lost     integer     NOT NULL DEFAULT 0,
    spent_tokens    bigint      NOT NULL DEFAULT 0,
    spent_ms        bigint      NOT NULL DEFAULT 0,
    next_seq        bigint      NOT NULL,
    parked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant, run_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);
CREATE INDEX run_parked_due ON run_parked (due) WHERE due IS NOT NULL;
CREATE INDEX run_parked_turns ON run_parked (tenant, conversation_id, turn_no) WHERE why = 'conversation_busy';

-- Written once, when the lease row goes.
CREATE TABLE run_attempts (
    tenant           text        COLLATE "C" NOT NULL,
    run_id           uuid        NOT NULL,
    fence_generation integer     NOT NULL,
    fence_number     bigint      NOT NULL,
    attempt          integer     NOT NULL,
    pool             text        COLLATE "C" NOT NULL,
    holder           text        NOT NULL,
    incarnation      bigint      NOT NULL,
    queued_at        timestamptz NOT NULL,
    started_at       timestamptz NOT NULL,
    ended_at         timestamptz NOT NULL,
    outcome          text        NOT NULL,
    code             text,
    detail           text,
    tokens           bigint      NOT NULL DEFAULT 0,
    background_slot  smallint,
    PRIMARY KEY (tenant, run_id, fence_generation, fence_number)
);

CREATE TABLE run_ends (
    tenant       text        COLLATE "C" NOT NULL,
    run_id       uuid        NOT NULL,
    state        text        NOT NULL,
    code         text,
    detail       text,
    result       jsonb,
    attempts     integer     NOT NULL,
    fence_number bigint      NOT NULL,
    spent_tokens bigint      NOT NULL,
    spent_ms     bigint      NOT NULL,
    next_seq     bigint      NOT NULL,
    ended_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, run_id)
);
CREATE INDEX run_ends_dead_letters ON run_ends (tenant, run_id) WHERE state = 'failed' AND code = 'ATTEMPTS_EXHAUSTED';

CREATE TABLE run_events (
    tenant text        COLLATE "C" NOT NULL,
    run_id uuid        NOT NULL,
    seq    bigint      NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind   text        NOT NULL,
    body   jsonb       NOT NULL,
    PRIMARY KEY (tenant, run_id, seq)
);

-- R3.9: what blocks a lane, as intervals; a run's own reason and time per cause are its queueing time cut with them.
CREATE TABLE lane_waits (
    scope   text        COLLATE "C" NOT NULL,
    bucket  smallint    NOT NULL,
    tenant  text        COLLATE "C" NOT NULL,
    class   integer     NOT NULL,
    code    text        NOT NULL,
    facts   jsonb       NOT NULL,
    from_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    to_at   timestamptz,
    PRIMARY KEY (scope, bucket, tenant, class, code, from_at)
);
CREATE UNIQUE INDEX lane_waits_open ON lane_waits (scope, bucket, tenant, class, code) WHERE to_at IS NULL;

-- What rows of the run core's tables must be like. Test databases have these constraints, shipped ones do not: PostgreSQL
-- reads and plans each of them anew in every statement that writes a row (docs/adr/0014-checks-in-tests.md).

ALTER TABLE agent_runs
    ADD CHECK (service_class IN ('interactive', 'standard', 'deferrable', 'speculative')),
    ADD CHECK (octet_length(idempotency_key) BETWEEN 1 AND 200),
    ADD CHECK (length(request_digest) = 32),
    ADD CHECK (max_attempts BETWEEN 1 AND 100),
    ADD CHECK (backoff_base_ms >= 0 AND backoff_max_ms >= backoff_base_ms),
    ADD CHECK (budget_tokens > 0),
    ADD CHECK (budget_ms > 0),
    ADD CHECK ((conversation_id IS NULL) = (turn_no IS NULL)),
    ADD CHECK (kind <> 'conversation_turn' OR conversation_id IS NOT NULL),
    -- R3.2: a child has a parent, a scheduled run a schedule, and only they.
    ADD CHECK ((kind = 'child') = (parent_run_id IS NOT NULL)),
    ADD CHECK ((kind = 'scheduled') = (schedule IS NOT NULL)),
    ADD CHECK ((schedule IS NULL) = (due_at IS NULL)),
    ADD CHECK (depth >= 0),
    ADD CHECK (octet_length(child_key) BETWEEN 1 AND 200),
    ADD CHECK ((parent_run_id IS NULL) = (child_key IS NULL)),
    ADD CHECK ((parent_run_id IS NULL) = (depth = 0)),
    ADD CHECK ((parent_run_id IS NULL) = (root_run_id = run_id)),
    ADD CHECK (parent_run_id IS NOT NULL OR NOT of_background);

ALTER TABLE run_queue ADD CHECK (bucket IN (0, 1, 2));

ALTER TABLE run_leases
    ADD CHECK (bucket IN (0, 1, 2)),
    ADD CHECK (charged >= 0),
    ADD CHECK (stop_reason IN ('cancel', 'deadline', 'budget', 'parent_ended', 'epoch_withdrawn')),
    ADD CHECK ((stop_reason IS NULL) = (stop_requested_at IS NULL));

ALTER TABLE run_parked
    ADD CHECK (why IN ('conversation_busy', 'scheduled', 'retry_backoff', 'waiting', 'review')),
    ADD CHECK (bucket IN (0, 1, 2)),
    ADD CHECK (why NOT IN ('scheduled', 'retry_backoff') OR due IS NOT NULL),
    ADD CHECK (why <> 'conversation_busy' OR conversation_id IS NOT NULL),
    ADD CHECK (waits_on IN ('children', 'input', 'time')),
    ADD CHECK (wait_mode IN ('any', 'all')),
    ADD CHECK ((why = 'waiting') = (waits_on IS NOT NULL)),
    ADD CHECK ((waits_on IS NOT DISTINCT FROM 'children') = (wait_runs IS NOT NULL)),
    ADD CHECK ((wait_runs IS NULL) = (wait_mode IS NULL)),
    ADD CHECK ((waits_on IS NOT DISTINCT FROM 'input') = (wait_ask IS NOT NULL)),
    ADD CHECK (waits_on IS DISTINCT FROM 'time' OR due IS NOT NULL);

ALTER TABLE run_attempts ADD CHECK (ended_at >= started_at);

ALTER TABLE run_ends
    ADD CHECK (state IN ('succeeded', 'failed', 'cancelled', 'expired')),
    ADD CHECK ((state = 'succeeded') = (code IS NULL));

ALTER TABLE run_events ADD CHECK (seq > 0);

ALTER TABLE admissions_open
    ADD CHECK (state IN ('PREPARING', 'ACTIVE')),
    ADD CHECK (length(digest) = 32),
    ADD CHECK (ttl_ms > 0),
    ADD CHECK (cardinality(resources) = cardinality(granted) AND cardinality(resources) = cardinality(held)
        AND cardinality(resources) = cardinality(settled));
ALTER TABLE admissions_done
    ADD CHECK (state IN ('RELEASED', 'EXPIRED')),
    ADD CHECK (length(digest) = 32),
    ADD CHECK (cardinality(resources) = cardinality(granted) AND cardinality(resources) = cardinality(settled));
ALTER TABLE run_leases
    ADD CHECK ((resources IS NULL) = (held IS NULL) AND cardinality(resources) = cardinality(held));

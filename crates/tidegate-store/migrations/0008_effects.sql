-- R4.5: what attempts were about to change, and what came of it. Written under a lease only, but for the verdict of a
-- person.
CREATE TABLE run_effects (
    tenant           text        COLLATE "C" NOT NULL,
    run_id           uuid        NOT NULL,
    -- Names the call within the run; a repeat carries the same one.
    call_id          text        COLLATE "C" NOT NULL CHECK (octet_length(call_id) BETWEEN 1 AND 100),
    tool             text        NOT NULL CHECK (length(tool) BETWEEN 1 AND 200),
    -- Never returned or logged.
    arguments_digest bytea       NOT NULL CHECK (length(arguments_digest) = 32),
    idempotent       boolean     NOT NULL,
    -- The attempt that was about to call it first, and its fence.
    attempt          integer     NOT NULL,
    fence_generation integer     NOT NULL,
    fence_number     bigint      NOT NULL,
    intended_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    outcome          text        CHECK (outcome IN ('done', 'failed', 'notDone')),
    source           text        CHECK (source IN ('attempt', 'person')),
    result           jsonb,
    note             text        CHECK (length(note) <= 2000),
    recorded_at      timestamptz,
    PRIMARY KEY (tenant, run_id, call_id),
    CHECK ((outcome IS NULL) = (recorded_at IS NULL) AND (outcome IS NULL) = (source IS NULL)),
    CHECK (outcome IS NOT NULL OR (result IS NULL AND note IS NULL)),
    -- Only a person can know that a call that was made did not arrive.
    CHECK (outcome <> 'notDone' OR source = 'person')
);
-- What became of an effect is said once.
CREATE TRIGGER run_effects_outcomes_stay BEFORE UPDATE ON run_effects
    FOR EACH ROW WHEN (OLD.outcome IS NOT NULL) EXECUTE FUNCTION refuse_change();

-- Whether this attempt intended an effect: closing looks into the journal only then.
ALTER TABLE run_leases ADD COLUMN has_effects boolean NOT NULL DEFAULT false;
-- R3.11: what the holder said with its renewals, so that an attempt that is never heard of again is charged too, and
-- the bound that it meets. On no index: a renewal changes one of them.
ALTER TABLE run_leases ADD COLUMN used_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE run_leases ADD COLUMN budget_tokens bigint;

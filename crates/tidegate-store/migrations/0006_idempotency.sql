-- R3.1: what writes answered that carried an idempotency key, written in the transaction of the write itself, so that a
-- repeat is answered the same and nobody is told of what was rolled back. Submissions of runs do not come here: their
-- key stands in agent_runs.
CREATE TABLE idempotency_records (
    -- Whose key it is: a tenant, or '' for the platform's own keys.
    owner           text        COLLATE "C" NOT NULL,
    idempotency_key text        COLLATE "C" NOT NULL CHECK (octet_length(idempotency_key) BETWEEN 1 AND 200),
    -- Whose content the answer may hold: goes when that tenant is erased.
    tenant          text        COLLATE "C",
    route           text        NOT NULL,
    -- Keyed, never returned or logged.
    request_digest  bytea       NOT NULL CHECK (length(request_digest) = 32),
    -- Without secrets.
    answer          jsonb       NOT NULL,
    -- False while a write in several steps is under way; its answer says how far it came.
    finished        boolean     NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (owner, idempotency_key),
    CHECK (owner = '' OR owner = tenant)
);
CREATE INDEX idempotency_records_by_tenant ON idempotency_records (tenant) WHERE tenant IS NOT NULL;
CREATE INDEX idempotency_records_by_age ON idempotency_records (created_at);

-- R7: the reservation ledger. One book per execution scope: whoever changes a counter, an admission or what a lease holds does
-- so under the book's advisory lock, so that counters are read and written by one transaction at a time and no two of them ever
-- wait for each other's rows (docs/adr/0017-one-lock-per-ledger.md).
CREATE TABLE ledger_books (
    scope   text   COLLATE "C" PRIMARY KEY,
    -- Raised by whatever changes what can be admitted.
    version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- A row stays when its resource is removed: admissions of the past name it by its key.
CREATE TABLE resources (
    resource     integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope        text        COLLATE "C" NOT NULL,
    name         text        COLLATE "C" NOT NULL,
    capacity     bigint      NOT NULL,
    -- The sum of what admissions and leases hold. One change per batch, never one per holder.
    in_use       bigint      NOT NULL DEFAULT 0 CHECK (in_use >= 0),
    -- Since when more is held than there is.
    over_since   timestamptz,
    removed_at   timestamptz,
    -- R7.8: what comes free goes first to the runs of this requirement class.
    aside_class  integer,
    aside_amount bigint,
    aside_until  timestamptz,
    UNIQUE (scope, name)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- Admissions that are not over. The vector as arrays, by resource; what was given back is 0 in `held`.
CREATE TABLE admissions_open (
    tenant            text        COLLATE "C" NOT NULL,
    admission_id      uuid        NOT NULL,
    scope             text        COLLATE "C" NOT NULL,
    digest            bytea       NOT NULL,
    state             text        NOT NULL,
    pool              text        COLLATE "C" NOT NULL,
    descriptor_epoch  bigint      NOT NULL,
    policy_generation bigint      NOT NULL,
    fence_generation  integer     NOT NULL,
    fence_number      bigint      NOT NULL,
    created_at        timestamptz NOT NULL,
    expires_at        timestamptz NOT NULL,
    ttl_ms            bigint      NOT NULL,
    resources         integer[]   NOT NULL,
    granted           bigint[]    NOT NULL,
    held              bigint[]    NOT NULL,
    settled           bigint[]    NOT NULL,
    PRIMARY KEY (tenant, admission_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);
CREATE INDEX admissions_open_expiry ON admissions_open (expires_at);

-- R7.1: an id that was used answers its outcome for ever.
CREATE TABLE admissions_done (
    tenant            text        COLLATE "C" NOT NULL,
    admission_id      uuid        NOT NULL,
    scope             text        COLLATE "C" NOT NULL,
    digest            bytea       NOT NULL,
    state             text        NOT NULL,
    reason            text        NOT NULL,
    pool              text        COLLATE "C" NOT NULL,
    descriptor_epoch  bigint      NOT NULL,
    policy_generation bigint      NOT NULL,
    fence_generation  integer     NOT NULL,
    fence_number      bigint      NOT NULL,
    created_at        timestamptz NOT NULL,
    ended_at          timestamptz NOT NULL,
    resources         integer[]   NOT NULL,
    granted           bigint[]    NOT NULL,
    settled           bigint[]    NOT NULL,
    PRIMARY KEY (tenant, admission_id)
);

-- What an attempt holds while it runs, given back by whatever ends it. Absent where its vector has no bounded resource.
ALTER TABLE run_leases
    ADD COLUMN resources integer[],
    ADD COLUMN held      bigint[];

-- One row for the whole database: which history it is, who may serve it, which key seals its secrets.
CREATE TABLE cluster (
    one                boolean     PRIMARY KEY DEFAULT true CHECK (one),
    -- R4.7: rises at each promotion or restore; every fence carries it.
    generation         integer     NOT NULL DEFAULT 1 CHECK (generation > 0),
    generation_since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    generation_cause   text        NOT NULL DEFAULT 'first migration',
    -- System identifier, timeline, database and table oid as last seen; another one means another history.
    identity           text        NOT NULL DEFAULT '',
    -- R1.6: the oldest server and the lowest protocol that this schema still serves.
    oldest_server      text        NOT NULL DEFAULT '0.1.0',
    lowest_protocol    integer     NOT NULL DEFAULT 1,
    -- The newest release that ever migrated or served this database.
    newest_server      text        NOT NULL DEFAULT '0.1.0',
    -- R1.1: a known text sealed under CONFIG_ENC_KEY; opens only with the right key.
    key_check          bytea,
    key_check_id       text,
    -- Keys the digests of bodies; random, sealed, the same for all instances and never changed, so that a rotation of
    -- CONFIG_ENC_KEY does not turn repeats of earlier submissions into conflicts.
    digest_key         bytea,
    digest_key_id      text,
    CHECK ((key_check IS NULL) = (key_check_id IS NULL)),
    CHECK ((digest_key IS NULL) = (digest_key_id IS NULL))
);
INSERT INTO cluster DEFAULT VALUES;

-- R1.6: every run of `migrate` that changed something.
CREATE TABLE migration_log (
    seq        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version    bigint      NOT NULL,
    digest     text        NOT NULL,
    applied_by text        NOT NULL,
    server     text        NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Server processes, by their own heartbeat.
CREATE TABLE instances (
    instance_id            uuid        PRIMARY KEY,
    version                text        NOT NULL,
    roles                  text[]      NOT NULL,
    started_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at                timestamptz NOT NULL DEFAULT clock_timestamp(),
    draining               boolean     NOT NULL DEFAULT false,
    revision               bigint      NOT NULL DEFAULT 0,
    revision_since         timestamptz NOT NULL DEFAULT clock_timestamp(),
    clock_skew_ms          bigint      NOT NULL DEFAULT 0,
    concurrency            integer     NOT NULL DEFAULT 0,
    background_concurrency integer     NOT NULL DEFAULT 0,
    running                integer     NOT NULL DEFAULT 0,
    running_background     integer     NOT NULL DEFAULT 0,
    listening              boolean     NOT NULL DEFAULT false,
    -- Slots that workers of other pools offer through this instance by waiting in a claim: {"pool": slots}.
    waiting_claims         jsonb       NOT NULL DEFAULT '{}',
    -- R1.8: ids of the keys it can open secrets with, never the keys.
    key_ids                text[]      NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- Duties are leases with fences; no duty rests on a session lock.
CREATE TABLE duties (
    duty        text        PRIMARY KEY,
    holder      uuid,
    fence       bigint      NOT NULL DEFAULT 0,
    lease_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

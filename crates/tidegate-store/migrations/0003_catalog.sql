-- R1.8: `sealed` columns hold an AEAD envelope under CONFIG_ENC_KEY, bound to table, row and column; `sealed_key` names
-- the key that closed it.
CREATE TABLE providers (
    name             text        COLLATE "C" PRIMARY KEY,
    kind             text        NOT NULL,
    base_url         text        NOT NULL,
    sealed           bytea,
    sealed_key       text,
    max_in_flight    integer     CHECK (max_in_flight > 0),
    rpm              integer     CHECK (rpm > 0),
    max_queue        integer     CHECK (max_queue >= 0),
    queue_timeout_ms bigint      CHECK (queue_timeout_ms >= 0),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((sealed IS NULL) = (sealed_key IS NULL))
);

CREATE TABLE models (
    name           text        COLLATE "C" PRIMARY KEY,
    provider       text        COLLATE "C" NOT NULL REFERENCES providers (name),
    upstream_model text        NOT NULL,
    is_default     boolean     NOT NULL DEFAULT false,
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX models_one_default ON models (is_default) WHERE is_default;

CREATE TABLE tool_servers (
    name            text        COLLATE "C" PRIMARY KEY,
    -- How it is reached, without secrets: {"stdio": {…}}, {"streamableHttp": {…}} or {"http": {…}}.
    transport       jsonb       NOT NULL,
    -- The values of its environment or headers, one sealed JSON object.
    sealed          bytea,
    sealed_key      text,
    tools           jsonb       NOT NULL DEFAULT '{}',
    mount           jsonb       NOT NULL DEFAULT '{}',
    tenants         text[],
    call_timeout_ms bigint      NOT NULL DEFAULT 60000 CHECK (call_timeout_ms > 0),
    idle_timeout_ms bigint      NOT NULL DEFAULT 60000 CHECK (idle_timeout_ms BETWEEN 1 AND call_timeout_ms),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((sealed IS NULL) = (sealed_key IS NULL))
);

-- How each tool server stands on each instance; gone with the instance.
CREATE TABLE tool_server_states (
    instance_id uuid        NOT NULL REFERENCES instances ON DELETE CASCADE,
    server      text        COLLATE "C" NOT NULL,
    phase       text        NOT NULL CHECK (phase IN ('waiting', 'starting', 'ready', 'down')),
    detail      text,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    tools       jsonb       NOT NULL DEFAULT '[]',
    PRIMARY KEY (instance_id, server)
);

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
    command         text        NOT NULL,
    args            text[]      NOT NULL DEFAULT '{}',
    env_names       text[]      NOT NULL DEFAULT '{}',
    sealed          bytea,
    sealed_key      text,
    tools           jsonb       NOT NULL DEFAULT '{}',
    tenants         text[],
    call_timeout_ms bigint      NOT NULL DEFAULT 60000 CHECK (call_timeout_ms > 0),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((sealed IS NULL) = (sealed_key IS NULL))
);

CREATE TABLE tenants (
    tenant       text        COLLATE "C" PRIMARY KEY CHECK (tenant ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    display_name text        CHECK (length(display_name) <= 200),
    state        text        NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'suspended', 'deleted')),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at   timestamptz,
    -- Since when nothing can be left of it; until then the sweep looks again.
    erased_at    timestamptz,
    CHECK ((state = 'deleted') = (deleted_at IS NOT NULL)),
    CHECK (erased_at >= deleted_at),
    -- R2.6: the name stays taken, the content goes.
    CHECK (state <> 'deleted' OR display_name IS NULL)
);

-- Whose runs may not start; of those that are erased there is none. Few, so that a claim reads one page.
CREATE INDEX tenants_inactive ON tenants (tenant) WHERE state <> 'active' AND erased_at IS NULL;
CREATE INDEX tenants_to_erase ON tenants (tenant) WHERE state = 'deleted' AND erased_at IS NULL;

CREATE TABLE api_keys (
    key_id       uuid        PRIMARY KEY,
    -- SHA-256 of a secret of 256 random bits; nothing slower is needed for that much entropy.
    hash         bytea       NOT NULL UNIQUE CHECK (length(hash) = 32),
    role         text        NOT NULL,
    tenant       text        COLLATE "C" REFERENCES tenants (tenant),
    pool_id      text        COLLATE "C",
    user_name    text        CHECK (length(user_name) <= 200),
    scopes       text[]      NOT NULL DEFAULT '{}',
    -- R2.4: what its runs are granted; the defaults where absent.
    priority     smallint    CHECK (priority BETWEEN -100 AND 100),
    service_class text       CHECK (service_class IN ('interactive', 'standard', 'deferrable', 'speculative')),
    name         text        CHECK (length(name) <= 200),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CHECK ((role IN ('tenant_admin', 'member', 'coordinator')) = (tenant IS NOT NULL)),
    CHECK ((role = 'worker') = (pool_id IS NOT NULL))
);
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, key_id);
-- R2.1: `key bootstrap` works once: the first super_admin key is marked and unique.
CREATE TABLE key_bootstrap (
    one    boolean     PRIMARY KEY DEFAULT true CHECK (one),
    key_id uuid        NOT NULL REFERENCES api_keys (key_id),
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- R17: every administrative write, numbered. The number is taken under a lock, so that a reader who has seen n has seen
-- all below n.
CREATE TABLE config_revisions (
    revision bigint      PRIMARY KEY,
    kind     text        NOT NULL,
    subject  text        NOT NULL,
    tenant   text        COLLATE "C",
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- Since when every live instance has served a revision, written once by whoever sees it first.
CREATE TABLE config_in_force (
    revision bigint      PRIMARY KEY,
    since    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- R2.5: who, what, before, after; secrets are redacted before they come here.
CREATE TABLE audit_log (
    seq        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text        NOT NULL,
    tenant     text        COLLATE "C",
    action     text        NOT NULL,
    subject    text        NOT NULL,
    before     jsonb       NOT NULL DEFAULT 'null',
    after      jsonb       NOT NULL DEFAULT 'null',
    request_id text
);
CREATE INDEX audit_log_by_tenant ON audit_log (tenant, seq);
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
-- R2.6: the one change an audit row knows: what a deleted tenant had written goes, who did what and when stays.
CREATE FUNCTION audit_log_only_forgets() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.before = '"erased"' AND NEW.after = '"erased"'
       AND (NEW.seq, NEW.at, NEW.actor, NEW.action, NEW.subject) = (OLD.seq, OLD.at, OLD.actor, OLD.action, OLD.subject)
       AND NEW.tenant IS NOT DISTINCT FROM OLD.tenant AND NEW.request_id IS NOT DISTINCT FROM OLD.request_id
       AND EXISTS (SELECT FROM tenants t WHERE t.tenant = OLD.tenant AND t.state = 'deleted') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION audit_log_only_forgets();

CREATE TABLE pools (
    pool_id      text    COLLATE "C" PRIMARY KEY,
    active_epoch bigint
);

-- R5.1: immutable once published.
CREATE TABLE pool_descriptors (
    pool_id      text        COLLATE "C" NOT NULL REFERENCES pools (pool_id),
    epoch        bigint      NOT NULL CHECK (epoch > 0),
    digest       bytea       NOT NULL CHECK (length(digest) = 32),
    capabilities text[]      NOT NULL,
    body         jsonb       NOT NULL,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (pool_id, epoch)
);
CREATE TRIGGER pool_descriptors_are_immutable BEFORE UPDATE OR DELETE ON pool_descriptors
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
ALTER TABLE pools ADD FOREIGN KEY (pool_id, active_epoch) REFERENCES pool_descriptors (pool_id, epoch);

-- R5.3: an active epoch is never lowered.
CREATE FUNCTION refuse_lower_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.active_epoch IS NOT NULL AND (NEW.active_epoch IS NULL OR NEW.active_epoch < OLD.active_epoch) THEN
        RAISE EXCEPTION 'the active epoch of a pool is never lowered' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER pools_never_lower BEFORE UPDATE ON pools FOR EACH ROW EXECUTE FUNCTION refuse_lower_epoch();

-- Requirements stand here once per digest (tenant included); the small number is the class in the key of run_queue.
CREATE TABLE requirement_classes (
    class        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant       text    COLLATE "C" NOT NULL,
    digest       bytea   NOT NULL CHECK (length(digest) = 32),
    capability   text    COLLATE "C" NOT NULL,
    requirements jsonb   NOT NULL,
    UNIQUE (tenant, digest)
);

-- R9.1: keys that sign grants. One signs, one is published ahead of its time; those before are published until nothing that
-- they signed is worth anything, and then go, with their private half.
CREATE TABLE grant_keys (
    -- The public half, in hexadecimal digits: what the private half is sealed for.
    name       text        COLLATE "C" PRIMARY KEY CHECK (name ~ '^[0-9a-f]{64}$'),
    key_id     integer     NOT NULL UNIQUE CHECK (key_id > 0),
    sealed     bytea       NOT NULL,
    sealed_key text        NOT NULL,
    not_before timestamptz,
    retire_at  timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (retire_at IS NULL OR retire_at > not_before)
);
CREATE UNIQUE INDEX grant_keys_one_signs ON grant_keys ((true)) WHERE not_before IS NOT NULL AND retire_at IS NULL;
CREATE UNIQUE INDEX grant_keys_one_next ON grant_keys ((true)) WHERE not_before IS NULL;

-- What was published of a key stays true: who holds an older list of keys must not be misled by it.
CREATE FUNCTION refuse_other_grant_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.name <> OLD.name OR NEW.key_id <> OLD.key_id OR NEW.created_at <> OLD.created_at
       OR OLD.not_before IS NOT NULL AND NEW.not_before IS DISTINCT FROM OLD.not_before
       OR OLD.retire_at IS NOT NULL AND NEW.retire_at IS DISTINCT FROM OLD.retire_at THEN
        RAISE EXCEPTION 'what was published of a grant key is not changed' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER grant_keys_stay BEFORE UPDATE ON grant_keys FOR EACH ROW EXECUTE FUNCTION refuse_other_grant_key();

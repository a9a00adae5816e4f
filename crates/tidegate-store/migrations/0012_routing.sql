-- R5.3: one policy generation per execution scope; 1 where none stands here. Never lowered.
CREATE TABLE policy_generations (
    scope      text   COLLATE "C" PRIMARY KEY,
    generation bigint NOT NULL CHECK (generation > 0)
);
CREATE FUNCTION refuse_lower_generation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.generation < OLD.generation THEN
        RAISE EXCEPTION 'a policy generation is never lowered' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER policy_generations_never_lower BEFORE UPDATE ON policy_generations
    FOR EACH ROW EXECUTE FUNCTION refuse_lower_generation();

-- R18.2, R18.3: epochs whose attempts may end what they have begun, and epochs that nothing may use again.
ALTER TABLE pools
    ADD COLUMN draining_epochs bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN revoked_epochs  bigint[] NOT NULL DEFAULT '{}';

-- The epoch under which an attempt was begun; absent for those of a release that knew none.
ALTER TABLE run_leases ADD COLUMN descriptor_epoch bigint;

-- R5.2: workers that have shown what they run. A goodbye leaves the row: an incarnation that has passed stays passed.
CREATE TABLE worker_registrations (
    pool_id          text        COLLATE "C" NOT NULL REFERENCES pools (pool_id),
    worker           text        COLLATE "C" NOT NULL,
    incarnation      bigint      NOT NULL,
    protocol_version integer     NOT NULL,
    descriptor_epoch bigint      NOT NULL,
    runtime_digest   text,
    occupied         bigint      NOT NULL DEFAULT 0,
    registered_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    left_at          timestamptz,
    PRIMARY KEY (pool_id, worker)
);

-- What ours is compared with: one admission is one transaction is one prepared call, which locks its resources in the order of
-- their keys. The same facts stand afterwards: the admission with state, epoch, fence and time, a grant per resource, and a
-- counter per resource that is the sum of what is held.
CREATE TABLE naive_resources (
    id int PRIMARY KEY, capacity bigint NOT NULL, in_use bigint NOT NULL DEFAULT 0, CHECK (in_use BETWEEN 0 AND capacity)
) WITH (fillfactor = 50);
CREATE TABLE naive_admissions (
    id uuid PRIMARY KEY, tenant int NOT NULL, digest bytea NOT NULL, state text NOT NULL, epoch bigint NOT NULL,
    fence bigint NOT NULL, expires_at timestamptz NOT NULL, created_at timestamptz NOT NULL
);
CREATE TABLE naive_grants (
    admission_id uuid NOT NULL REFERENCES naive_admissions, resource_id int NOT NULL, amount bigint NOT NULL,
    state text NOT NULL, PRIMARY KEY (admission_id, resource_id)
);
CREATE SEQUENCE naive_fence;
-- 1 the pool, 2 its model, 3 to 12 tools, 1,001 to 2,000 tenants.
INSERT INTO naive_resources SELECT i, 1000000000 FROM generate_series(1, 12) AS i;
INSERT INTO naive_resources SELECT 1000 + i, 1000000000 FROM generate_series(1, 1000) AS i;

CREATE FUNCTION naive_admit(admission uuid, of_tenant int, of_digest bytea, wanted int[], amounts bigint[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE there naive_admissions;
BEGIN
    SELECT * INTO there FROM naive_admissions a WHERE a.id = admission;
    IF FOUND THEN
        RETURN CASE WHEN there.digest = of_digest THEN there.state ELSE 'CONFLICT' END;
    END IF;
    PERFORM FROM naive_resources r WHERE r.id = ANY (wanted) ORDER BY r.id FOR UPDATE;
    IF EXISTS (SELECT FROM unnest(wanted, amounts) AS w(id, amount) JOIN naive_resources r USING (id)
               WHERE r.in_use + w.amount > r.capacity) THEN
        RETURN 'EXHAUSTED';
    END IF;
    UPDATE naive_resources r SET in_use = r.in_use + w.amount
    FROM unnest(wanted, amounts) AS w(id, amount) WHERE r.id = w.id;
    INSERT INTO naive_admissions VALUES (admission, of_tenant, of_digest, 'ACTIVE', 1, nextval('naive_fence'),
        clock_timestamp() + interval '60 seconds', clock_timestamp());
    INSERT INTO naive_grants SELECT admission, w.id, w.amount, 'HELD' FROM unnest(wanted, amounts) AS w(id, amount);
    RETURN 'ACTIVE';
END $$;

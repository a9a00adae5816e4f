-- Children, waits and people (R3.2, R3.6, R3.13, R3.15).

-- The tree is part of what a run is: written at insert, never changed. A root is its own root, at depth 0.
ALTER TABLE agent_runs
    ADD COLUMN depth         smallint NOT NULL DEFAULT 0,
    -- The child's name within its parent: a later attempt of the parent finds what an earlier one has started.
    ADD COLUMN child_key     text     COLLATE "C",
    -- R3.6: a background run is the root of its tree. It counts against what an instance runs of background.
    ADD COLUMN of_background boolean  NOT NULL DEFAULT false;
-- Only children stand in these: a run without a parent pays for neither.
CREATE UNIQUE INDEX agent_runs_children ON agent_runs (tenant, parent_run_id, child_key) WHERE parent_run_id IS NOT NULL;
CREATE INDEX agent_runs_trees ON agent_runs (tenant, root_run_id) WHERE parent_run_id IS NOT NULL;

-- Descendants of background roots stand in lanes of their own, so that a claim can leave them alone.
ALTER TABLE requirement_classes
    ADD COLUMN of_background boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT requirement_classes_tenant_digest_key,
    ADD CONSTRAINT requirement_classes_key UNIQUE (tenant, digest, of_background);

-- Whether the run has a parent or children: only then is closing its attempt a matter of its tree. Set when the lease is
-- opened, or by the first child under the lease's lock.
ALTER TABLE run_leases ADD COLUMN in_tree boolean NOT NULL DEFAULT false;

-- What a waiting run waits for; gone with the row.
ALTER TABLE run_parked
    -- 'children', 'input' or 'time'; for children 'any' or 'all' of them.
    ADD COLUMN waits_on  text,
    ADD COLUMN wait_mode text,
    ADD COLUMN wait_runs uuid[],
    ADD COLUMN wait_ask  jsonb;

-- R3.15: what people answered. A question is numbered by the fence of the attempt that asked it.
CREATE TABLE run_inputs (
    tenant      text        COLLATE "C" NOT NULL,
    run_id      uuid        NOT NULL,
    ask_no      bigint      NOT NULL,
    ask         jsonb       NOT NULL,
    answer      jsonb       NOT NULL,
    answered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    answered_by uuid,
    user_name   text,
    PRIMARY KEY (tenant, run_id, ask_no)
);

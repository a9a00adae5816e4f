-- R3.12: what each tenant has been charged, in cost ÷ weight. Written by every instance at most every 200 ms in a statement
-- of its own; no claim or completion waits for a row of these.
CREATE TABLE run_passes (
    scope  text   COLLATE "C" NOT NULL,
    tenant text   COLLATE "C" NOT NULL,
    pass   bigint NOT NULL CHECK (pass >= 0),
    PRIMARY KEY (scope, tenant)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

-- The smallest pass of the tenants with work: where newcomers start, also after a restart.
CREATE TABLE run_pass_floors (
    scope text   COLLATE "C" PRIMARY KEY,
    pass  bigint NOT NULL CHECK (pass >= 0)
) WITH (fillfactor = 50);

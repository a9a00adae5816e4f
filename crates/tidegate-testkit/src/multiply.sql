-- A queue of any size in seconds: copies of a run that stands in the queue, dealt out to tenants in turn. Every column
-- that is not named here is copied, whatever migrations add.
CREATE OR REPLACE FUNCTION pg_temp.multiply(model uuid, prefix text, tenants bigint, runs bigint)
RETURNS void LANGUAGE plpgsql AS $multiply$
DECLARE
    cold text := (SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = 'agent_runs' AND is_generated = 'NEVER'
          AND column_name NOT IN ('tenant', 'run_id', 'root_run_id', 'idempotency_key'));
    hot text := (SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = 'run_queue' AND is_generated = 'NEVER'
          AND column_name NOT IN ('tenant', 'run_id', 'position'));
    before bigint := (SELECT count(*) FROM agent_runs);
BEGIN
    EXECUTE 'INSERT INTO tenants (tenant) SELECT $1 || n FROM generate_series(0, $2 - 1) n ON CONFLICT DO NOTHING'
        USING prefix, tenants;
    EXECUTE 'CREATE TEMPORARY TABLE copies AS
             SELECT $1 || (n % $2) AS tenant, lpad(to_hex($3 + n), 32, ''0'')::uuid AS run_id
             FROM generate_series(1, $4) n' USING prefix, tenants, before, runs;
    EXECUTE 'INSERT INTO agent_runs (tenant, run_id, root_run_id, ' || cold || ')
             SELECT c.tenant, c.run_id, c.run_id, a.* FROM copies c
             CROSS JOIN (SELECT ' || cold || ' FROM agent_runs WHERE run_id = $1) a' USING model;
    EXECUTE 'INSERT INTO run_queue (tenant, run_id, ' || hot || ')
             SELECT c.tenant, c.run_id, q.* FROM copies c
             CROSS JOIN (SELECT ' || hot || ' FROM run_queue WHERE run_id = $1) q' USING model;
    DROP TABLE copies;
END $multiply$;

-- R15.1: optional, `tidegate migrate --with tenant-resource-tiers`. Without these tables every tenant has the built-in
-- tier standard.
CREATE TABLE tenant_resource_tiers (
    tier                           text        COLLATE "C" PRIMARY KEY CHECK (tier ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    max_concurrent_foreground_runs integer     NOT NULL CHECK (max_concurrent_foreground_runs BETWEEN 1 AND 10000),
    max_concurrent_background_runs integer     NOT NULL CHECK (max_concurrent_background_runs BETWEEN 1 AND 64),
    weight                         integer     NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000),
    rpm                            integer     CHECK (rpm > 0),
    rpd                            integer     CHECK (rpd > 0),
    max_queued_runs                integer     CHECK (max_queued_runs > 0),
    token_budget                   bigint      CHECK (token_budget > 0),
    max_concurrent_external_tools  integer     CHECK (max_concurrent_external_tools > 0),
    updated_at                     timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO tenant_resource_tiers (tier, max_concurrent_foreground_runs, max_concurrent_background_runs)
VALUES ('standard', 2, 1), ('plus', 4, 2), ('dedicated', 8, 4);

-- What a tenant has of its own; what is absent comes from its tier, and that is standard unless given.
CREATE TABLE tenant_resource_overrides (
    tenant                         text        COLLATE "C" PRIMARY KEY REFERENCES tenants (tenant),
    tier                           text        COLLATE "C" REFERENCES tenant_resource_tiers (tier),
    max_concurrent_foreground_runs integer     CHECK (max_concurrent_foreground_runs BETWEEN 1 AND 10000),
    max_concurrent_background_runs integer     CHECK (max_concurrent_background_runs BETWEEN 1 AND 64),
    weight                         integer     CHECK (weight BETWEEN 1 AND 1000),
    rpm                            integer     CHECK (rpm > 0),
    rpd                            integer     CHECK (rpd > 0),
    max_queued_runs                integer     CHECK (max_queued_runs > 0),
    token_budget                   bigint      CHECK (token_budget > 0),
    max_concurrent_external_tools  integer     CHECK (max_concurrent_external_tools > 0),
    updated_at                     timestamptz NOT NULL DEFAULT clock_timestamp()
);

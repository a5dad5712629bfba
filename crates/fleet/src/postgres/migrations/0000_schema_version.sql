-- The steps of the schema that were taken. Row 0 is what is locked while a step is taken.
CREATE SCHEMA IF NOT EXISTS tollgate;
CREATE TABLE IF NOT EXISTS tollgate.schema_version (
    version BIGINT PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
INSERT INTO tollgate.schema_version (version, name, sha256) VALUES (0, 'schema_version', '')
ON CONFLICT (version) DO NOTHING;

"""The control plane's first schema: tenants, datasets, the ledger, and the rules that the database itself keeps.

The states, rulings and transitions are spelt out here and not read from `ledger/states.py`, because a revision must do
the same tomorrow; a test compares what stands in the database with that file.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATES = """
CREATE TYPE carbon.operation_status AS ENUM ('open', 'committing', 'committed', 'aborted', 'unverifiable');
CREATE TYPE carbon.sync_status AS ENUM ('pending', 'succeeded', 'failed');
CREATE TYPE carbon.operation_ruling AS ENUM (
    'landed', 'noop', 'rolled_back', 'evidence_expired', 'never_landed', 'fenced', 'failed', 'refused',
    'target_replaced', 'no_evidence'
);

CREATE TABLE carbon.operation_transitions (
    from_status carbon.operation_status NOT NULL,
    to_status   carbon.operation_status NOT NULL,
    PRIMARY KEY (from_status, to_status)
);
COMMENT ON TABLE carbon.operation_transitions IS 'The legal moves of an operation. A status without a move is final.';
INSERT INTO carbon.operation_transitions VALUES
    ('open', 'committing'), ('open', 'committed'), ('open', 'aborted'), ('open', 'unverifiable'),
    ('committing', 'committed'), ('committing', 'aborted'), ('committing', 'unverifiable');

CREATE TABLE carbon.operation_rulings (
    ruling      carbon.operation_ruling PRIMARY KEY,
    status      carbon.operation_status NOT NULL,
    sync_status carbon.sync_status NOT NULL,
    comes_from  carbon.operation_status[] NOT NULL,
    UNIQUE (ruling, status)
);
COMMENT ON TABLE carbon.operation_rulings IS 'What each ruling makes of an operation, and from which states.';
INSERT INTO carbon.operation_rulings VALUES
    ('landed',           'committed',    'succeeded', '{committing}'),
    ('noop',             'committed',    'succeeded', '{open}'),
    ('rolled_back',      'committed',    'succeeded', '{committing}'),
    ('evidence_expired', 'committed',    'succeeded', '{committing}'),
    ('never_landed',     'aborted',      'failed',    '{open}'),
    ('fenced',           'aborted',      'failed',    '{committing}'),
    ('failed',           'aborted',      'failed',    '{open}'),
    ('refused',          'aborted',      'failed',    '{committing}'),
    ('target_replaced',  'unverifiable', 'failed',    '{committing}'),
    ('no_evidence',      'unverifiable', 'failed',    '{open,committing}');
"""

TENANTS = """
CREATE TYPE carbon.member_role AS ENUM ('owner', 'editor', 'viewer');
CREATE TYPE carbon.catalog_governance AS ENUM ('own', 'governed', 'shared');

CREATE TABLE carbon.workspaces (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name       text NOT NULL UNIQUE CHECK (btrim(name) <> ''),
    slug       text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE carbon.workspace_members (
    workspace_id uuid NOT NULL REFERENCES carbon.workspaces,
    user_id      text NOT NULL CHECK (btrim(user_id) <> ''),
    role         carbon.member_role NOT NULL,
    invited_by   text,
    invited_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    joined_at    timestamptz,
    PRIMARY KEY (workspace_id, user_id)
);
CREATE INDEX workspace_members_of_user ON carbon.workspace_members (user_id);

CREATE TABLE carbon.catalogs (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name       text NOT NULL UNIQUE,
    kind       text NOT NULL,
    uri_host   text NOT NULL,
    governance carbon.catalog_governance NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE carbon.schemas (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL REFERENCES carbon.workspaces,
    catalog_id   uuid NOT NULL REFERENCES carbon.catalogs,
    name         text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (workspace_id, catalog_id, name),
    UNIQUE (id, workspace_id, catalog_id, name)
);

CREATE TABLE carbon.user_credentials (
    id                  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id        uuid NOT NULL REFERENCES carbon.workspaces,
    name                text NOT NULL CHECK (btrim(name) <> ''),
    slug                text NOT NULL,
    kind                text NOT NULL CHECK (kind IN ('postgres')),
    sealed_connection   bytea NOT NULL,
    -- An unsigned 64-bit number, which bigint does not hold.
    system_identifier   numeric(20, 0) NOT NULL CHECK (system_identifier BETWEEN 0 AND 18446744073709551615),
    metadata            jsonb NOT NULL DEFAULT
        '{"warehouse_destination": {"catalog": "main", "schema": "default", "origin": "defaulted"}}',
    destination_catalog text NOT NULL GENERATED ALWAYS AS (metadata #>> '{warehouse_destination,catalog}') STORED
        REFERENCES carbon.catalogs (name),
    created_by          text NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (workspace_id, name),
    UNIQUE (workspace_id, slug),
    UNIQUE (id, workspace_id),
    CONSTRAINT has_a_warehouse_destination CHECK (
        coalesce(metadata #>> '{warehouse_destination,schema}' <> '', false)
        AND coalesce(metadata #>> '{warehouse_destination,origin}' IN ('chosen', 'defaulted'), false)
    )
);
"""

DATASETS = """
CREATE TABLE carbon.datasets (
    id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id      uuid NOT NULL REFERENCES carbon.workspaces,
    credential_id     uuid NOT NULL,
    system_identifier numeric(20, 0) NOT NULL,
    source_oid        bigint NOT NULL CHECK (source_oid BETWEEN 0 AND 4294967295),
    source_schema     text NOT NULL,
    source_name       text NOT NULL,
    partition_key     text NOT NULL,
    catalog_id        uuid NOT NULL,
    schema_id         uuid NOT NULL,
    schema_name       text NOT NULL,
    name              text NOT NULL,
    namespace         text NOT NULL,
    table_name        text NOT NULL,
    location          text NOT NULL UNIQUE,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What the last committed operation left behind; null until there is one.
    row_count                bigint,
    size_bytes               bigint,
    data_files               bigint,
    snapshot_id              bigint,
    columns                  jsonb,
    primary_key              jsonb,
    foreign_keys             jsonb,
    keys_failed              text,
    schema_version           bigint,
    committed_operation_id   uuid,
    committed_seq            bigint,
    source_system_identifier numeric(20, 0),
    source_lsn               pg_lsn,
    source_time              timestamptz,
    updated_at               timestamptz,
    -- The coordinate. Catalogs share it, so that `schema.name` says one thing in a workspace.
    UNIQUE (workspace_id, schema_name, name),
    UNIQUE (credential_id, system_identifier, source_oid),
    UNIQUE (credential_id, partition_key),
    UNIQUE (catalog_id, namespace, table_name),
    -- A dataset's credential and schema belong to its own workspace.
    FOREIGN KEY (credential_id, workspace_id) REFERENCES carbon.user_credentials (id, workspace_id),
    FOREIGN KEY (schema_id, workspace_id, catalog_id, schema_name)
        REFERENCES carbon.schemas (id, workspace_id, catalog_id, name),
    CONSTRAINT committed_as_a_whole CHECK (
        num_nonnulls(committed_operation_id, committed_seq, source_system_identifier, source_lsn, source_time)
        IN (0, 5)
    )
);
"""

LEDGER = """
CREATE TABLE carbon.dataset_transactions (
    id                       uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    dataset_id               uuid NOT NULL REFERENCES carbon.datasets,
    seq                      bigint NOT NULL CHECK (seq > 0),
    writer                   text NOT NULL,
    mode                     text NOT NULL,
    status                   carbon.operation_status NOT NULL DEFAULT 'open',
    ruling                   carbon.operation_ruling,
    reason                   text,
    catalog_uri              text NOT NULL,
    warehouse                text NOT NULL,
    namespace                text NOT NULL,
    table_name               text NOT NULL,
    table_uuid               text NOT NULL,
    base_snapshot_id         bigint,
    actor_user               text NOT NULL,
    actor_engine             text NOT NULL,
    policy                   text NOT NULL,
    code_version             text NOT NULL,
    run_id                   text,
    holder                   text NOT NULL,
    source_system_identifier numeric(20, 0) NOT NULL,
    source_lsn               pg_lsn NOT NULL,
    source_time              timestamptz NOT NULL,
    relation                 jsonb NOT NULL,
    opened_at                timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until              timestamptz NOT NULL,
    heartbeat_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    rows_written             bigint NOT NULL DEFAULT 0 CHECK (rows_written >= 0),
    bytes_written            bigint NOT NULL DEFAULT 0 CHECK (bytes_written >= 0),
    committing_at            timestamptz,
    settled_at               timestamptz,
    snapshot_id              bigint,
    parent_snapshot_id       bigint,
    rows                     bigint,
    size_bytes               bigint,
    data_files               bigint,
    has_identity             boolean,
    UNIQUE (id, dataset_id),
    CONSTRAINT one_operation_per_seq UNIQUE (dataset_id, seq),
    FOREIGN KEY (ruling, status) REFERENCES carbon.operation_rulings (ruling, status),
    CONSTRAINT ends_with_a_ruling CHECK (
        num_nonnulls(ruling, reason, settled_at) = CASE WHEN status IN ('open', 'committing') THEN 0 ELSE 3 END
    ),
    CONSTRAINT says_when_it_was_committing CHECK (status <> 'committing' OR committing_at IS NOT NULL),
    CONSTRAINT landed_with_its_facts CHECK (
        ruling IS DISTINCT FROM 'landed' OR num_nulls(snapshot_id, rows, size_bytes, data_files, has_identity) = 0
    ),
    CONSTRAINT facts_only_when_committed CHECK (
        status = 'committed'
        OR num_nonnulls(snapshot_id, parent_snapshot_id, rows, size_bytes, data_files, has_identity) = 0
    )
);
CREATE UNIQUE INDEX one_unsettled_operation ON carbon.dataset_transactions (dataset_id)
    WHERE status IN ('open', 'committing');

ALTER TABLE carbon.datasets ADD FOREIGN KEY (committed_operation_id, id)
    REFERENCES carbon.dataset_transactions (id, dataset_id);

CREATE TABLE carbon.iceberg_sync_log (
    operation_id uuid PRIMARY KEY,
    dataset_id   uuid NOT NULL,
    status       carbon.sync_status NOT NULL DEFAULT 'pending',
    has_identity boolean,
    -- The source's moment, where the row makes the dataset as fresh as that. A write that landed and was rolled back
    -- succeeded too, but leaves these null: freshness must not run ahead of the data.
    source_lsn   pg_lsn,
    source_time  timestamptz,
    rows         bigint,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz,
    FOREIGN KEY (operation_id, dataset_id) REFERENCES carbon.dataset_transactions (id, dataset_id),
    CONSTRAINT finished_unless_pending CHECK ((status = 'pending') = (finished_at IS NULL)),
    CONSTRAINT shows_nothing_unless_succeeded CHECK (
        status = 'succeeded' OR num_nonnulls(has_identity, source_lsn, source_time, rows) = 0
    )
);
CREATE INDEX iceberg_sync_log_of_dataset ON carbon.iceberg_sync_log (dataset_id, finished_at);

CREATE TABLE carbon.dataset_schema_versions (
    dataset_id   uuid NOT NULL,
    version      bigint NOT NULL CHECK (version > 0),
    columns      jsonb NOT NULL,
    operation_id uuid NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (dataset_id, version),
    FOREIGN KEY (operation_id, dataset_id) REFERENCES carbon.dataset_transactions (id, dataset_id)
);
"""

OPERATION_GUARD = """
CREATE FUNCTION carbon.guard_new_operation() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF NEW.status <> 'open' THEN
        RAISE EXCEPTION 'an operation begins open, not %', NEW.status USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.seq <= (SELECT max(seq) FROM carbon.dataset_transactions WHERE dataset_id = NEW.dataset_id) THEN
        -- As the unique constraint would say it: whoever meets either has lost to another operation.
        RAISE EXCEPTION 'seq % is not after the last one of dataset %', NEW.seq, NEW.dataset_id
            USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NEW;
END
$body$;

CREATE FUNCTION carbon.guard_operation() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    changeable CONSTANT text[] := ARRAY[
        'status', 'ruling', 'reason', 'lease_until', 'heartbeat_at', 'rows_written', 'bytes_written', 'committing_at',
        'settled_at', 'snapshot_id', 'parent_snapshot_id', 'rows', 'size_bytes', 'data_files', 'has_identity'
    ];
BEGIN
    IF NOT EXISTS (SELECT FROM carbon.operation_transitions WHERE from_status = OLD.status) THEN
        RAISE EXCEPTION 'operation % is %, which is final', OLD.id, OLD.status USING ERRCODE = 'check_violation';
    END IF;
    IF to_jsonb(OLD) - changeable IS DISTINCT FROM to_jsonb(NEW) - changeable THEN
        RAISE EXCEPTION 'what operation % recorded when it opened does not change', OLD.id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.status <> OLD.status AND NOT EXISTS (
        SELECT FROM carbon.operation_transitions WHERE from_status = OLD.status AND to_status = NEW.status
    ) THEN
        RAISE EXCEPTION 'operation % cannot go from % to %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.ruling IS NOT NULL AND NOT EXISTS (
        SELECT FROM carbon.operation_rulings WHERE ruling = NEW.ruling AND OLD.status = ANY (comes_from)
    ) THEN
        RAISE EXCEPTION 'operation % is %, from where % does not come', OLD.id, OLD.status, NEW.ruling
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$body$;

CREATE TRIGGER guard_insert BEFORE INSERT ON carbon.dataset_transactions
    FOR EACH ROW EXECUTE FUNCTION carbon.guard_new_operation();
CREATE TRIGGER guard_update BEFORE UPDATE ON carbon.dataset_transactions
    FOR EACH ROW EXECUTE FUNCTION carbon.guard_operation();
"""

SYNC_LOG_GUARD = """
CREATE FUNCTION carbon.guard_sync_log() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF OLD.status <> 'pending' THEN
        RAISE EXCEPTION 'the sync log of operation % is %, which is final', OLD.operation_id, OLD.status
            USING ERRCODE = 'check_violation';
    END IF;
    IF (OLD.operation_id, OLD.dataset_id, OLD.started_at) <> (NEW.operation_id, NEW.dataset_id, NEW.started_at) THEN
        RAISE EXCEPTION 'a row of the sync log stays with its operation' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$body$;
CREATE TRIGGER guard_update BEFORE UPDATE ON carbon.iceberg_sync_log
    FOR EACH ROW EXECUTE FUNCTION carbon.guard_sync_log();

CREATE FUNCTION carbon.sync_log_agrees() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    operation CONSTANT uuid := to_jsonb(NEW) ->> TG_ARGV[0];
    wanted carbon.sync_status;
    found carbon.sync_status;
BEGIN
    SELECT coalesce(r.sync_status, 'pending'), l.status INTO wanted, found
    FROM carbon.dataset_transactions t
    LEFT JOIN carbon.operation_rulings r ON r.ruling = t.ruling
    LEFT JOIN carbon.iceberg_sync_log l ON l.operation_id = t.id
    WHERE t.id = operation;
    IF found IS DISTINCT FROM wanted THEN
        RAISE EXCEPTION 'the sync log of operation % says %, its ruling %', operation, coalesce(found::text, 'nothing'),
            wanted USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END
$body$;
-- Deferred, because operation and log are two statements of one transaction.
CREATE CONSTRAINT TRIGGER sync_log_agrees AFTER INSERT OR UPDATE OF status, ruling ON carbon.dataset_transactions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION carbon.sync_log_agrees('id');
CREATE CONSTRAINT TRIGGER sync_log_agrees AFTER INSERT OR UPDATE OF status ON carbon.iceberg_sync_log
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION carbon.sync_log_agrees('operation_id');
"""

DATASET_GUARD = """
CREATE FUNCTION carbon.guard_dataset() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    minted CONSTANT text[] := ARRAY[
        'id', 'workspace_id', 'credential_id', 'system_identifier', 'partition_key', 'catalog_id', 'schema_id',
        'schema_name', 'name', 'namespace', 'table_name', 'location', 'created_at'
    ];
    part text;
BEGIN
    FOREACH part IN ARRAY minted LOOP
        IF to_jsonb(OLD) -> part IS DISTINCT FROM to_jsonb(NEW) -> part THEN
            RAISE EXCEPTION 'the % of dataset % was minted once', part, OLD.id USING ERRCODE = 'check_violation';
        END IF;
    END LOOP;
    IF OLD.committed_seq IS NOT NULL AND coalesce(NEW.committed_seq, 0) < OLD.committed_seq THEN
        RAISE EXCEPTION 'the facts of dataset % only move forward', OLD.id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$body$;
CREATE TRIGGER guard_update BEFORE UPDATE ON carbon.datasets
    FOR EACH ROW EXECUTE FUNCTION carbon.guard_dataset();
"""

KEPT_FOR_GOOD = """
CREATE FUNCTION carbon.refuse() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION '% on % is refused: %', lower(TG_OP), TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'check_violation';
END
$body$;

CREATE TRIGGER kept_for_good BEFORE DELETE OR TRUNCATE ON carbon.dataset_transactions
    FOR EACH STATEMENT EXECUTE FUNCTION carbon.refuse('the ledger is kept for good');
CREATE TRIGGER kept_for_good BEFORE DELETE OR TRUNCATE ON carbon.iceberg_sync_log
    FOR EACH STATEMENT EXECUTE FUNCTION carbon.refuse('the ledger is kept for good');
CREATE TRIGGER kept_for_good BEFORE UPDATE OR DELETE OR TRUNCATE ON carbon.dataset_schema_versions
    FOR EACH STATEMENT EXECUTE FUNCTION carbon.refuse('a schema version is kept for good');
CREATE TRIGGER fixed BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON carbon.operation_transitions
    FOR EACH STATEMENT EXECUTE FUNCTION carbon.refuse('only a migration changes the rules');
CREATE TRIGGER fixed BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON carbon.operation_rulings
    FOR EACH STATEMENT EXECUTE FUNCTION carbon.refuse('only a migration changes the rules');
"""


def upgrade() -> None:
    """Create everything. The PostgreSQL schema itself is there already: Alembic's version table stands in it."""
    for part in (STATES, TENANTS, DATASETS, LEDGER, OPERATION_GUARD, SYNC_LOG_GUARD, DATASET_GUARD, KEPT_FOR_GOOD):
        op.execute(part)


def downgrade() -> None:
    """There is no way back: it would throw the ledger away."""
    raise NotImplementedError("restore the control plane from a backup instead")

"""What a write can be asked later: its history, the files it announced, the snapshot it planned, and who swept when.

As in 0001 everything is spelt out, because a revision must do the same tomorrow. Operations that are there already get
a history that is rebuilt from their rows; its entries name no session, because none was on record.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

PLANNED_SNAPSHOT = """
ALTER TABLE carbon.dataset_transactions ADD COLUMN planned_snapshot_id bigint;
COMMENT ON COLUMN carbon.dataset_transactions.planned_snapshot_id IS
    'The snapshot that the request names, recorded by the move to committing, before the request is sent.';
-- Not validated: an operation that was committing before this revision has none, and ends all the same.
ALTER TABLE carbon.dataset_transactions ADD CONSTRAINT names_its_snapshot_when_committing CHECK (
    CASE status
        WHEN 'open' THEN planned_snapshot_id IS NULL
        WHEN 'committing' THEN planned_snapshot_id IS NOT NULL
        ELSE planned_snapshot_id IS NULL OR committing_at IS NOT NULL
    END
) NOT VALID;

CREATE OR REPLACE FUNCTION carbon.guard_operation() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    changeable CONSTANT text[] := ARRAY[
        'status', 'ruling', 'reason', 'lease_until', 'heartbeat_at', 'rows_written', 'bytes_written', 'committing_at',
        'planned_snapshot_id', 'settled_at', 'snapshot_id', 'parent_snapshot_id', 'rows', 'size_bytes', 'data_files',
        'has_identity'
    ];
BEGIN
    IF NOT EXISTS (SELECT FROM carbon.operation_transitions WHERE from_status = OLD.status) THEN
        RAISE EXCEPTION 'operation % is %, which is final', OLD.id, OLD.status USING ERRCODE = 'check_violation';
    END IF;
    IF to_jsonb(OLD) - changeable IS DISTINCT FROM to_jsonb(NEW) - changeable THEN
        RAISE EXCEPTION 'what operation % recorded when it opened does not change', OLD.id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.planned_snapshot_id IS DISTINCT FROM OLD.planned_snapshot_id
        AND NOT (OLD.status = 'open' AND NEW.status = 'committing')
    THEN
        RAISE EXCEPTION 'operation % names its snapshot once, when it moves from open to committing', OLD.id
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
"""

HISTORY = """
CREATE TYPE carbon.operation_event_kind AS ENUM ('transition', 'late_landing');

CREATE TABLE carbon.dataset_transaction_events (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_id  uuid NOT NULL REFERENCES carbon.dataset_transactions,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind          carbon.operation_event_kind NOT NULL,
    from_status   carbon.operation_status,
    to_status     carbon.operation_status NOT NULL,
    ruling        carbon.operation_ruling,
    reason        text,
    snapshot_id   bigint,
    session       text,
    database_user text
);
COMMENT ON TABLE carbon.dataset_transaction_events IS
    'Every move of every operation, written by the database whoever makes it, and late landings. Append-only.';

-- From here on an operation's history begins; what came before is rebuilt from its row.
INSERT INTO carbon.dataset_transaction_events
    (operation_id, at, kind, from_status, to_status, ruling, reason, snapshot_id)
SELECT id, at, 'transition', from_status, to_status, ruling, reason, snapshot_id
FROM (
    SELECT id, opened_at AS at, NULL::carbon.operation_status AS from_status,
        'open'::carbon.operation_status AS to_status, NULL::carbon.operation_ruling AS ruling, NULL AS reason,
        NULL::bigint AS snapshot_id
    FROM carbon.dataset_transactions
    UNION ALL
    SELECT id, committing_at, 'open', 'committing', NULL, NULL, NULL
    FROM carbon.dataset_transactions WHERE committing_at IS NOT NULL
    UNION ALL
    SELECT id, settled_at, CASE WHEN committing_at IS NULL THEN 'open'::carbon.operation_status ELSE 'committing' END,
        status, ruling, reason, snapshot_id
    FROM carbon.dataset_transactions WHERE settled_at IS NOT NULL
) AS moves
ORDER BY at, to_status;

-- No operation reaches a status twice, so this is once per move.
CREATE UNIQUE INDEX one_event_per_transition ON carbon.dataset_transaction_events (operation_id, to_status)
    WHERE kind = 'transition';
CREATE UNIQUE INDEX one_late_landing ON carbon.dataset_transaction_events (operation_id) WHERE kind = 'late_landing';
CREATE INDEX late_landings ON carbon.dataset_transaction_events (at) WHERE kind = 'late_landing';

CREATE FUNCTION carbon.guard_event() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    operation carbon.dataset_transactions;
BEGIN
    -- Inside a trigger of the ledger's own table the depth is two; an INSERT from outside comes at one.
    IF NEW.kind = 'transition' AND pg_trigger_depth() < 2 THEN
        RAISE EXCEPTION 'the database itself records the moves of operation %', NEW.operation_id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.kind = 'late_landing' THEN
        SELECT * INTO operation FROM carbon.dataset_transactions WHERE id = NEW.operation_id;
        IF operation.status IS DISTINCT FROM 'aborted' THEN
            RAISE EXCEPTION 'operation % is %, and only an aborted one can land late', NEW.operation_id,
                coalesce(operation.status::text, 'not in the ledger') USING ERRCODE = 'check_violation';
        END IF;
        NEW.from_status := operation.status;
        NEW.to_status := operation.status;
        NEW.ruling := operation.ruling;
        NEW.snapshot_id := operation.planned_snapshot_id;
    END IF;
    NEW.at := clock_timestamp();
    NEW.session := current_setting('application_name');
    NEW.database_user := session_user;
    RETURN NEW;
END
$body$;
CREATE TRIGGER guard_insert BEFORE INSERT ON carbon.dataset_transaction_events
    FOR EACH ROW EXECUTE FUNCTION carbon.guard_event();
CREATE TRIGGER kept_for_good BEFORE UPDATE OR DELETE OR TRUNCATE ON carbon.dataset_transaction_events
    FOR EACH STATEMENT EXECUTE FUNCTION carbon.refuse('history is only ever appended to');

CREATE FUNCTION carbon.record_transition() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO carbon.dataset_transaction_events
        (operation_id, kind, from_status, to_status, ruling, reason, snapshot_id)
    VALUES (
        NEW.id, 'transition', CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status, NEW.ruling, NEW.reason,
        CASE NEW.status WHEN 'committing' THEN NEW.planned_snapshot_id ELSE NEW.snapshot_id END
    );
    RETURN NULL;
END
$body$;
CREATE TRIGGER record_opening AFTER INSERT ON carbon.dataset_transactions
    FOR EACH ROW EXECUTE FUNCTION carbon.record_transition();
CREATE TRIGGER record_transition AFTER UPDATE ON carbon.dataset_transactions
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION carbon.record_transition();
"""

FILES = """
CREATE TABLE carbon.dataset_transaction_files (
    operation_id uuid NOT NULL REFERENCES carbon.dataset_transactions,
    path         text NOT NULL CHECK (path <> ''),
    announced_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at   timestamptz,
    PRIMARY KEY (operation_id, path)
);
COMMENT ON TABLE carbon.dataset_transaction_files IS
    'Files that an operation was about to write, on record before they were.';

CREATE FUNCTION carbon.guard_file() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    standing CONSTANT carbon.operation_status := (
        SELECT status FROM carbon.dataset_transactions WHERE id = NEW.operation_id
    );
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF standing <> 'open' OR NEW.removed_at IS NOT NULL THEN
            RAISE EXCEPTION 'operation % is %: its files are announced while it is open, before they are written',
                NEW.operation_id, standing USING ERRCODE = 'check_violation';
        END IF;
    ELSIF OLD.removed_at IS NOT NULL
        OR to_jsonb(OLD) - 'removed_at' IS DISTINCT FROM to_jsonb(NEW) - 'removed_at'
    THEN
        RAISE EXCEPTION 'of a file of operation % only the removal is recorded, once', OLD.operation_id
            USING ERRCODE = 'check_violation';
    ELSIF standing <> 'aborted' THEN
        RAISE EXCEPTION 'operation % is %: its files are not to be removed', OLD.operation_id, standing
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$body$;
CREATE TRIGGER guard_row BEFORE INSERT OR UPDATE ON carbon.dataset_transaction_files
    FOR EACH ROW EXECUTE FUNCTION carbon.guard_file();
CREATE TRIGGER kept_for_good BEFORE DELETE OR TRUNCATE ON carbon.dataset_transaction_files
    FOR EACH STATEMENT EXECUTE FUNCTION carbon.refuse('the ledger is kept for good');
"""

LOWERED_FRESHNESS = """
CREATE OR REPLACE FUNCTION carbon.guard_dataset() RETURNS trigger LANGUAGE plpgsql AS $body$
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
    -- They go back in one case: in the very transaction that rules a later operation rolled back.
    IF OLD.committed_seq IS NOT NULL AND coalesce(NEW.committed_seq, 0) < OLD.committed_seq AND NOT EXISTS (
        SELECT FROM carbon.dataset_transactions
        WHERE dataset_id = OLD.id AND seq > OLD.committed_seq AND ruling = 'rolled_back'
            AND settled_at >= transaction_timestamp()
    ) THEN
        RAISE EXCEPTION 'the facts of dataset % only move forward', OLD.id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$body$;
"""

SWEEPS = """
CREATE TYPE carbon.sweep_trigger AS ENUM ('sensor', 'schedule', 'terminal', 'library');

CREATE TABLE carbon.ratify_sweeps (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trigger    carbon.sweep_trigger NOT NULL,
    began_at   timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    dry_run    boolean NOT NULL,
    -- In a dry run, what would have been settled.
    settled    bigint NOT NULL CHECK (settled >= 0),
    left_alone bigint NOT NULL CHECK (left_alone >= 0),
    held_back  bigint NOT NULL CHECK (held_back >= 0),
    late       bigint NOT NULL CHECK (late >= 0),
    alarm      text,
    CONSTRAINT ends_after_it_began CHECK (began_at <= ended_at)
);
CREATE INDEX ratify_sweeps_by_end ON carbon.ratify_sweeps (ended_at);
CREATE TRIGGER as_recorded BEFORE UPDATE ON carbon.ratify_sweeps
    FOR EACH STATEMENT EXECUTE FUNCTION carbon.refuse('a sweep stays as it was recorded');

CREATE TABLE carbon.ratify_ticks (
    trigger  carbon.sweep_trigger PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    decision text NOT NULL,
    -- When it last found nothing to do; a later tick that launches a sweep does not make that undone.
    idle_at  timestamptz
);
"""

INDEXES = """
CREATE INDEX operations_by_opening ON carbon.dataset_transactions (opened_at);
CREATE INDEX unsettled_by_opening ON carbon.dataset_transactions (opened_at) WHERE status IN ('open', 'committing');
-- For the watch over late landings, and for the files that were left behind.
CREATE INDEX aborted_by_settling ON carbon.dataset_transactions (settled_at) WHERE status = 'aborted';
"""


def upgrade() -> None:
    """Create what is new, and replace the two guards that have to know of it."""
    for part in (PLANNED_SNAPSHOT, HISTORY, FILES, LOWERED_FRESHNESS, SWEEPS, INDEXES):
        op.execute(part)


def downgrade() -> None:
    """There is no way back: it would throw the history away."""
    raise NotImplementedError("restore the control plane from a backup instead")

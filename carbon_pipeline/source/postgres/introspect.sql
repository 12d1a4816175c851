-- The catalogue queries, by name. Each takes few arguments and answers for all relations at once: no query per table.
-- Everything is read from pg_catalog, which every role may read, and nothing from information_schema, which hides what
-- the role has no rights on. Names of functions and types need no schema: pg_catalog is always searched first.

-- name: database
-- Which system and database this is.
SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
       current_database()::text AS database,
       current_setting('server_version') AS server_version;

-- name: moment
-- The moment that a snapshot taken after this query shows at least. A replica shows what it has replayed.
SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
       CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0')
            ELSE pg_current_wal_flush_lsn() END::text AS lsn,
       clock_timestamp() AS time;

-- name: place
-- Where a relation is now, by oid: renaming and moving it changes neither its oid nor its rows.
SELECT n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS relkind
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = %(oid)s;

-- name: row_security
-- Whether policies would hide rows of this relation from us.
SELECT row_security_active(%(oid)s::oid) AS active;

-- name: relations
-- Tables, partitioned tables (not their partitions) and materialised views; all of them, or the one called by oid.
-- What is stored of a partitioned table is in its leaves, so rows and pages are summed over them; reltuples is -1 where
-- nobody has counted yet.
WITH RECURSIVE wanted AS (
    SELECT c.oid, n.nspname, c.relname, c.relkind
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p', 'm')
       AND NOT c.relispartition
       AND c.relpersistence <> 't'
       AND n.nspname !~ '^pg_'
       AND n.nspname <> 'information_schema'
       AND (%(oid)s::oid IS NULL OR c.oid = %(oid)s::oid)
), tree (root, oid) AS (
    SELECT oid, oid FROM wanted
    UNION ALL
    SELECT t.root, i.inhrelid
      FROM tree t
      JOIN wanted w ON w.oid = t.root AND w.relkind = 'p'
      JOIN pg_inherits i ON i.inhparent = t.oid
), stored AS (
    SELECT t.root,
           sum(c.reltuples::float8) FILTER (WHERE c.reltuples >= 0) AS estimated_rows,
           sum(c.relpages::bigint) * current_setting('block_size')::bigint AS estimated_bytes,
           array_agg(c.oid::bigint) FILTER (WHERE c.relkind <> 'f') AS leaves
      FROM tree t
      JOIN pg_class c ON c.oid = t.oid AND c.relkind <> 'p'
     GROUP BY t.root
)
SELECT w.oid::bigint AS oid,
       w.nspname::text AS schema,
       w.relname::text AS name,
       w.relkind::text AS relkind,
       s.estimated_rows::bigint AS estimated_rows,
       coalesce(s.estimated_bytes, 0)::bigint AS estimated_bytes,
       coalesce(s.leaves, '{}') AS leaves,
       d.description AS comment
  FROM wanted w
  LEFT JOIN stored s ON s.root = w.oid
  LEFT JOIN pg_description d ON d.objoid = w.oid AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0
 ORDER BY w.nspname, w.relname;

-- name: columns
-- The columns of relations, dropped ones left out, with domains resolved down to what they stand on. A domain's own
-- type modifier is the one that counts: its columns cannot have another.
-- Built in is what came with the server: a type that somebody made may have any name, `int4` included.
WITH RECURSIVE domains (domain, type, typmod) AS (
    SELECT oid, typbasetype, typtypmod FROM pg_type WHERE typtype = 'd'
    UNION ALL
    SELECT d.domain, t.typbasetype, t.typtypmod
      FROM domains d
      JOIN pg_type t ON t.oid = d.type AND t.typtype = 'd'
), resolved AS (
    SELECT d.domain, d.type, d.typmod
      FROM domains d
      JOIN pg_type t ON t.oid = d.type AND t.typtype <> 'd'
), typed AS (
    SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull,
           coalesce(r.type, a.atttypid) AS type,
           coalesce(r.typmod, a.atttypmod) AS typmod
      FROM pg_attribute a
      LEFT JOIN resolved r ON r.domain = a.atttypid
     WHERE a.attrelid = ANY (%(oids)s::oid[])
       AND a.attnum > 0
       AND NOT a.attisdropped
), judged AS (
    SELECT c.*, t.typname,
           CASE WHEN t.typtype = 'e' THEN 'enum'
                WHEN t.typtype = 'b' AND t.typcategory <> 'A' AND t.oid < 16384 THEN 'built-in'
                ELSE 'other' END AS kind,
           c.type = 'numeric'::regtype AND c.typmod >= 4 AS is_bounded
      FROM typed c
      JOIN pg_type t ON t.oid = c.type
)
SELECT j.attrelid::bigint AS relation,
       j.attnum::integer AS attnum,
       j.attname::text AS name,
       format_type(j.atttypid, j.atttypmod) AS declared_type,
       CASE WHEN j.kind = 'built-in' THEN j.typname::text ELSE format_type(j.type, NULL) END AS type_name,
       j.kind AS type_kind,
       -- The modifier of a numeric holds the precision above and the scale in its lowest eleven bits, with a sign since
       -- PostgreSQL 15 (its source, numeric_typmod_precision and numeric_typmod_scale).
       CASE WHEN j.is_bounded THEN ((j.typmod - 4) >> 16) & 65535 END AS precision,
       CASE WHEN j.is_bounded THEN (((j.typmod - 4) & 2047) # 1024) - 1024 END AS scale,
       j.attnotnull AS not_null,
       d.description AS comment
  FROM judged j
  LEFT JOIN pg_description d
         ON d.objoid = j.attrelid AND d.classoid = 'pg_class'::regclass AND d.objsubid = j.attnum
 ORDER BY j.attrelid, j.attnum;

-- name: sizes
-- Bytes on disk of relations: heap, TOAST, maps. Apart from the other queries because it waits for each relation's lock.
SELECT sized.oid AS oid, coalesce(pg_table_size(sized.oid::oid), 0) AS bytes
  FROM unnest(%(oids)s::bigint[]) AS sized (oid);

-- name: primary_keys
-- The columns of primary keys, in the key's order; columns that an index merely carries (INCLUDE) are not of it.
SELECT i.indrelid::bigint AS relation, array_agg(a.attname::text ORDER BY k.place) AS columns
  FROM pg_index i
 CROSS JOIN unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
 WHERE i.indisprimary
   AND k.place <= i.indnkeyatts
   AND i.indrelid = ANY (%(oids)s::oid[])
 GROUP BY i.indrelid;

-- name: foreign_keys
-- References, their columns in pairs and in order. Rows with a parent are PostgreSQL's own, one per partition.
SELECT c.conrelid::bigint AS relation,
       c.conname::text AS name,
       array_agg(a.attname::text ORDER BY k.place) AS columns,
       n.nspname::text AS referenced_schema,
       r.relname::text AS referenced_table,
       array_agg(f.attname::text ORDER BY k.place) AS referenced_columns
  FROM pg_constraint c
 CROSS JOIN unnest(c.conkey, c.confkey) WITH ORDINALITY AS k (attnum, referenced_attnum, place)
  JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum
  JOIN pg_attribute f ON f.attrelid = c.confrelid AND f.attnum = k.referenced_attnum
  JOIN pg_class r ON r.oid = c.confrelid
  JOIN pg_namespace n ON n.oid = r.relnamespace
 WHERE c.contype = 'f'
   AND c.conparentid = 0
   AND c.conrelid = ANY (%(oids)s::oid[])
 GROUP BY c.oid, c.conrelid, c.conname, n.nspname, r.relname
 ORDER BY c.conrelid, c.conname;

-- name: standing
-- What the role is and may do beyond reading.
SELECT current_user::text AS user,
       r.rolsuper AS is_superuser,
       r.rolbypassrls AS bypasses_row_security,
       r.rolcreaterole AS creates_roles,
       r.rolreplication AS replicates,
       has_database_privilege(current_database(), 'CREATE') AS creates_schemas,
       pg_is_in_recovery() AS is_replica,
       coalesce((SELECT s.ssl FROM pg_stat_ssl s WHERE s.pid = pg_backend_pid()), false) AS is_encrypted
  FROM pg_roles r
 WHERE r.rolname = current_user;

-- name: rights
-- Of the relations that can be synced: how many there are, may be read, and may be written.
SELECT count(*) AS relations,
       count(*) FILTER (WHERE has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')) AS readable,
       count(*) FILTER (WHERE has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')) AS writable,
       count(*) FILTER (WHERE row_security_active(c.oid)) AS hidden_in_part
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'm')
   AND NOT c.relispartition
   AND c.relpersistence <> 't'
   AND n.nspname !~ '^pg_'
   AND n.nspname <> 'information_schema';

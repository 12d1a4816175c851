"""Whether a text is one query that only reads, told by DuckDB's own syntax tree.

The kind of a statement does not tell: `WITH x AS (COPY … TO …) SELECT …` is a SELECT to DuckDB 2.0, and so is a call of
`json_execute_serialized_sql`, which runs whatever it is given. DuckDB's settings do not help either, since a file that
may be read may be written to. So every node of the tree must be one that reads, and every table function be listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from carbon_pipeline.errors import UsageError

_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})


def refuse_unless_query(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """`UsageError` unless *sql* is one query over datasets; text that DuckDB cannot parse is left to it."""
    [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(text)
    if tree["error"] and tree["error_type"] == "parser":
        return
    if tree["error"] or len(tree["statements"]) != 1:
        raise UsageError("this is not one query", remedy="Give one SELECT; nothing else can be run here.")
    for node in _nodes(tree["statements"][0]):
        kind = node["type"]
        if kind.endswith("_NODE") and kind not in _QUERY_NODES:
            raise UsageError("a query here only reads, this one also writes", remedy="Leave the writing part out.")
        if kind == "TABLE_FUNCTION" and (name := node["function"]["function_name"].lower()) not in _TABLE_FUNCTIONS:
            raise UsageError(
                f"the table function {name} cannot be used here",
                remedy=f"Query datasets by name; table functions at hand: {', '.join(sorted(_TABLE_FUNCTIONS))}.",
            )


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of the tree that says what it is."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            if isinstance(current.get("type"), str):
                yield current
            waiting += current.values()
        elif isinstance(current, list):
            waiting += current

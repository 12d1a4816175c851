"""The rules of the house, as tests. Which module may import which is import-linter's; that no module escapes it, and
what import-linter cannot see, is here."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import carbon_pipeline

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "carbon_pipeline"
TESTS = ROOT / "carbon_pipeline_tests"

EDGES = (
    "control_plane.sql",
    "source.postgres",
    "lake.iceberg",
    "query.duckdb",
    "vault.aes_gcm",
    "embedded_postgres",
    "demo",
    "orchestration",
    "terminal",
)
ROOTS = ("cli", "demonstration", "evidence", "session", "definitions", "dagster_storage", "deployment")
OUTER = (*EDGES, *ROOTS, "settings")

# Who may use what. `pyarrow` and `numpy` carry values everywhere; anything not named here belongs to nobody.
THIRD_PARTY = {
    "pyarrow": ("",),
    "numpy": ("",),
    "alembic": ("control_plane.sql",),
    "sqlalchemy": ("control_plane.sql", "lake.iceberg", "deployment", "dagster_storage"),
    "psycopg": ("source.postgres", "embedded_postgres", "control_plane.sql", "demo"),
    "filelock": ("embedded_postgres",),
    "pyiceberg": ("lake.iceberg",),
    "pydantic": ("lake.iceberg",),
    "requests": ("lake.iceberg",),
    "duckdb": ("query.duckdb",),
    "cryptography": ("vault.aes_gcm",),
    "dagster": ("orchestration", "definitions", "dagster_storage"),
    "dagster_postgres": ("orchestration", "dagster_storage"),
    "rich": ("terminal",),
    "typer": ("cli", "terminal"),
    "click": ("cli", "terminal"),
}

IMPURE = re.compile(
    r"\b(datetime\.now|date\.today|time\.time\(|uuid[14]\(|os\.environ|getenv|random\.|secrets\.|subprocess"
    r"|(?<!def )(?<![.\w])open\()"
)
IMPURE_ALLOWED = {"sync_all": "measures how long a table took, for display only"}
BANNED_NAMES = {"utils", "common", "helpers", "types", "misc", "base"}
FUNCTION_LINES_MAX = 70


def module_name(path: Path, package: Path = PACKAGE) -> str:
    """`carbon_pipeline/lake/port.py` → `lake.port`; the package itself is the empty name."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def is_within(module: str, place: str) -> bool:
    """Whether *module* is *place* or below it; everything is below the empty place."""
    return place in ("", module) or module.startswith(f"{place}.")


def imported(path: Path) -> Iterator[str]:
    """The absolute names that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def ranked_places() -> set[str]:
    """The modules that import-linter's layers name."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    names = {name.strip() for layer in layers for name in re.split(r"[|:]", layer)}
    return {name.removeprefix("carbon_pipeline.") for name in names}


def test_every_module_has_a_rank() -> None:
    """A module that no layer covers fails; package docstrings are the only files without a rank."""
    places = ranked_places()
    strays = [
        module
        for module, path in MODULES.items()
        if path.name != "__init__.py" and not any(is_within(module, place) for place in places)
    ]
    assert strays == []


def test_every_rank_has_a_module() -> None:
    """A layer that names a module which is gone would look like a rule and be none."""
    assert [place for place in ranked_places() if not any(is_within(module, place) for module in MODULES)] == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_third_parties_stay_in_their_place(module: str) -> None:
    """A third-party package is imported only where its technology lives."""
    standard = __import__("sys").stdlib_module_names
    for name in imported(MODULES[module]):
        package = name.split(".")[0]
        if package in standard or package in {"carbon_pipeline", "__future__"}:
            continue
        assert package in THIRD_PARTY, f"{module} imports {package}, which has no place yet"
        assert any(is_within(module, place) for place in THIRD_PARTY[package]), f"{module} may not import {package}"


@pytest.mark.parametrize("module", sorted(m for m in MODULES if not any(is_within(m, place) for place in OUTER)))
def test_the_core_is_pure(module: str) -> None:
    """Values in, values out: no clock, randomness, environment or I/O outside the edges and the composition roots."""
    if module in IMPURE_ALLOWED:
        return
    assert IMPURE.findall(MODULES[module].read_text()) == []


def test_only_composition_roots_import_edges() -> None:
    """Between the edges there is only the core."""
    for module, path in MODULES.items():
        if module in ROOTS:
            continue
        for name in imported(path):
            target = name.removeprefix("carbon_pipeline.")
            for edge in EDGES:
                assert is_within(module, edge) or not (name != target and is_within(target, edge)), (
                    f"{module} imports the edge {target}"
                )


def test_no_file_has_a_name_that_says_nothing() -> None:
    """`utils` and its kin hide what a file is for."""
    assert {module.split(".")[-1] for module in MODULES} & BANNED_NAMES == set()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_functions_are_short() -> None:
    """No function is longer than a page, in the package or in its tests."""
    long = [
        f"{path.name}:{node.name}"
        for path in [*MODULES.values(), *TESTS.rglob("*.py")]
        for node in functions(path)
        if (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_every_test_says_what_it_shows() -> None:
    """A test's docstring is its specification."""
    silent = [
        f"{path.name}:{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in functions(path)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []


def test_package_docstring_names_every_folder() -> None:
    """The map in the package's docstring has one line per folder, and no other."""
    named = set(re.findall(r"^ {4}(\w+)/ ", carbon_pipeline.__doc__ or "", flags=re.MULTILINE))
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert named == folders

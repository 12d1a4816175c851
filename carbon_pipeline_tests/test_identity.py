"""Names that are safe, and never two sources' at once."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carbon_pipeline.identity import NAME_LENGTH_MAX, partition_key, relation_name, safe_name, short_hash, with_hash

NAMES = st.text(min_size=1, max_size=80)
SAFE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


@pytest.mark.parametrize("name", ["t", "orders", "order_items", "t2", "a_b_c", "x" * 63, "2024"])
def test_a_safe_name_stays(name: str) -> None:
    """Its own spelling is the best one."""
    assert safe_name(name) == name


@pytest.mark.parametrize(
    "name", ["T", "a b", "a__b", "_a", "a_", "ünï", "🦆", "", "x" * 64, "a.b", "../escape", "a\0b"]
)
def test_every_other_name_gets_a_hash(name: str) -> None:
    """Spelt as near as can be, and told apart by the original."""
    made = safe_name(name)
    assert SAFE.fullmatch(made)
    assert made.endswith(f"_{short_hash(name)}")
    assert len(made) <= NAME_LENGTH_MAX


def test_a_name_that_looks_hashed_is_hashed_again() -> None:
    """Otherwise a table could be called like another one's safe name."""
    taken = safe_name("Orders")
    assert safe_name(taken) != taken


@given(NAMES)
@example("\ud800")
def test_safe_names_are_safe(name: str) -> None:
    """Lower-case letters, digits and single underscores, short enough for every catalog."""
    assert SAFE.fullmatch(safe_name(name))
    assert len(safe_name(name)) <= NAME_LENGTH_MAX


@given(NAMES, NAMES)
def test_two_names_never_become_one(one: str, other: str) -> None:
    """Different sources, different names."""
    assert (safe_name(one) == safe_name(other)) == (one == other)


@given(NAMES)
def test_the_image_of_a_name_is_not_the_image_of_itself(name: str) -> None:
    """A hashed name is never the fixed point of another source's."""
    made = safe_name(name)
    assert made == name or safe_name(made) != made


PAIRS = st.tuples(NAMES, NAMES)


@given(PAIRS, PAIRS)
@example(("public", "a"), ("a", "public"))
@example(("a", "b_c"), ("a_b", "c"))
@example(("x" * 40, "y" * 40), ("x" * 40, "y" * 41))
def test_two_relations_never_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Neither as a relation of the lake nor as a partition."""
    assert (relation_name(*one) == relation_name(*other)) == (one == other)
    assert (partition_key(*one) == partition_key(*other)) == (one == other)


def test_the_schema_shows_unless_it_is_public() -> None:
    """`public.t` is simply `t`."""
    assert relation_name("public", "t") == "t"
    assert relation_name("sales", "t") == "sales__t"
    assert partition_key("public", "t") == "public.t"
    assert len(relation_name("s" * 63, "t" * 63)) <= NAME_LENGTH_MAX


def test_with_hash_keeps_what_can_be_read() -> None:
    """The hash is of the source, the spelling of the name."""
    assert with_hash("Größe (cm)", "x") == f"gr_e_cm_{short_hash('x')}"

"""Errors in Dagster's words: what happened, what to do about it, and whether the step may run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from carbon_pipeline.errors import CarbonError, Reaction, reaction_to

RETRIES = 1
RETRY_SECONDS = 5


def failure_of(error: CarbonError) -> dg.Failure:
    """The error as Dagster shows it. `message` and `remedy` are safe to print; what caused them may not be."""
    return dg.Failure(
        description=error.message,
        metadata={"remedy": dg.MetadataValue.md(error.remedy), "kind": error.kind},
        allow_retries=reaction_to(error) is Reaction.RETRY,
    )


@contextmanager
def explained() -> Iterator[None]:
    """Turn a `CarbonError` into a `Failure`, or into a request to retry where `POLICY` says so.

    A `RetryPolicy` on the asset would do the same, but Dagster honours one for a cancelled run as well, which would
    start anew what a person has just stopped. The cause is cut off: Dagster stores whole chains of exceptions, and a
    driver's own message may quote a row or a piece of an address.
    """
    try:
        yield
    except CarbonError as error:
        failure = failure_of(error)
    else:
        return
    if failure.allow_retries:
        raise dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=RETRY_SECONDS) from failure
    raise failure from None

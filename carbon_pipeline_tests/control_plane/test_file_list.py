"""The list of files that aborted operations left behind."""

from __future__ import annotations

from carbon_pipeline.control_plane.records import OrphanCount
from carbon_pipeline.control_plane.sql.file_list import SqlFileList
from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.states import RULINGS, OperationStatus, Ruling
from carbon_pipeline.ratify.orphans import remove_orphans
from carbon_pipeline_tests.control_plane.plane import Plane
from carbon_pipeline_tests.control_plane.samples import backdate, end
from carbon_pipeline_tests.control_plane.scripted_lake import ScriptedJanitor

OPEN, COMMITTING = OperationStatus.OPEN, OperationStatus.COMMITTING


def aborted(plane: Plane, number: int, *files: str, hours: float = 48) -> OperationId:
    """An operation of the numbered table that announced files and was aborted so long ago."""
    left = plane.leave(number, OPEN, files=files)
    end(plane.ledger, left, Ruling.FAILED)
    backdate(plane.engine, left.id, hours=hours)
    return left.id


def test_only_aborted_operations_leave_orphans(plane: Plane) -> None:
    """Of operations in every state and with every ruling, old enough all of them, exactly the aborted ones are listed:
    what is unsettled may still land, what is unverifiable may have landed."""
    for status in (OPEN, COMMITTING):
        backdate(plane.engine, plane.leave(int(status is OPEN), status, files=[f"{status}"]).id, hours=48)
    for number, (ruling, rule) in enumerate(RULINGS.items(), start=2):
        status = COMMITTING if COMMITTING in rule.comes_from else OPEN
        left = plane.leave(number, status, files=[f"{ruling}/b", f"{ruling}/a"])
        end(plane.ledger, left, ruling)
        backdate(plane.engine, left.id, hours=48 + number)
    left_behind = SqlFileList(plane.engine).left_behind(24, 100)
    expected = [ruling for ruling, rule in RULINGS.items() if rule.status is OperationStatus.ABORTED]
    assert [each.paths for each in left_behind] == [(f"{r}/a", f"{r}/b") for r in reversed(expected)]
    assert {each.operation.status for each in left_behind} == {OperationStatus.ABORTED}
    assert plane.directory.orphan_count() == OrphanCount(files=2 * len(expected), operations=len(expected))


def test_age_and_limit(plane: Plane) -> None:
    """What was aborted too short a time ago is not listed; the oldest come first, so many operations at the most."""
    old, older = aborted(plane, 1, "a", hours=30), aborted(plane, 2, "b", "c", hours=40)
    young = aborted(plane, 3, "d", hours=20)
    files = SqlFileList(plane.engine)
    assert [each.operation.id for each in files.left_behind(24, 100)] == [older, old]
    assert [each.operation.id for each in files.left_behind(24, 1)] == [older]
    assert young in [each.operation.id for each in files.left_behind(0, 100)]
    assert plane.directory.orphan_count() == OrphanCount(files=4, operations=3)


def test_an_operation_without_files_leaves_nothing(plane: Plane) -> None:
    """It takes no place in the list, nor in the count."""
    aborted(plane, 1)
    assert SqlFileList(plane.engine).left_behind(24, 1) == ()
    assert plane.directory.orphan_count() == OrphanCount(files=0, operations=0)


def test_removed_files_leave_the_list(plane: Plane) -> None:
    """Once marked they are neither listed nor counted; the story keeps them with the time of their removal. Marking
    again changes nothing."""
    one, other = aborted(plane, 1, "a", "b"), aborted(plane, 2, "c")
    files = SqlFileList(plane.engine)
    left = next(each for each in files.left_behind(24, 100) if each.operation.id == one)
    files.mark_removed(left)
    removed = plane.directory.operation(str(one)).files
    assert [(each.path, each.removed_at is not None) for each in removed] == [("a", True), ("b", True)]
    files.mark_removed(left)
    assert plane.directory.operation(str(one)).files == removed
    assert [each.operation.id for each in files.left_behind(24, 100)] == [other]
    assert plane.directory.orphan_count() == OrphanCount(files=1, operations=1)


def test_the_clean_up_on_the_real_list(plane: Plane) -> None:
    """Removed are the files that no snapshot refers to; an operation of which one is referred to stays listed."""
    aborted(plane, 1, "gone/1", "gone/2")
    kept = aborted(plane, 2, "kept/1", "kept/2")
    janitor = ScriptedJanitor(referenced=["kept/1"])
    report = remove_orphans(SqlFileList(plane.engine), janitor)
    assert sorted(janitor.removed) == ["gone/1", "gone/2", "kept/2"]
    assert (report.removed, report.kept, report.failed) == (3, ("kept/1",), ())
    assert [each.operation.id for each in SqlFileList(plane.engine).left_behind(24, 100)] == [kept]

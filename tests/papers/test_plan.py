"""Which runs a table needs: named by what they follow from, shared, seed by seed, and only where data are at hand."""

from dataclasses import replace
from pathlib import Path

from treelm.papers.data import DataRoot
from treelm.papers.declaration import StandIn, Table
from treelm.papers.plan import make_plan
from treelm.papers.results import missing_data


def test_tables_share_runs(table: Table, root: DataRoot) -> None:
    """Another table of the same runs needs no other ones, only what it measures besides."""
    other = replace(table, name="Table 2", columns=table.columns[:1])
    alone, both = (make_plan(tables, root, small=True, seeds=3) for tables in ([table], [table, other]))
    assert alone.jobs == both.jobs
    assert len([job for job in alone.jobs.values() if job.recipe]) == 6


def test_run_name_depends_on_recipe_not_paths(table: Table, root: DataRoot, paper: Path) -> None:
    def names(table: Table, root: DataRoot) -> set[str]:
        return {name for name, job in make_plan([table], root, small=True, seeds=1).jobs.items() if job.recipe}

    moved = paper.parent / "moved"
    (paper.parent / "corpora").rename(moved)
    assert names(table, DataRoot(moved, root.sets)) == names(table, DataRoot(moved / ".." / "moved", root.sets))
    root = DataRoot(moved, root.sets)
    longer = replace(table, stand_ins=(replace(table.stand_ins[0], set="training.epochs=3"),))
    assert names(table, root).isdisjoint(names(longer, root))
    evaluated = replace(table, stand_ins=(replace(table.stand_ins[0], set="training.epochs=1 search.action_beam=3"),))
    assert names(table, root) == names(evaluated, root)


def test_row_without_data_names_source(table: Table, root: DataRoot) -> None:
    plan = make_plan([table], root, small=False, seeds=None)
    needed = "needs large"
    missing = {cell.row.name: cell.missing for cell in plan.tables[0].cells}
    assert [*missing.values()] == [needed, needed, needed, "not a system of treelm"]
    assert plan.jobs == {}
    (line,) = missing_data(plan, root.sets)
    assert line == "missing: large (many sentences): the publisher; as large in the folder of --data; for Table 1"


def test_first_stand_in_with_data_is_used(table: Table, root: DataRoot) -> None:
    better = StandIn(label="large, 6 units", data="large")
    table = replace(table, stand_ins=(better, *table.stand_ins))
    labels = {cell.label for cell in make_plan([table], root, small=True, seeds=1).tables[0].cells}
    assert labels == {"stand-in: tiny, 6 units, 1 seed", "stand-in: tiny, 6 units", ""}
    assert root.folder is not None
    (root.folder / "large").mkdir()
    labels = {cell.label for cell in make_plan([table], root, small=True, seeds=1).tables[0].cells}
    assert "stand-in: large, 6 units" in labels

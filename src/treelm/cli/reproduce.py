"""``treelm reproduce``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from treelm import cli
from treelm.cli import EXIT_STOPPED
from treelm.cli.arguments import Positional, note, parse
from treelm.cli.options import OutputPath
from treelm.cli.side_by_side import run_side_by_side
from treelm.errors import InputError

if TYPE_CHECKING:
    from treelm.papers.data import DataRoot
    from treelm.papers.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The tables and figures of a paper: what is missing is trained and measured, and shown beside what was published.

    Each run has its own folder in OUT/runs, and tables share runs; what was done before is not done again, and what was
    interrupted goes on. Tables are printed and written as TSV, LaTeX and SVG into OUT/PAPER, or OUT/PAPER-small. Rows
    whose data are not at hand say which, and where they come from.

    Example: treelm reproduce prpn --small --data /corpora
    Example: treelm reproduce palm --table 1 4 --data /corpora --seeds 5
    Example: treelm reproduce som --small --budget 20
    Example: treelm reproduce rnng --small --budget 0
    """

    paper: Annotated[str, Positional("PAPER")] = ""
    """rnng, som, tg, pushdown, variants, prpn or palm; unsupervised, the systems that find trees side by side;
    questions that the papers leave open; or a folder with declarations of your own (treelm/papers/__init__.py says
    how)."""
    table: tuple[str, ...] = ()
    """Tables by number, figures by name (figure4); without it, all."""
    seeds: int | None = None
    """Seeds of every row; without it, as declared (3 or more of stand-ins)."""
    budget: float | None = None
    """Minutes: then what runs is stopped, to go on with the next call. 0 shows what is known."""
    data: str = ""
    """Folder in which corpora lie that are not shipped; without it, the packaged treebank and your catalogue."""
    small: bool = False
    """Stand-ins that train in minutes, labelled as such, instead of the papers' settings."""
    out: OutputPath = "runs/reproduce"
    """Folder of all runs and tables."""
    jobs: int = 2
    """Runs at a time, one thread each."""
    only: str = ""
    """Do this run alone, in this process, and show nothing: what this subcommand starts for each run."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm reproduce", arguments)
    _check(options)
    from treelm.papers.data import DataRoot, data_sets
    from treelm.papers.declaration import load_paper, paper_folder
    from treelm.papers.plan import make_plan

    folder = paper_folder(options.paper)
    root = DataRoot(Path(options.data) if options.data else None, data_sets(folder))
    tables = load_paper(folder, root.sets, options.table)
    plan = make_plan(tables, root, small=options.small, seeds=options.seeds)
    if options.only:
        return _do(options, plan, root)
    begin = perf_counter()
    codes = _run(options, plan, arguments) if options.budget != 0 else {}
    is_stopped = EXIT_STOPPED in codes.values()
    is_over = options.budget is not None and perf_counter() - begin >= 60 * options.budget
    failed = {name: code for name, code in codes.items() if code != EXIT_STOPPED}
    not_yet = f"not run yet: {'--budget is over' if is_over else 'stopped'}"
    _show(plan, Path(options.out), folder.name + ("-small" if options.small else ""), failed, not_yet)
    if is_stopped:
        note("stopped; the same command goes on from here")
    return next(iter(failed.values()), EXIT_STOPPED if is_stopped and not is_over else 0)


def _check(options: Arguments) -> None:
    for name, is_valid, remedy in (
        ("jobs", options.jobs >= 1, "1 or more"),
        ("seeds", options.seeds is None or options.seeds >= 1, "1 or more"),
        ("budget", options.budget is None or options.budget >= 0, "0 or more minutes"),
    ):
        if not is_valid:
            raise InputError(f"--{name} {getattr(options, name)}", remedy=f"give {remedy}")
    if options.data and not Path(options.data).is_dir():
        raise InputError("no such folder", where=options.data, remedy="give the folder in which the corpora lie")


def _do(options: Arguments, plan: Plan, root: DataRoot) -> int:
    """Do one job in this process."""
    from treelm.cli.train import main as train
    from treelm.papers.work import do_job

    if options.only not in plan.jobs:
        raise InputError(f"no run {options.only!r}", remedy="leave --only out")
    cli.is_program = False  # training is not: what is measured after it can be ended, too
    return do_job(plan.jobs[options.only], Path(options.out), root, train)


def _run(options: Arguments, plan: Plan, arguments: list[str]) -> dict[str, int]:
    """Do all jobs that are not done, each in a process of its own; exit codes other than 0, by name."""
    from treelm.io.atomic import hold_folder
    from treelm.papers.work import is_done

    todo = [name for name, job in plan.jobs.items() if not is_done(job, Path(options.out))]
    if not todo:
        return {}
    limit = "" if options.budget is None else f", for {options.budget:g} minutes at most"
    note(f"{len(todo)} of {len(plan.jobs)} runs to do, {options.jobs} at a time{limit}; they are in {options.out}/runs")
    commands = {name: ["reproduce", *arguments, "--only", name] for name in todo}
    after = {name: start for name in todo if (start := plan.jobs[name].start) in commands}
    seconds = None if options.budget is None else 60 * options.budget
    begin = perf_counter()
    found = "another treelm reproduce is at work in this folder"
    with hold_folder(Path(options.out), found=found, remedy="wait for it or end it, or give another --output"):
        codes = run_side_by_side(commands, jobs=options.jobs, seconds=seconds, after=after)
    note(f"{sum(code == 0 for code in codes.values())} done in {(perf_counter() - begin) / 60:.1f} minutes")
    return {name: code for name, code in codes.items() if code}


def _show(plan: Plan, out: Path, paper: str, failed: dict[str, int], not_yet: str) -> None:
    """Print all tables and write their files."""
    from treelm.io.terminal import stdout_console
    from treelm.papers.output import LEGEND, as_text, write_files
    from treelm.papers.results import gather

    console = stdout_console()
    for planned in plan.tables:
        result = gather(planned, out, failed, not_yet=not_yet)
        console.print(as_text(result), markup=False, highlight=False)
        write_files(result, out / paper, out)
    console.print(LEGEND, markup=False, highlight=False)
    what = f"TSV and LaTeX of {len(plan.tables)} tables and figures, SVG of those with values"
    note(f"wrote {what}, into {out / paper}")

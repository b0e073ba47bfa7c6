"""``treelm reproduce``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from treelm.cli import EXIT_STOPPED, train
from treelm.cli.arguments import Positional, parse, written
from treelm.cli.options import Output
from treelm.cli.side_by_side import run_side_by_side
from treelm.errors import InputError, check_positive
from treelm.io.terminal import log

if TYPE_CHECKING:
    from treelm.papers.data import DataRoot
    from treelm.papers.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The tables and figures of a paper: what is missing is trained and measured, and shown beside what was published.

    Each run has its own folder in OUTPUT/runs, and tables share runs; what was done before is not done again, and what
    was interrupted goes on. Tables are printed and written as TSV into OUTPUT/PAPER, or OUTPUT/PAPER-small.
    Rows whose data are not at hand say which, and where they come from.

    Example: treelm reproduce prpn --small --data /corpora
    Example: treelm reproduce palm "table 4" --data /corpora --seeds 5
    Example: treelm reproduce som --small --budget 20
    Example: treelm reproduce rnng --small --budget 0
    """

    paper: Annotated[str, Positional("PAPER")] = ""
    """rnng, som, tg, pushdown, variants, prpn or palm; or unsupervised, the systems that find trees side by side."""
    which: Annotated[tuple[str, ...], Positional("TABLE")] = ()
    """Tables and figures by the paper's numbers: "table 2", "figure 4"; without it, all."""
    table: tuple[str, ...] = ()
    """The same by an option: numbers alone are of tables."""
    seeds: int | None = None
    """Seeds of every row; without it, as declared (3 or more of stand-ins)."""
    budget: float | None = None
    """Minutes: then what runs is stopped, to go on with the next call. 0 shows what is known."""
    data: str = ""
    """Folder in which corpora lie that are not shipped; without it, the packaged treebank and your catalogue."""
    small: bool = False
    """Stand-ins that train in minutes, labelled as such, instead of the papers' settings."""
    output: Output = "runs/reproduce"
    """Folder of all runs and tables."""
    jobs: int = 2
    """Runs at a time, one thread each."""
    only: str = ""
    """Do this run alone, in this process, and show nothing: what this subcommand starts for each run."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    check_positive(jobs=options.jobs, seeds=options.seeds)
    if options.budget is not None and options.budget < 0:
        raise InputError(f"budget = {options.budget}", remedy="give 0 or more minutes")
    if options.data and not Path(options.data).is_dir():
        raise InputError("no such folder", where=options.data, remedy="give the folder in which the corpora lie")
    from treelm.papers.data import DataRoot, chosen, paper_values

    paper, output = options.paper.lower(), Path(options.output)
    names = (*options.which, *(f"table {one}" if one[:1].isdigit() else one for one in options.table))
    chosen(paper_values(paper), names, paper)  # errors are reported before PyTorch is loaded
    from treelm.papers.declaration import load_paper
    from treelm.papers.plan import make_plan
    from treelm.papers.work import do_job

    root = DataRoot(Path(options.data) if options.data else None)
    plan = make_plan(load_paper(paper, names), root, small=options.small, seeds=options.seeds)
    if options.only:
        if options.only not in plan.jobs:
            raise InputError(f"no run {options.only!r}", remedy="remove --only")
        return do_job(plan.jobs[options.only], output, root, _train)
    begin = perf_counter()
    codes = _run(options, plan) if options.budget != 0 else {}
    is_stopped = EXIT_STOPPED in codes.values()
    is_over = options.budget is not None and perf_counter() - begin >= 60 * options.budget
    failed = {name: code for name, code in codes.items() if code != EXIT_STOPPED}
    command = shlex.join(["treelm", "reproduce", *written(replace(options, budget=options.budget or None))])
    not_yet = "not run yet" if options.budget is None else f"not run yet; {command} does it"
    if is_stopped or (is_over and options.budget):
        not_yet = f"stopped after {(perf_counter() - begin) / 60:.1f} minutes; go on with {command}"
        log(not_yet)
    _show(plan, options, failed, not_yet, root)
    return next(iter(failed.values()), EXIT_STOPPED if is_stopped and not is_over else 0)


def _train(arguments: list[str]) -> int:
    return train.main(parse(train.Arguments, "treelm train", arguments))


def _run(options: Arguments, plan: Plan) -> dict[str, int]:
    """Do all jobs that are not done, each in a process of its own; exit codes other than 0, by name."""
    from treelm.io.atomic import hold_folder
    from treelm.papers.work import is_done

    output = Path(options.output)
    todo = [name for name, job in plan.jobs.items() if not is_done(job, output)]
    if not todo:
        return {}
    limit = "" if options.budget is None else f", for {options.budget:g} minutes at most"
    log(f"{len(todo)} of {len(plan.jobs)} runs to do, {options.jobs} at a time{limit}; they are in {output}/runs")
    commands = {name: ["reproduce", *written(replace(options, only=name))] for name in todo}
    after = {name: start for name in todo if (start := plan.jobs[name].start) in commands}
    seconds = None if options.budget is None else 60 * options.budget
    begin = perf_counter()
    found = "another treelm reproduce is at work in this folder"
    with hold_folder(output, found=found, remedy="wait for it or end it, or give another --output"):
        codes = run_side_by_side(commands, jobs=options.jobs, seconds=seconds, after=after)
    log(f"{sum(code == 0 for code in codes.values())} done in {(perf_counter() - begin) / 60:.1f} minutes")
    return {name: code for name, code in codes.items() if code}


def _show(plan: Plan, options: Arguments, failed: dict[str, int], not_yet: str, root: DataRoot) -> None:
    """Print all tables and write their files."""
    from treelm.io.terminal import stdout_console
    from treelm.papers.results import LEGEND, as_text, gather, load_kept, missing_data, write_file

    console, paper, output = stdout_console(), options.paper.lower(), Path(options.output)
    kept = load_kept(paper)
    console.print(plan.tables[0].table.paper, style="bold", markup=False, highlight=False)
    folder = output / (paper + ("-small" if options.small else ""))
    for planned in plan.tables:
        result = gather(planned, output, failed, not_yet=not_yet, results=kept.get(planned.table.name))
        console.print(as_text(result), markup=False, highlight=False)
        write_file(result, folder)
    for line in (LEGEND, "", *missing_data(plan, root.sets)):
        console.print(line, markup=False, highlight=False)
    log(f"wrote TSV of {len(plan.tables)} tables and figures into {folder}")

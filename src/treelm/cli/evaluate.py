"""``treelm evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from treelm.cli.arguments import refuse
from treelm.cli.files import check_not_input, open_output, print_json, report_skipped, skip_list
from treelm.cli.options import RunFolder, TableOptions, WorkerOptions
from treelm.errors import InputError
from treelm.evaluation.settings import EvaluationSettings
from treelm.io.atomic import check_output_path
from treelm.io.terminal import log, progress_bar

if TYPE_CHECKING:
    from treelm.evaluation.report import EvaluationResult
    from treelm.training.recipe import Recipe

_OF_FILES = ("run", "gold", "predicted", "params", "sentences", "json")
"""Options of one bracket file against another: all others are of a run."""


@dataclass(frozen=True, kw_only=True)
class Arguments(EvaluationSettings, WorkerOptions, TableOptions):
    """Perplexity and F1 of a run, beside trivial baselines; or EVALB scores of one bracket file against another.

    Example: treelm evaluate runs/demo --split test
    Example: treelm evaluate runs/demo --data my-treebank.ptb other.conllu
    Example: treelm evaluate runs/awd-lstm --stream only --stream-rows 1 --cache-weight 0.1
    Example: treelm evaluate runs/som --data ud-ood/*.conllu.gz --on-error skip --summary ood.tsv
    Example: treelm evaluate --gold gold.ptb --predicted parsed.ptb --params COLLINS.prm
    """

    needs: ClassVar = {**EvaluationSettings.needs, "sentences": "gold", "params": "gold"}

    run: RunFolder = ""
    summary: str = ""
    """TSV file to write the main metrics into, one row for each split or file."""
    trees: str = ""
    """Folder to write gold and predicted trees into, as SPLIT.gold.ptb and SPLIT.predicted.ptb."""
    gold: str = ""
    """Bracket file with the right trees, one a line."""
    predicted: str = ""
    """Bracket file to score against it."""
    params: str = "collins"
    """EVALB parameter file, or the name of a built-in one: collins, new."""
    sentences: bool = False
    """With --gold: print a row for every sentence too."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    if bool(options.gold) != bool(options.predicted) or bool(options.run) == bool(options.gold):
        raise InputError("cannot tell what to evaluate", remedy="give RUN, or --gold FILE --predicted FILE")
    return _evaluate_files(options) if options.gold else _evaluate_run(options)


def _evaluate_files(options: Arguments) -> int:
    refuse(options, [one.name for one in fields(Arguments) if one.name not in _OF_FILES], "with --gold")
    from treelm.evaluation.evalb import score_bracketings
    from treelm.evaluation.evalb_files import find_parameters, read_bracketings
    from treelm.evaluation.report import evalb_json, evalb_text

    parameters = find_parameters(options.params)
    gold, predicted = (read_bracketings(Path(file)) for file in (options.gold, options.predicted))
    result = score_bracketings(gold, predicted, parameters)
    if options.json:
        print_json(evalb_json(result, sentences=options.sentences))
    else:
        print(evalb_text(result, sentences=options.sentences))
    return 0


def _evaluate_run(options: Arguments) -> int:
    from treelm.evaluation.evaluate import evaluate_run
    from treelm.evaluation.report import as_table, write_summary
    from treelm.models import system_class
    from treelm.training.run_folder import recipe_of_model

    recipe = options.changed_recipe(recipe_of_model(options.run))
    tree_files = _check_files(options, recipe)
    options.note_lost_widths(options.run, system_class(recipe.model.system))
    skipped = skip_list(options)
    with progress_bar("evaluating", None) as advance:
        results = evaluate_run(Path(options.run), recipe, options, skipped=skipped, on_sentence=advance)
    for result in results if options.trees else ():
        _write_trees(result, tree_files)
    if options.summary:
        write_summary(results, Path(options.summary))
        log(f"wrote {options.summary}")
    table = as_table(results, title=f"{options.run}: {results[0].system}")
    options.show([result.to_json() for result in results], table)
    return report_skipped(skipped)


def _check_files(options: Arguments, recipe: Recipe) -> dict[tuple[str, str], Path]:
    """The files of trees by split or file and kind; what cannot be read or written is refused before any work."""
    for file in options.data:
        if not Path(file).exists():
            raise InputError("no such file", where=file, remedy="check the path")
    sources: Sequence[str] = options.data or recipe.evaluation.splits
    folder = Path(options.trees)
    trees = {
        (source, kind): folder / f"{Path(source).name}.{kind}.ptb"
        for source in (sources if options.trees else ())
        for kind in ("gold", "predicted")
    }
    if len(set(trees.values())) < len(trees):
        raise InputError("two files of one name, whose trees would share a file", remedy="rename one")
    if options.trees and folder.exists() and not folder.is_dir():
        raise InputError("not a folder", where=options.trees, remedy="give the name of a folder")
    if options.summary:
        check_output_path(options.summary)
    own = (recipe.data.train, recipe.data.dev, recipe.data.test)
    check_not_input([options.summary, *trees.values()], options.data or filter(None, own))
    return trees


def _write_trees(result: EvaluationResult, files: dict[tuple[str, str], Path]) -> None:
    from treelm.trees.brackets import format_tree

    trees = {
        "gold": [format_tree(one.tree, one.tags) for one in result.sentences if one.tree is not None],
        "predicted": [format_tree(one.tree) for one in result.analyses if one.tree is not None],
    }
    for kind, lines in trees.items():
        if lines:  # if there are none, the notes say why
            path = files[result.split, kind]
            path.parent.mkdir(parents=True, exist_ok=True)
            with open_output(str(path)) as out:
                out.write("\n".join(lines) + "\n")
            log(f"wrote {path}")

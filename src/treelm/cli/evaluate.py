"""``treelm evaluate``."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treelm.cli.arguments import note, parse
from treelm.cli.files import check_not_input, open_output, print_json, progress_bar, report_skipped
from treelm.cli.options import (
    FileFormat,
    ModelOptions,
    RunFolder,
    SpanProtocol,
    WorkerOptions,
    note_lost_widths,
    refuse_lost,
)
from treelm.corpora.sentence import Preprocessing
from treelm.errors import InputError
from treelm.io.atomic import check_output_path

if TYPE_CHECKING:
    from treelm.evaluation.evaluate import Evaluation
    from treelm.training.recipe import Recipe

Stream = Literal["no", "beside", "only"]
_OF_FILES = ("run", "gold", "predicted", "params", "sentences", "json")
"""Options of one bracket file against another: all others are of a run."""


@dataclass(frozen=True, kw_only=True)
class Arguments(ModelOptions, WorkerOptions):
    """Perplexity and F1 of a run, beside trivial baselines; or EVALB scores of one bracket file against another.

    Example: treelm evaluate runs/demo --split test
    Example: treelm evaluate runs/demo --data my-treebank.ptb other.conllu
    Example: treelm evaluate runs/awd-lstm --stream-only --stream-rows 1 --cache-weight 0.1
    Example: treelm evaluate runs/som --data ud-ood/*.conllu.gz --on-error skip --summary ood.tsv
    Example: treelm evaluate --gold gold.ptb --predicted parsed.ptb --params COLLINS.prm
    """

    run: RunFolder = ""
    split: tuple[Literal["train", "dev", "test"], ...] = ()
    """Splits of the run's own corpus; without it and --data, what the recipe's [evaluation] names."""
    data: tuple[str, ...] = ()
    """Treebank files instead of the run's own corpus."""
    tree_builder: Literal["unbiased", "biased", "mbr", "viterbi"] | None = None
    """Way of building trees, from distances (unbiased, biased) or by an induced grammar (mbr, viterbi); without it, as
    in the recipe."""
    preprocess: Preprocessing | None = None
    """Change the words of the data before they are read, as data.preprocess does; without it, as in the recipe."""
    max_sentences: int | None = None
    """Only so many sentences of each split, the first ones."""
    format: FileFormat = "auto"
    """Format of the files of --data. auto: by their names."""
    stream: bool = False
    """Also the perplexity of the whole text in a row, the hidden state kept over sentences: what papers on LMs report.
    Without this and the next three, as in the recipe."""
    stream_only: bool = False
    """Nothing but that."""
    no_stream: bool = False
    """Only the metrics of sentences and trees."""
    no_stream_only: bool = False
    """The metrics of sentences and trees too; --protocol, --trees and --tree-builder imply it."""
    stream_rows: int | None = None
    """Rows in which the stream is read, each from the zero state; without it, as in the recipe (the cache's too), and
    one row for a text that is too short for them."""
    cache_weight: float | None = None
    """Put a continuous cache on the stream: its share, lambda (Grave et al. 2016)."""
    cache_theta: float | None = None
    """Sharpness of the cache's preference for similar states."""
    cache_window: int | None = None
    """Latest states that the cache holds."""
    protocol: tuple[SpanProtocol, ...] = ()
    """Protocols of unlabelled F1, each beside trivial trees; without it, those that are usual for the system."""
    on_error: Literal["raise", "skip"] = "raise"
    """skip: leave bad sentences out, report them at the end, exit with code 3."""
    summary: str = ""
    """File to write the main metrics into, one row for each split or file: .tsv or .json by its name."""
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
    json: bool = False
    """Write the metrics as JSON, unrounded."""


def main(arguments: list[str]) -> int:
    """Run the subcommand."""
    options = parse(Arguments, "treelm evaluate", arguments)
    if bool(options.gold) != bool(options.predicted) or bool(options.run) == bool(options.gold):
        raise InputError("cannot tell what to evaluate", remedy="give RUN, or --gold FILE --predicted FILE")
    return _evaluate_files(options) if options.gold else _evaluate_run(options)


def _evaluate_files(options: Arguments) -> int:
    names = [one.name for one in fields(Arguments) if one.name not in _OF_FILES]
    refuse_lost(options, names, "with --gold", remedy="leave it out: it is for a run")
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
    from treelm.evaluation.report import as_table, check_suffix, write_summary
    from treelm.evaluation.span_protocols import find_protocol
    from treelm.io.terminal import stdout_console
    from treelm.models import system_class
    from treelm.training.run_folder import recipe_of_model

    if options.summary:
        check_suffix(Path(options.summary))
    _check_choices(options)
    for file in options.data:
        if not Path(file).exists():
            raise InputError("no such file", where=file, remedy="check the path")
    recipe = _with_settings(recipe_of_model(options.run), options)
    _check_stream_options(recipe, options)
    _check_outputs(recipe, options)
    note_lost_widths(options.run, system_class(recipe.model.system), options)
    skipped: list[InputError] = []
    with progress_bar("evaluating", None) as advance:
        evaluations = evaluate_run(
            Path(options.run),
            recipe,
            files=options.data,
            format=options.format,
            skipped=skipped if options.on_error == "skip" else None,
            protocols=[find_protocol(name) for name in options.protocol] or None,
            trees_for=next(iter(_asks_for_trees(options)), ""),
            fixed_rows=options.stream_rows is not None,
            processes=options.processes,
            cluster=options.cluster,
            device=options.device,
            on_sentence=advance,
        )
    if options.trees:
        _write_trees(Path(options.trees), evaluations)
    results = [one.result for one in evaluations]
    if options.summary:
        write_summary(results, Path(options.summary))
        note(f"wrote {options.summary}")
    if options.json:
        print_json([result.to_json() for result in results])
    else:
        stdout_console().print(as_table(results, title=f"{options.run}: {results[0].system}"))
    return report_skipped(skipped)


def _with_settings(recipe: Recipe, options: Arguments) -> Recipe:
    names = ("max_sentences", "tree_builder", "stream_rows", "cache_weight", "cache_theta", "cache_window")
    given: dict[str, Any] = {name: value for name in names if (value := getattr(options, name)) is not None}
    given["stream"] = _stream(options, recipe.evaluation.stream)
    if options.split:
        given["splits"] = options.split
    data = replace(recipe.data, preprocess=options.preprocess) if options.preprocess else recipe.data
    search, evaluation = options.changed(recipe.search), replace(recipe.evaluation, **given)
    return replace(recipe, data=data, search=search, evaluation=evaluation)


def _asks_for_trees(options: Arguments) -> list[str]:
    """The given options that mean nothing without the trees of sentences."""
    given = {"--protocol": options.protocol, "--trees": options.trees, "--tree-builder": options.tree_builder}
    return [name for name, value in given.items() if value]


def _stream(options: Arguments, usual: Stream) -> Stream:
    """Choice of evaluating the stream: what was asked for, else as in the recipe."""
    if options.no_stream:
        return "no"
    if options.stream_only:
        return "only"
    if options.stream or (usual == "only" and (options.no_stream_only or _asks_for_trees(options))):
        return "beside"
    return usual


def _check_choices(options: Arguments) -> None:
    """Refuse options that contradict one another, and those without effect."""
    against = {
        "--no-stream": ("--stream" if options.stream else "", "--stream-only" if options.stream_only else ""),
        "--stream-only": ("--no-stream-only" if options.no_stream_only else "", *_asks_for_trees(options)),
    }
    given = {"--no-stream": options.no_stream, "--stream-only": options.stream_only}
    for name, others in against.items():
        for other in filter(None, others if given[name] else ()):
            raise InputError(f"{name} with {other}", remedy="leave one of them out")
    refuse_lost(options, ("sentences", "params"), "without --gold", remedy="leave it out: it is for two bracket files")
    if options.data:
        refuse_lost(options, ("split",), "with --data", remedy="leave one of them out")
    else:
        refuse_lost(options, ("format",), "without --data", remedy="add --data FILE, or leave it out")


def _check_stream_options(recipe: Recipe, options: Arguments) -> None:
    """Refuse what would change no metric: options of streams where none is read."""
    if recipe.evaluation.stream != "no":
        return
    names = ("stream_rows", "cache_weight", "cache_theta", "cache_window")
    if options.no_stream:
        refuse_lost(options, names, "with --no-stream", remedy="leave one of them out")
    refuse_lost(options, names, "without a stream", remedy="add --stream or --stream-only")


def _check_outputs(recipe: Recipe, options: Arguments) -> None:
    """Refuse to write over what is to be evaluated."""
    trees = [
        path
        for name in (options.data or recipe.evaluation.splits if options.trees else ())
        for path in _tree_files(Path(options.trees), name).values()
    ]
    if len(set(trees)) < len(trees):
        raise InputError("two files of one name, whose trees would share a file", remedy="rename one")
    if options.trees and Path(options.trees).exists() and not Path(options.trees).is_dir():
        raise InputError("not a folder", where=options.trees, remedy="give the name of a folder")
    if options.summary:
        check_output_path(options.summary)
    own = (recipe.data.train, recipe.data.dev, recipe.data.test)
    check_not_input([options.summary, *trees], options.data or filter(None, own))


def _tree_files(folder: Path, split: str) -> dict[str, Path]:
    """The files that the trees of a split or file are written into."""
    return {kind: folder / f"{Path(split).name}.{kind}.ptb" for kind in ("gold", "predicted")}


def _write_trees(folder: Path, evaluations: list[Evaluation]) -> None:
    from treelm.trees.brackets import format_tree

    folder.mkdir(parents=True, exist_ok=True)
    for evaluation in evaluations:
        paths = _tree_files(folder, evaluation.result.split)
        gold = [format_tree(one.tree, one.tags) for one in evaluation.sentences if one.tree is not None]
        predicted = [format_tree(one.tree) for one in evaluation.analyses if one.tree is not None]
        for kind, trees in (("gold", gold), ("predicted", predicted)):
            if not trees:  # the notes say why
                continue
            with open_output(str(paths[kind])) as out:
                out.write("\n".join(trees) + "\n")
            note(f"wrote {paths[kind]}")

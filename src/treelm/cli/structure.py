"""``treelm structure``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Literal

from treelm.cli.files import report_skipped, skip_list
from treelm.cli.options import ModelOptions, Runs, TableOptions
from treelm.corpora.options import FileFormat
from treelm.corpora.sentence import Preprocessing, Sentence
from treelm.errors import InputError, check_positive
from treelm.evaluation.comparison.settings import ProtocolName
from treelm.io.terminal import log, progress_bar
from treelm.models.capabilities import Grammar, require

if TYPE_CHECKING:
    from treelm.evaluation.structure import LearnedTrees


@dataclass(frozen=True, kw_only=True)
class Arguments(ModelOptions, TableOptions):
    """What trees runs have learned: F1 by label and length, agreement of seeds, distances against heights.

    Runs of one system with one config are seeds of it: their mean is shown, and how far their trees agree. Trees from
    distances are built by both builders and compared with trees that both build from random distances.

    Example: treelm structure runs/prpn-1 runs/prpn-2 runs/prpn-3 --split dev
    Example: treelm structure runs/npcfg --split dev --rules 20
    Example: treelm structure runs/on-lstm-* --data treebank.ptb --preprocess prpn --protocol wsj10 wsj40
    """

    needs: ClassVar = {"format": "data"}
    excludes: ClassVar = {"split": "data", "rules": "json"}

    runs: Runs
    """Folders of trained models, or names of models that come with the package."""
    split: Literal["train", "dev", "test"] = "dev"
    """Split of the first run's own corpus."""
    data: str = ""
    """A treebank file instead."""
    format: FileFormat = "auto"
    """Format of the file of --data. auto: by its name."""
    on_error: Literal["raise", "skip"] = "raise"
    """skip: leave bad sentences out, report them at the end, exit with code 3."""
    preprocess: Preprocessing | None = None
    """Change the words of the data before they are read, as data.preprocess does; without it, as in the first run's
    recipe."""
    max_sentences: int | None = None
    """Only so many sentences, the first ones."""
    protocol: tuple[ProtocolName, ...] = ("wsj10", "wsj40")
    """Protocols of unlabelled F1."""
    draws: int = 5
    """Random trees of each kind to compare with."""
    rules: int | None = None
    """Number of rules of induced grammars to list, the most used ones in the most probable trees of the sentences."""


def main(options: Arguments) -> int:
    """Run the subcommand."""
    from treelm.evaluation.comparison.compare import row_names
    from treelm.evaluation.span_protocols import PROTOCOLS
    from treelm.evaluation.structure import analyse_structure
    from treelm.evaluation.trivial_baselines import NUM_TRIVIAL
    from treelm.figures.tables import rules_table, structure_tables
    from treelm.models.persistence.shipped import find_run
    from treelm.models.persistence.storage import read_system

    row_names([find_run(run) for run in options.runs])  # refuses the same run twice: it would be two seeds
    check_positive(rules=options.rules, draws=options.draws, max_sentences=options.max_sentences)
    for run in options.runs if options.rules else ():
        if not issubclass(system := read_system(find_run(run)), Grammar):
            remedy = "take a run of an induced grammar"
            raise InputError(f"{system.system} has no rules to list", where=run, remedy=remedy)
    skipped = skip_list(options)
    sentences = _read(options, skipped)
    systems = _systems(options, sentences)
    num_rows = len(options.protocol) * (len(systems) + NUM_TRIVIAL)
    with progress_bar("comparing trees", num_rows, unit="rows") as advance:
        results = [
            analyse_structure(sentences, systems, PROTOCOLS[name], num_draws=options.draws, on_row=advance)
            for name in options.protocol
        ]
    tables = [table for result in results for table in structure_tables(result)]
    for run in options.runs if options.rules else ():
        rules = require(options.load(run), Grammar).used_rules([sentence.words for sentence in sentences])
        tables.append(rules_table(run, rules[: options.rules]))
    options.show([result.to_json() for result in results], *tables)
    return report_skipped(skipped)


def _read(options: Arguments, skipped: list[InputError] | None) -> list[Sentence]:
    from treelm.corpora.data_config import locate_split
    from treelm.corpora.readers import read_sentences
    from treelm.training.run_folder import load_run_recipe

    data = load_run_recipe(options.runs[0]).data
    if options.preprocess:
        data = replace(data, preprocess=options.preprocess)
    of_file = options.format if options.data else None
    path, how = locate_split(data, options.data or options.split, of_file)
    return list(islice(read_sentences(path, how, skipped=skipped), options.max_sentences))


def _systems(options: Arguments, sentences: list[Sentence]) -> list[LearnedTrees]:
    """The trees of all runs, those of one system and config together."""
    from treelm.evaluation.structure import learned_trees, together
    from treelm.inference.loading import model_hash

    words = [sentence.words for sentence in sentences]
    found: dict[str, list[LearnedTrees]] = {}
    configs: dict[str, list[object]] = {}
    hashes: dict[str, str] = {}
    for run in options.runs:
        other = hashes.setdefault(model_hash(run), run)
        if other != run:
            raise InputError(f"{run} is the same model as {other}", remedy="give seeds, each once")
    for run in options.runs:
        lm = options.load(run)
        known = configs.setdefault(lm.system, [])
        if lm.config not in known:
            known.append(lm.config)
        number = known.index(lm.config)
        suffix = f", config {number + 1}" if number else ""
        with progress_bar(f"{run}: parsing", len(words)) as advance:
            for trees in learned_trees(lm, words, on_sentence=advance):
                found.setdefault(f"{trees.name}{suffix}", []).append(trees)
        log(f"{run}: {lm.system}{suffix}")
    return [together(name, parts) for name, parts in found.items()]

"""What others may rely on, as lines of text: flags, exports, columns and keys."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import pkgutil
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from tests.legacy.make import HERE as RUNS

HERE = Path(__file__).parent
TREES = "(S (NP (D The) (N city)) (VP (V was) (ADJP (J old))) (. .))\n(S (NP (PRP I)) (VP (V think)) (. .))\n"
PAIRS = '{"sentence_good": "I think .", "sentence_bad": "Think I .", "UID": "x", "field": "y"}\n'
SUITE = (
    '{"meta": {"name": "x", "metric": "sum"}, "predictions": [{"formula": "(1;%a%) < (1;%b%)"}], "items": '
    '[{"item_number": 1, "conditions": [{"condition_name": "a", "regions": [{"region_number": 1, "content": "I"}]}, '
    '{"condition_name": "b", "regions": [{"region_number": 1, "content": "was"}]}]}]}'
)
BY_NAME = (
    "unknown_labels",
    "groups",
    "suites",
    "circuits",
    "circuits_without_unknown",
    "references",
    "tensors",
    "optimizer",
    "labels",
    "recall_by_label",
    "f1_by_span_length",
    "f1_by_sentence_length",
    "distance_by_height",
)
"""Objects whose keys are names of the data, not of the format."""
MODULES = (
    "treelm",
    "treelm.errors",
    "treelm.corpora.batches",
    "treelm.corpora.data_config",
    "treelm.corpora.encoding",
    "treelm.corpora.readers",
    "treelm.corpora.vocabularies",
    "treelm.corpora.word_vocabulary",
    "treelm.evaluation.audit",
    "treelm.models.perplexity",
    "treelm.models",
    "treelm.models.base",
    "treelm.models.capabilities",
    "treelm.models.persistence.storage",
    "treelm.models.search.config",
    "treelm.training.config",
    "treelm.training.prepare",
    "treelm.training.recipe",
    "treelm.training.trainer",
    "treelm.trees.brackets",
    "treelm.trees.distances",
    "treelm.trees.transforms",
    "treelm.trees.tree",
)
"""Modules that README and docs use, or that a caller of those needs."""


def flags() -> Iterator[str]:
    """Every subcommand, and its arguments with type and default, from what the parsers are made of."""
    from treelm.cli import NESTED, SUBCOMMANDS

    modules = {**{subcommand: subcommand.replace("-", "_") for subcommand in SUBCOMMANDS}, **NESTED}
    unnamed = set(_modules_with_arguments()) - set(modules.values())
    assert not unnamed, f"no subcommand of SUBCOMMANDS or NESTED in treelm.cli: {unnamed}"
    for subcommand in sorted(modules, key=lambda subcommand: list(SUBCOMMANDS).index(subcommand.split()[0])):
        yield subcommand
        for arguments in _arguments_of(import_module(f"treelm.cli.{modules[subcommand]}")):
            yield from sorted(_flags_of(subcommand, arguments))


def _modules_with_arguments() -> Iterator[str]:
    import treelm.cli

    for found in pkgutil.iter_modules(treelm.cli.__path__):
        if _arguments_of(import_module(f"treelm.cli.{found.name}")):
            yield found.name


def _arguments_of(module: types.ModuleType) -> list[Any]:
    """What a module's parsers are made of."""
    named = (getattr(module, name) for name in sorted(vars(module)) if name.endswith("Arguments"))
    return [one for one in named if dataclasses.is_dataclass(one) and one.__module__ == module.__name__]


def _flags_of(subcommand: str, arguments: Any) -> Iterator[str]:
    from treelm.cli.arguments import arguments_of

    for field, annotation, place, (option, *_) in arguments_of(arguments):
        name = field.name.upper() if place else option
        default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
        yield f"{subcommand} {name} {_type(annotation)}{default}"


def _type(annotation: Any) -> str:
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "{" + ",".join(map(str, members)) + "}"
    if origin in (Union, types.UnionType):
        return "|".join(_type(member) for member in members if member is not type(None)) + "?"
    if origin is tuple:
        return f"{_type(members[0])}..."
    return getattr(annotation, "__name__", str(annotation))


def exports() -> Iterator[str]:
    """Public names of the package and of the documented modules, with parameters, fields and methods."""
    for name in MODULES:
        module = import_module(name)
        names = getattr(module, "__all__", None) or [
            key
            for key, value in vars(module).items()
            if not key.startswith("_")
            and (
                getattr(value, "__module__", None) == name
                or (key.isupper() and not inspect.ismodule(value) and not inspect.isclass(value))
            )
        ]
        for key in sorted(names):
            yield from _export(f"{name}.{key}", getattr(module, key))


def _export(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"{name} class"
        if dataclasses.is_dataclass(value):
            yield from (f"{name}.{field.name} field" for field in dataclasses.fields(value))
        for key, member in sorted(vars(value).items()):
            if not key.startswith("_") and (callable(member) or isinstance(member, (property, classmethod))):
                yield f"{name}.{key}{_parameters(getattr(value, key))}"
    elif callable(value):
        yield f"{name}{_parameters(value)}"
    else:
        yield f"{name} constant"


def _parameters(value: Any) -> str:
    """Names of parameters, ``=`` where one has a default, ``*`` before those that go by name."""
    if not callable(value) or inspect.isclass(value):
        return ""
    parts: list[str] = []
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        parts.append(f"{star}{parameter.name}{'=' * (parameter.default is not parameter.empty)}")
    return f"({', '.join(parts)})"


def columns(folder: Path) -> Iterator[str]:
    """Columns of every table that is written or read."""
    from treelm.evaluation.minimal_pairs import BLIMP_GROUPS, MARVIN_LINZEN
    from treelm.evaluation.syntaxgym.results import NEEDED

    (folder / "in.ptb").write_text(TREES)
    for run in ("lstm", "rnng", "som"):
        header = _call(folder, "surprisal", run, "in.ptb").split("\n")[0]
        yield from (f"surprisal {run} {name}" for name in header.split("\t"))
        yield from (f"surprisal {run} --columns {name}" for name in _further_columns(run))
        stream = ("--stream", "beside", "--stream-rows", "1") if run == "lstm" else ()
        _call(folder, "evaluate", run, "--data", "in.ptb", "--summary", "out.tsv", "--json", *stream)
        yield from (
            f"evaluate {run} --summary {name}" for name in (folder / "out.tsv").read_text().split("\n")[0].split("\t")
        )
    yield from (f"syntaxgym --surprisals {name}" for name in NEEDED)
    yield from (f"pairs {name}" for name in (*MARVIN_LINZEN, *BLIMP_GROUPS))
    first = _call(folder, "data", "list").split("\n")[0]
    yield f"data list {first.count(chr(9)) + 1} columns"


def _further_columns(run: str) -> list[str]:
    import treelm

    (sentence,) = treelm.load(RUNS / run).surprisal(["I think ."])
    return sorted(sentence.words[0].columns)


def keys(folder: Path) -> Iterator[str]:
    """Keys of every JSON that is written, with the types of their values."""
    (folder / "in.ptb").write_text(TREES)
    (folder / "pairs.jsonl").write_text(PAIRS)
    (folder / "suite.json").write_text(SUITE)
    for run in ("lstm", "rnng", "som"):
        yield from _paths(f"evaluate {run}", _call(folder, "evaluate", run, "--data", "in.ptb", "--json"))
    yield from _paths("pairs", _call(folder, "pairs", "lstm", "pairs.jsonl", "--json"))
    yield from _paths("structure", _call(folder, "structure", "prpn", "--data", "in.ptb", "--json"))
    yield from _paths("syntaxgym", _call(folder, "syntaxgym", "lstm", "--suites", "suite.json", "--json"))
    yield from _paths("audit", _call(folder, "audit", "ngram", "in.ptb", "--json"))
    _call(folder, "surprisal", "rnng", "in.ptb", "--output", "out.tsv")
    yield from _paths("surprisal FILE.json", (folder / "out.tsv.json").read_text())
    yield from _keys_of_runs(folder)


def _keys_of_runs(folder: Path) -> Iterator[str]:
    from tests.legacy.make import recipe_values
    from treelm.training.recipe import build_recipe
    from treelm.training.trainer import train

    for name in ("lstm", "rnng", "ngram"):
        values = recipe_values(name)
        if values["training"]:
            values["training"] |= {"max_steps": 2, "log_every_steps": 1}
        run = folder / f"run-{name}"
        train(build_recipe(values, where=name), run, quiet=True)
        yield from _paths(f"config.json {name}", (run / "config.json").read_text())
        yield from _paths("vocabulary.json", (run / "vocabulary.json").read_text())
        for line in (run / "metrics.jsonl").read_text().splitlines():
            yield from _paths(f"metrics.jsonl {name} {json.loads(line)['kind']}", line)
        for state in sorted((run / "checkpoints").glob("*/state.json"))[:1]:
            yield from (line for line in _paths(f"state.json {name}", state.read_text()) if ".random." not in line)


def _call(folder: Path, subcommand: str, *arguments: str) -> str:
    """What a subcommand prints; names of runs and of files in the folder become paths."""
    from treelm.cli import run

    places = [
        str(RUNS / one) if (RUNS / one / "config.json").exists() else str(folder / one) if "." in one else one
        for one in arguments
    ]
    out = io.StringIO()
    out.reconfigure = lambda **options: None  # type: ignore[attr-defined]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
        code = run([subcommand, *places])
    assert code == 0, err.getvalue()
    return out.getvalue()


def _paths(name: str, text: str) -> Iterator[str]:
    yield from sorted({f"{name} {path} {kind}" for path, kind in _walk("", json.loads(text))})


def _walk(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        by_name = path.rpartition(".")[2] in BY_NAME
        for key, member in value.items():
            yield from _walk(f"{path}.{'*' if by_name else key}", member)
    elif isinstance(value, list):
        for member in value:
            yield from _walk(f"{path}[]", member)
    else:
        yield path, "number" if type(value) in (int, float) else type(value).__name__


SNAPSHOTS: dict[str, Callable[[Path], Iterator[str]]] = {
    "cli.txt": lambda folder: flags(),
    "python.txt": lambda folder: exports(),
    "columns.txt": columns,
    "json.txt": keys,
}


def collect(name: str, folder: Path) -> str:
    """The text of a snapshot; the folder is for files that are made on the way."""
    return "".join(f"{line}\n" for line in dict.fromkeys(SNAPSHOTS[name](folder)))

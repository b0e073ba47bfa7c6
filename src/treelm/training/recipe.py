"""Recipes: everything that a run follows from, in one TOML file with a section for each part."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import tomli_w
from pydantic import Field

from treelm.configs import NONE as _NONE
from treelm.configs import Size, Weight, configuration, from_plain, to_toml_values
from treelm.corpora.batches import BatchesConfig
from treelm.corpora.catalog import is_corpus_name
from treelm.corpora.data_config import DataConfig
from treelm.corpora.vocabularies import VocabularyConfig
from treelm.errors import InputError, choose_from
from treelm.io.atomic import write_atomically
from treelm.io.files import read_bytes
from treelm.models import FOREIGN, SYSTEMS, config_class, system_class
from treelm.models.bounds import BoundedConfig
from treelm.models.capabilities import Counted
from treelm.models.persistence.shipped import is_shipped_name
from treelm.models.search.config import SearchConfig, with_search_section
from treelm.training.config import TrainingConfig

if TYPE_CHECKING:
    import pandas as pd

FILE_NAME = "recipe.toml"
SECTIONS = ("data", "vocabulary", "batches", "model", "training", "search", "evaluation")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A system with its own config. In TOML, the fields of ``config`` stand directly in ``[model]``."""

    system: str  # name in ``treelm.models.SYSTEMS``
    config: Any  # the system's config dataclass
    bounds_margin: int | None = None
    """Take the bounds of a ``BoundedConfig`` from the training trees and add this; None: they are given."""

    @property
    def is_estimated(self) -> bool:
        """True for a system that is estimated in one go, without steps that could be resumed."""
        return issubclass(system_class(self.system), Counted)

    @property
    def bounds(self) -> tuple[str, ...]:
        """Names of the fields that are bounds."""
        return self.config.bounds if isinstance(self.config, BoundedConfig) else ()


@configuration
class EvaluationConfig:
    """The config of evaluating a finished run."""

    splits: tuple[Literal["train", "dev", "test"], ...] = ("dev", "test")
    """Splits to evaluate; left out, those of dev and test that there are data for."""
    tree_builder: Literal["unbiased", "biased", "mbr", "viterbi"] | None = None
    """Way of building trees, from distances (unbiased, biased) or by an induced grammar (mbr, viterbi), for systems
    that have a choice; None: the first of each."""
    hard_gates: bool = False
    """Compare a PRPN's distances at an infinite temperature (Appendix D of its paper), in its perplexity too."""
    max_sentences: Size | None = None
    """Evaluate only so many sentences of each split, the first ones."""
    stream: Literal["no", "beside", "only"] = "no"
    """Perplexity of the whole split in a row, the hidden state kept, beside the metrics of sentences or instead; for
    models that read streams or documents. Whether ends are in the stream is ``sentence_ends`` of ``[training]``."""
    stream_rows: Size = 10
    """Rows in which it is read; each begins from the zero state. 1 reads the text as it stands."""
    cache_weight: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of a continuous cache (lambda of Grave et al. 2016) in the perplexity of the stream; 0: no cache."""
    cache_theta: Weight = 1.0
    """Sharpness of the cache's preference for similar states."""
    cache_window: Size = 500
    """Latest states that the cache holds."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A run, before it is made."""

    data: DataConfig
    model: ModelConfig
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    batches: BatchesConfig = field(default_factory=BatchesConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)


_CONFIGS = {
    "data": DataConfig,
    "vocabulary": VocabularyConfig,
    "batches": BatchesConfig,
    "training": TrainingConfig,
    "search": SearchConfig,
    "evaluation": EvaluationConfig,
}


def recipe_names() -> list[str]:
    """Recipes that come with the package."""
    names = [item.name for item in files("treelm.recipes").iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


class PackagedRecipe(NamedTuple):
    """What a packaged recipe trains, as it says itself: ``purpose`` is the first sentence of its comment."""

    name: str
    system: str
    corpus: str  # name of the corpus; "yours" where the data are not in a package: ``data.corpus=FOLDER``
    time: str  # how long it trains, on one core unless it says otherwise; empty where that is not known
    purpose: str


def packaged_recipes() -> list[PackagedRecipe]:
    """The recipes that come with the package, those first whose corpus can be had by name."""
    found = []
    for name in recipe_names():
        text, where, _ = _find(name)
        values = parse_toml(text, where)
        lines = takewhile(lambda line: line.startswith("#"), text.splitlines())
        comment = " ".join(line.removeprefix("#").strip() for line in lines)
        purpose, *more = (one.removesuffix(".") for one in re.split(r"(?<=\.)\s(?=[A-Z])", comment))
        time = next((one.removeprefix("Time: ") for one in more if one.startswith("Time: ")), "")
        corpus = values["data"].get("corpus", "")
        corpus = corpus if is_corpus_name(corpus) else "yours"
        found.append(PackagedRecipe(name, values["model"]["system"], corpus, time, purpose))
    return sorted(found, key=lambda one: one.corpus == "yours")


def recipes() -> pd.DataFrame:
    """The recipes that can be trained by name: name, system, corpus, time and purpose of each."""
    import pandas as pd

    return pd.DataFrame(packaged_recipes())


def recipe_text(name: str) -> str:
    """The file of a packaged recipe. Raises ``InputError`` for another name."""
    if name not in recipe_names():
        raise InputError(f"no recipe {name!r} in the package", remedy=choose_from(name, recipe_names()))
    return _find(name)[0]


AnyRecipe = str | Path | Mapping[str, Any] | Recipe  # A recipe, or what ``load_recipe`` makes one of
Settings = Iterable[str] | Mapping[str, Mapping[str, Any]]
"""Changes of a recipe: texts such as ``training.epochs=3``, or sections such as ``{"training": {"epochs": 3}}``."""


def load_recipe(recipe: AnyRecipe, settings: Settings = ()) -> Recipe:
    """Read a recipe: a packaged one by name, a file by path, or a dictionary of sections; and change it.

    Values in texts are as in TOML; plain words need no quotes, and no value, as in ``data.corpus=``, is "none", as is
    None in a section: it unsets an optional field. Paths in a file are relative to it, those in settings, dictionaries
    and packaged recipes to the working directory. Raises ``InputError`` that names file, section, field and remedy; for
    a syntax error file and line.

    >>> load_recipe("demo", {"training": {"epochs": 3}}) == load_recipe("demo", ["training.epochs=3"])
    True
    """
    changes = read_settings(settings)
    if isinstance(recipe, Recipe) and not changes:
        return recipe
    if isinstance(recipe, (Mapping, Recipe)):
        plain = _by_section(recipe) if isinstance(recipe, Mapping) else tomllib.loads(encode_recipe(recipe).decode())
        values, where, folder = plain, "the recipe", Path()
    else:
        text, where, folder = _find(recipe)
        values = parse_toml(text, where)
    values = with_search_section(values)
    for section, content in changes.items():
        if isinstance(values.setdefault(section, {}), dict):  # what is no section is refused below
            values[section] |= {name: _absolute(section, name, value, Path()) for name, value in content.items()}
    return build_recipe(values, where=where, folder=folder)


def read_settings(settings: Settings) -> dict[str, dict[str, Any]]:
    """Settings by section. Raises ``InputError`` for a text that cannot be split, and for what is no section."""
    if isinstance(settings, Mapping):
        return _by_section(settings)
    found: dict[str, dict[str, Any]] = {}
    for section, name, value in map(parse_override, settings):
        found.setdefault(section, {})[name] = value
    return found


def _by_section(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sections as a file would give them: paths are texts, None is "none"."""

    def plain(value: Any) -> Any:
        return _NONE if value is None else str(value) if isinstance(value, Path) else value

    for section, content in values.items():
        if section not in SECTIONS:
            raise InputError(f"{section!r} is not a section of recipes", remedy=choose_from(section, SECTIONS))
        if not isinstance(content, Mapping):
            remedy = f'give a dictionary, such as {section} = {{"FIELD": VALUE}}'
            raise InputError(f"{section} = {content!r}", remedy=remedy)
    return {section: {name: plain(value) for name, value in own.items()} for section, own in values.items()}


def build_recipe(values: Mapping[str, Any], *, where: str, folder: Path = Path()) -> Recipe:
    """A recipe from plain values, section by section; paths are relative to ``folder``.

    Raises ``InputError`` for an unknown section or field and for a value that is not allowed.
    """
    parts: dict[str, Any] = {}
    for section, content in values.items():
        if section not in SECTIONS or not isinstance(content, dict):
            remedy = f"use the sections {', '.join(f'[{name}]' for name in SECTIONS)}, each on a line of its own"
            raise InputError(f"{section!r} is not a section", where=where, remedy=remedy)
        given = {name: value for name, value in content.items() if value not in _GONE.get((section, name), ())}
        parts[section] = {name: _absolute(section, name, value, folder) for name, value in given.items()}
    for section, kind in _CONFIGS.items():
        parts[section] = from_plain(kind, parts.get(section, {}), where=f"{where} [{section}]")
    return Recipe(**{**parts, "model": _build_model(parts.get("model", {}), where=f"{where} [model]")})


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe so that ``load_recipe`` reads the same one."""
    write_atomically(path, encode_recipe(recipe))


def encode_recipe(recipe: Recipe) -> bytes:
    """A recipe as the content of its file."""
    values = {section: to_toml_values(getattr(recipe, section)) for section in SECTIONS if section != "model"}
    usual = to_toml_values(SearchConfig())  # only what is asked for is recorded: what is usual may get better
    values["search"] = {name: value for name, value in values["search"].items() if value != usual.get(name)}
    model, margin = to_toml_values(recipe.model.config), recipe.model.bounds_margin
    if margin is not None:
        model = {name: value for name, value in model.items() if name not in recipe.model.bounds}
        model["bounds_margin"] = margin
    values["model"] = {"system": recipe.model.system, **model}
    return tomli_w.dumps({section: values[section] for section in SECTIONS}).encode()


def parse_override(text: str) -> tuple[str, str, Any]:
    """Split ``section.field=value`` into section, field and value.

    Raises ``InputError`` if it cannot be split so.

    >>> parse_override("training.epochs=3"), parse_override("model.system=rnng")
    (('training', 'epochs', 3), ('model', 'system', 'rnng'))
    >>> parse_override("data.corpus=")
    ('data', 'corpus', 'none')
    """
    path, equals, value = text.partition("=")
    section, dot, name = path.strip().partition(".")
    if not (equals and dot and name) or section not in SECTIONS:
        remedy = f"write SECTION.FIELD=VALUE, the section one of {', '.join(SECTIONS)}"
        raise InputError(f"cannot read the setting {text!r}", remedy=remedy)
    try:
        return section, name, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return section, name, value.strip() or _NONE


DEFAULT_MARGIN = 10


def _build_model(values: Mapping[str, Any], *, where: str) -> ModelConfig:
    values = dict(values)
    system, margin = values.pop("system", None), values.pop("bounds_margin", _NONE)
    if system is None:
        raise InputError("field 'system' is missing", where=where, remedy='add a line `system = "rnng"`')
    network = system_class(system, where=where)
    if system in FOREIGN:
        found = f"the system {system!r}, which is read from other programs' folders and not trained here"
        raise InputError(found, where=where, remedy=f"choose one of {', '.join(sorted(SYSTEMS))}")
    model = ModelConfig(system=system, config=from_plain(config_class(network), values, where=where))
    given = [name for name in model.bounds if name in values]
    if given and (margin != _NONE or len(given) < len(model.bounds)):
        found = f"{', '.join(given)} given" + ("" if margin == _NONE else " and bounds_margin")
        both = "both " if len(model.bounds) > 1 else ""
        remedy = f"give {both}{' and '.join(model.bounds)}, or only bounds_margin"
        raise InputError(found, where=where, remedy=remedy)
    if given or not model.bounds:
        return model
    margin = DEFAULT_MARGIN if margin == _NONE else margin
    if type(margin) is not int or margin < 0:
        raise InputError(f"bounds_margin = {margin!r}", where=where, remedy="give a whole number of at least 0")
    return replace(model, bounds_margin=margin)


_GONE = {("data", "unknown_labels"): ("raise", "drop")}
"""Fields that older recipes may set, and the values by which nothing changes."""
_PATHS = {"data": ("corpus", "train", "dev", "test"), "vocabulary": ("file",), "training": ("start_from",)}


def _absolute(section: str, name: str, value: Any, folder: Path) -> Any:
    """The value of a field; relative paths are made absolute, so that the recipe that is kept in a run finds its files.

    Names of corpora and models stay as they are, but a folder goes before a model of its name.
    """
    if name not in _PATHS.get(section, ()) or not isinstance(value, str) or value in ("", _NONE) or "\0" in value:
        return value  # what is not a path is refused with its field
    is_name = name == "corpus" and is_corpus_name(value)
    is_name |= name == "start_from" and is_shipped_name(value) and not (folder / value).is_dir()
    return value if is_name else os.path.realpath(folder / value)  # links in a circle are reported later


def _find(name_or_path: str | Path) -> tuple[str, str, Path]:
    """Text, name for messages, and folder of a recipe; a packaged one's is the working directory."""
    if not isinstance(name_or_path, (str, Path)):
        found = f"{type(name_or_path).__name__} where a recipe was expected"
        raise InputError(found, remedy="give a name, a path or a dictionary")
    path = Path(name_or_path)
    if str(name_or_path) in recipe_names():
        resource = files("treelm.recipes") / f"{name_or_path}.toml"
        return resource.read_text(encoding="utf-8"), f"{name_or_path}.toml", Path()
    remedy = choose_from(path.name.removesuffix(".toml"), recipe_names())
    if not path.exists():
        raise InputError("no such recipe, and no file", where=str(path), remedy=remedy)
    content = read_bytes(path, remedy=remedy)
    try:
        return content.decode("utf-8-sig"), str(path), path.parent
    except UnicodeDecodeError:
        raise InputError("not UTF-8", where=str(path), remedy="convert the file to UTF-8") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The values of a text in TOML; raises ``InputError`` with ``file:line`` for what is none."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError("not TOML (too many brackets inside one another)", where=where, remedy="remove them") from None
    except ValueError as error:  # bad TOML, or a number without end; at the end of the text it names no line
        line = re.search(r"at line (\d+)", str(error))
        place = f"{where}:{line[1] if line else text.count(chr(10)) + 1}"
        reason = str(error).partition(" (at ")[0]
        raise InputError(f"not TOML ({reason})", where=place, remedy="correct this line") from None

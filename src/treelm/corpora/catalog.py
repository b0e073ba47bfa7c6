"""Named corpora: the packaged treebank, those of data packages, and files that users name."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import platformdirs

from treelm.configs import configuration, from_plain
from treelm.corpora.data_packages import DATA_PACKAGES, package_of
from treelm.corpora.lines import SUFFIXES, Format
from treelm.errors import InputError, nearest
from treelm.io.files import PACKED_SUFFIXES, read_bytes

CATALOG_VARIABLE = "TREELM_CATALOG"
Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
PACKAGED = "gum-open"
_FORMATS: tuple[Format, ...] = get_args(Format)  # the first that a corpus has is the one to read by default
_PREFIXES = ("", "ptb.", "wiki.")  # of the files of Mikolov's Penn Treebank and of WikiText


@dataclass(frozen=True, kw_only=True)
class CorpusEntry:
    """A corpus of the catalogue. Each split has the same sentences in one or more formats."""

    name: str
    description: str = ""
    licence: str
    attribution: str = ""
    splits: Mapping[Split, Mapping[Format, Path]] = field(default_factory=dict)
    documents: Path | None = None
    """A table with a row for each document: its split, its size, what it is and under which licence."""
    how_made: str = ""  # what to do to have a split that the corpus lacks

    def locate(self, split: Split, format: Format | Literal["auto"] = "auto") -> tuple[Path, Format]:
        """The file of a split and its format (brackets before CoNLL-U before text).

        Raises ``InputError`` for a split that the corpus lacks.
        """
        formats = self.splits.get(split)
        if not formats:
            has = ", ".join(self.splits) or "nothing"
            remedy = self.how_made or f"it has {has}: name another file"
            raise InputError(f"corpus {self.name} has no {split} split", remedy=remedy)
        chosen = next(iter(formats)) if format == "auto" else format
        if chosen not in formats:
            found = f"{split} of {self.name} is not there as {chosen}"
            raise InputError(found, remedy=f'give format = "{next(iter(formats))}"')
        return formats[chosen], chosen


@configuration
class _File:
    path: str


@configuration
class _UserEntry:
    """A table of the user's catalogue."""

    licence: str
    description: str = ""
    attribution: str = ""
    train: dict[Format, _File] = field(default_factory=dict)
    dev: dict[Format, _File] = field(default_factory=dict)
    test: dict[Format, _File] = field(default_factory=dict)


def corpus_names() -> list[str]:
    """The names of corpora that are here: packaged ones, then those of the user's catalogue."""
    found = [here / name for one in DATA_PACKAGES if (here := one.folder) for name in (*one.corpora, *one.made_corpora)]
    packaged = [path.name for path in found if path.is_dir()]
    return list(dict.fromkeys([PACKAGED, *packaged, *_user_entries()]))


def is_corpus_name(text: str) -> bool:
    """Tell whether a text is the name of a corpus, also of one that is not here, and no path."""
    return package_of(text) is not None or text in corpus_names()


def corpus_entry(name: str) -> CorpusEntry:
    """A corpus by its name in the catalogue, or by the path of a folder with ``train.ptb.gz`` and the like.

    Raises ``InputError`` for an unknown name, and for a corpus of a distribution that is not installed, with the
    command that installs it.
    """
    if name == PACKAGED:
        folder = Path(str(files("treelm"))) / "data" / PACKAGED
        told = "English news, interviews, biographies, travel guides, academic texts, speeches, court hearings\n"
        told += "CC BY-SA 4.0 (the texts by document: see the attribution)\n"
        told += (folder / "LICENSE").read_text(encoding="utf-8")
        return _packaged_entry(PACKAGED, folder, told, "ATTRIBUTION.tsv")
    if name in (entries := _user_entries()):
        return _parse_entry(name, entries[name])
    if (package := package_of(name)) is not None:
        if package.folder is None:
            raise InputError(f"corpus {name!r} is not installed", remedy=package.install)
        how = f"make it as the README of packages/{package.distribution} says, and name its files in {user_catalog()}"
        if (package.folder / name).is_dir():
            told = (package.folder / name / "NOTICE").read_text(encoding="utf-8")
            return replace(_packaged_entry(name, package.folder / name, told, "documents.tsv.gz"), how_made=how)
        remedy = how if name in package.made_corpora else package.install
        raise InputError(f"corpus {name!r} is not shipped", remedy=remedy)
    if Path(name).is_dir():
        return _directory_entry(Path(name))
    names = corpus_names()
    listed = f"name a directory or one of {', '.join(names)} ({user_catalog()} can name more)"
    raise InputError(f"no corpus {name!r}", remedy=f"{nearest(name, names)}{listed}")


def show(name: str) -> str:
    """The content, makers and licence of a corpus, as text for people."""
    entry = corpus_entry(name)
    shown = [entry.name, *([f"  {entry.description}"] if entry.description else []), f"  licence: {entry.licence}"]
    for split, formats in entry.splits.items():
        shown.append(f"  {split}: {', '.join(f'{form} {path}' for form, path in formats.items())}")
    shown += ["", entry.attribution.rstrip()]
    if entry.documents is not None:
        shown += ["", f"Every document with its licence: {entry.documents}"]
    return "\n".join(shown).rstrip() + "\n"


def _packaged_entry(name: str, folder: Path, told: str, documents: str) -> CorpusEntry:
    """The entry of a corpus in a folder of a package.

    ``told`` has the description on its first line, the licence on the second, then the makers. ``documents`` is the
    name of the table of documents in the folder, which may be missing.
    """
    description, licence, notice = told.split("\n", 2)
    table = folder / documents
    return CorpusEntry(
        name=name,
        description=description,
        licence=licence,
        attribution=notice.strip(),
        splits=_find_splits(folder),
        documents=table if table.is_file() else None,
    )


def _directory_entry(directory: Path) -> CorpusEntry:
    splits = _find_splits(directory)
    if not splits:
        names = ", ".join(f"train{suffix}" for suffix in SUFFIXES)
        remedy = f"name them {names} (.gz and .xz too), dev, test"
        raise InputError("no corpus files", where=str(directory), remedy=remedy)
    return CorpusEntry(name=str(directory), licence="not stated", splits=splits)


def _find_splits(directory: Path) -> dict[Split, Mapping[Format, Path]]:
    """Files such as ``dev.txt``, ``ptb.valid.txt.gz`` or ``wiki.valid.tokens``, by split and format."""
    splits: dict[Split, Mapping[Format, Path]] = {}
    for split in SPLITS:
        formats: dict[Format, Path] = {}
        for format in _FORMATS:
            paths = [directory / name for name in _names(split, format) if (directory / name).exists()]
            if len(paths) > 1:
                found = f"{paths[1].name} and {paths[0].name} for the same split"
                raise InputError(found, where=str(directory), remedy="keep one, or give the paths themselves")
            if paths:
                formats[format] = paths[0]
        if formats:
            splits[split] = formats
    return splits


def _names(split: Split, format: Format) -> Iterator[str]:
    names = (split, "valid") if split == "dev" else (split,)
    own = (suffix for suffix, known in SUFFIXES.items() if known == format)
    suffixes = [f"{suffix}{packed}" for suffix in own for packed in ("", *PACKED_SUFFIXES)]
    return (f"{prefix}{name}{suffix}" for suffix in suffixes for prefix in _PREFIXES for name in names)


def user_catalog() -> Path:
    """The file in which users name corpora: ``TREELM_CATALOG``, else ``catalog.toml`` among the user's settings."""
    given = os.environ.get(CATALOG_VARIABLE)
    return Path(given).expanduser() if given else Path(platformdirs.user_config_dir("treelm")) / "catalog.toml"


def _user_entries() -> dict[str, Any]:
    path = user_catalog()
    if not path.exists():
        return {}
    content = read_bytes(path, remedy="give a file of TOML")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a catalogue ({error})", where=str(path), remedy="correct it; it is TOML") from error


def _parse_entry(name: str, table: Any) -> CorpusEntry:
    """Read ``[name]`` with ``licence`` and, per split, ``train.brackets = {path = "..."}``."""
    where = f"{user_catalog()} [{name}]"
    if not isinstance(table, dict):
        raise InputError("not a table", where=where, remedy='begin a corpus with its name: [name], licence = "..."')
    given, folder = from_plain(_UserEntry, table, where=where), user_catalog().parent
    splits: dict[Split, Mapping[Format, Path]] = {}
    for split in SPLITS:
        named: dict[Format, _File] = getattr(given, split)
        if named:
            paths = {one: os.path.expanduser(named[one].path) for one in _FORMATS if one in named}
            splits[split] = {one: folder / path for one, path in paths.items()}
    told, attribution = given.description, given.attribution
    return CorpusEntry(name=name, description=told, licence=given.licence, attribution=attribution, splits=splits)

"""The systems, one folder each, behind one interface."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from treelm import ListedPackage
from treelm.errors import InputError
from treelm.io.files import unpacked_name

if TYPE_CHECKING:
    from treelm.models.base import LanguageModel as LanguageModel

sys.modules[__name__].__class__ = ListedPackage
SYSTEMS: dict[str, str] = {
    "chart": "treelm.models.chart.network:ChartParser",
    "lstm": "treelm.models.lstm.network:LSTM",
    "on-lstm": "treelm.models.on_lstm.network:ONLSTM",
    "neural-pcfg": "treelm.models.pcfg.network:NeuralPCFG",
    "ngram": "treelm.models.ngram.network:NGram",
    "palm": "treelm.models.palm.network:PaLM",
    "pcfg": "treelm.models.pcfg.treebank:TreebankPCFG",
    "prpn": "treelm.models.prpn.network:PRPN",
    "pushdown": "treelm.models.pushdown.network:Pushdown",
    "rnng": "treelm.models.rnng.network:RNNG",
    "shift-reduce": "treelm.models.shift_reduce.network:ShiftReduce",
    "som": "treelm.models.som.network:SOM",
    "transformer": "treelm.models.transformer.network:Transformer",
    "transformer-grammar": "treelm.models.transformer_grammar.network:TransformerGrammar",
    "urnng": "treelm.models.rnng.unsupervised:UnsupervisedRNNG",
}
"""Name in recipes and run folders -> ``module:Class``, imported when it is first needed."""
FOREIGN: dict[str, str] = {"hf": "treelm.models.hf.network:CausalLM"}
"""Systems of other programs, read from these programs' folders and never trained: name -> ``module:Class``."""
FILES: dict[str, str] = {".arpa": "ngram"}
"""Endings of other programs' files that hold a model, packed or not -> the system that reads them."""


def system_of_file(path: Path) -> str | None:
    """The system that reads this file of another program; None of a file that holds no model.

    >>> system_of_file(Path("lm.arpa.gz"))
    'ngram'
    """
    return FILES.get(Path(unpacked_name(path.name)).suffix)


def system_class(name: str, *, where: str | None = None) -> type[LanguageModel]:
    """The network class of a system; raises ``InputError`` for a name that is in no table.

    >>> system_class("ngram").__name__
    'NGram'
    """
    known = {**SYSTEMS, **FOREIGN}
    if not isinstance(name, str) or name not in known:
        remedy = f"known systems are {', '.join(sorted(SYSTEMS))}; a newer treelm may know more"
        raise InputError(f"unknown system {name!r}", where=where, remedy=remedy)
    module, _, class_name = known[name].partition(":")
    found: type[LanguageModel] = getattr(import_module(module), class_name)
    return found


def config_class(system: type[LanguageModel]) -> type[Any]:
    """The config dataclass of a system, which its constructor's argument ``config`` is annotated with."""
    annotation: type[Any] = get_type_hints(system.__init__)["config"]
    return annotation

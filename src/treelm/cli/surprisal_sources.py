"""Models whose surprisals meet human data: runs, tables of other programs, and published models by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from treelm.cli.options import Runs, TableOptions, WorkerOptions, described, reference_names
from treelm.errors import InputError
from treelm.inference.settings import Context
from treelm.io.files import unpacked_name
from treelm.io.tables import TABLES
from treelm.io.terminal import log, progress_bar
from treelm.models.capabilities import DocumentContext, has, why_not

if TYPE_CHECKING:
    from treelm.evaluation.human.material import Material, Surprisals


@dataclass(frozen=True, kw_only=True)
class SourceOptions(WorkerOptions, TableOptions):
    """Options of scoring what people read."""

    runs: Runs = ()
    """Runs, or names of models that come with the package; tables of surprisals (FILE, or FILE:COLUMN, in bits, or in
    nats or hartleys if the column's name says so); names of published models."""
    references: tuple[str, ...] = ()
    """Published models beside them: names, all, or none; without it, the usual ones of the material."""
    punctuation: Literal["as-given", "summed", "left-out"] = "summed"
    """Of words such as "dog," and "don't", as in treelm surprisal: what the model reads, and which bits count."""
    as_written: bool = False
    """Leave quotation marks and dashes as they are. Without it, words are written as training text was."""
    batch_size: int = 16
    """Sentences computed together; changes no result."""

    def table_files(self) -> list[Path]:
        """The files among what stands where a run can."""
        return [path for path, _ in map(_table, self.runs) if path.is_file()]

    def sources(
        self,
        material: Material,
        published: Mapping[str, Surprisals],
        usual: Sequence[str],
        context: Context = "sentence",
    ) -> list[tuple[str, Callable[[], Surprisals]]]:
        """The name of each source with a function that reads or computes its surprisals, published models first.

        Something named on the command line is a table if there is such a file, then a published model unless there is a
        folder of that name, and else a run. Raises ``InputError`` for a name that is none of these.
        """
        from treelm.evaluation.human.material import read_surprisals, table_name
        from treelm.inference.loading import model_hash
        from treelm.inference.surprisal import BITS
        from treelm.models.persistence.shipped import find_run

        names = reference_names(self.references, published, usual)
        others: list[tuple[str, Callable[[], Surprisals]]] = []
        for source in self.runs:
            path, column = _table(source)
            if path.is_file():
                read = partial(read_surprisals, path, material, column=column or BITS)
                others.append((table_name(path, column), read))
            elif Path(unpacked_name(source.partition(":")[0])).suffix.lower() in TABLES:
                raise InputError("no such table", where=source, remedy="check the path")
            elif source in published and not Path(source).is_dir():
                names += [source] if source not in names else []
            else:
                model_hash(find_run(source, published=published))  # says what is missing
                others.append((Path(source).name or source, partial(self.score, source, material, context)))
        return [*((name, partial(published.__getitem__, name)) for name in names), *others]

    def score(self, run: str, material: Material, context: Context = "sentence") -> Surprisals:
        """Score a material by a run.

        Prints how many words were unknown, impossible (of infinite bits) or not converged.
        """
        from treelm.corpora.running_text import normalise
        from treelm.evaluation.human.material import score_material
        from treelm.inference.stimulus_advice import listed

        lm = self.load(run, predicts_words=True)
        bar = progress_bar(f"{run}: scoring {material.name}", len(set(material.sentences)))
        with self.workers(run) as compute, bar as advance:
            found = score_material(
                lm,
                material,
                name=Path(run).name or run,
                punctuation=self.punctuation,
                context=context,
                normalise=str if self.as_written else normalise,
                batch_size=self.batch_size,
                compute=compute,
                on_sentence=advance,
            )
        counts = {
            "of several words in one cell": sum(len(word.split()) > 1 for word in material.words),
            "unknown": int(found.is_unknown.sum()),
            "impossible": int((found.bits == float("inf")).sum()),
            "not converged": found.num_unconverged,
        }
        words = set(material.words if self.as_written else map(normalise, material.words))
        spelled = {character for word in words for character in lm.vocabulary.spelled(word)}
        if context == "document" and not has(lm, DocumentContext):
            log(f"{run}: {why_not(lm, DocumentContext)}")
        if spelled:
            what = "words with characters of which it has no piece are read byte by byte, as by spelling"
            log(f"{run}: {what}: {listed(spelled)}")
        told = "".join(f", {count} {what}" for what, count in counts.items() if count)
        log(f"{run}: {described(lm)}; {len(material)} words{told}")
        return found


def _table(source: str) -> tuple[Path, str]:
    """The file and the column of FILE or FILE:COLUMN."""
    head, colon, column = source.rpartition(":")
    if colon and not Path(source).is_file() and Path(head).is_file():
        return Path(head), column
    return Path(source), ""

"""What tables of reading times and garden paths say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.evaluation.human.worlds import made_up, surprisals
from treelm.evaluation.human import sap
from treelm.evaluation.human.garden_paths import GardenPaths, measure_effects
from treelm.evaluation.human.reading import Regression
from treelm.evaluation.human.ucl import BabyLMScore
from treelm.evaluation.tables import Table
from treelm.figures.human_tables import effect_tables, reading_tables
from treelm.figures.tables import Printed


def rows(part: Printed) -> dict[str, list[str]]:
    """The cells of a table's rows by what stands first in each."""
    assert isinstance(part, Table)
    return {row[0]: list(row[1:]) for row in part.rows}


def effects(name: str, number: int) -> GardenPaths:
    """What GPT-2 has, by figures that no other number has."""
    found = measure_effects(sap.published(("agreement",))["gpt2"], ("agreement",))
    apart = [replace(one, bits=number + one.region / 10, correlation=-number / 100) for one in found.effects]
    return replace(found, name=name, effects=tuple(apart))


def test_effects_of_all_models_stand_beside_people() -> None:
    bits, correlations, *lines = effect_tables([effects("one", 1), effects("two", 2)])
    assert rows(bits)["agreement violated, 1"] == ["57.4 (44.9, 69.7)", "+1.10 (0.10)", "+2.10 (0.10)"]
    assert rows(correlations)["agreement violated, 0"] == ["0.63", "-0.01", "-0.02"]
    assert lines[-1] == sap.REGIONS_IN_WORDS


def test_reading_times_have_a_table_for_each_question() -> None:
    corpus = made_up()
    models = [corpus.published["true"], surprisals("flat", np.ones(len(corpus)), unknown=(3,))]
    result = Regression(corpus, models).measure(over=("true",))
    score = BabyLMScore(name="true", eye_tracking=9.5, self_paced_reading=2.25, num_words=(600, 700))
    parts = reading_tables(result, [score])
    assert parts[0] == "made-up, rt: 714 words, stories left out in turn"
    deltas, slopes, over, classes, babylm = (part for part in parts if isinstance(part, Table))
    true = result.models[0]
    assert rows(deltas)["true"][0] == f"{1000 * true.delta.nats_per_word:+.2f}"
    assert rows(deltas)["true"][2] == "6/6"
    assert rows(deltas)["flat"][3:] == ["-", "-", "1.00", "0", "1"]
    assert rows(slopes)["true"][1] == f"{true.slopes[1].ms_per_bit:+.2f} ({true.slopes[1].t:+.1f})"
    assert rows(slopes)["flat"] == ["-", "-"]
    assert list(rows(over)) == ["true over flat", "flat over true"]
    assert rows(classes)["even"][0] == str(result.class_sizes["even"])
    assert rows(babylm)["true"] == ["9.50", "600", "2.25", "700"]

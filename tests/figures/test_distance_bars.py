from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from tests.models.prpn.worlds import prpn
from treelm.corpora.character_vocabulary import CharacterVocabulary
from treelm.errors import InputError
from treelm.figures.distance_bars import DistanceBars, distance_bars
from treelm.figures.pictures import picture
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.network import PRPN

BARS = DistanceBars(tokens=("the", "old", "dog"), distances=(1.0, 0.0, 2.0), begins_word=(True,) * 3)


def test_bars_in_the_terminal_are_as_high_as_their_distances() -> None:
    assert BARS.as_text(height=2).splitlines() == [
        "largest distance 2",
        "        ███",
        "███     ███",
        "the old dog",
    ]


def test_eighths_of_a_line_are_drawn() -> None:
    bars = DistanceBars(tokens=("a", "b"), distances=(1.0, 0.375), begins_word=(True, True))
    assert bars.as_text(height=1).splitlines()[1:] == ["█ ▃", "a b"]


def test_bars_in_the_picture_are_as_high_as_their_distances() -> None:
    picture = ElementTree.fromstring(BARS.as_svg())
    heights = [float(rect.get("height", "")) for rect in picture.iter() if "bar" in rect.get("class", "")]
    assert heights == [60.0, 0.0, 120.0]


def test_distances_of_zero_everywhere_are_drawn() -> None:
    bars = DistanceBars(tokens=("a", "<b>"), distances=(0.0, 0.0), begins_word=(True, True))
    assert bars.as_text(height=1).splitlines()[1:] == ["", "a <b>"]
    ElementTree.fromstring(bars.as_svg())


def test_words_have_the_distances_of_the_model() -> None:
    network = prpn()
    bars = distance_bars(network, list("1234"))
    assert bars.tokens == ("1", "2", "3", "4")
    assert bars.distances == tuple(network.distances([list("1234")])[0])


def test_characters_have_a_bar_each_and_those_that_begin_words_are_marked() -> None:
    torch.manual_seed(0)
    config = PRPNConfig(embedding_size=4, hidden_size=4, num_layers=1)
    bars = distance_bars(PRPN(config, vocabulary=CharacterVocabulary("abc")), ["ab", "c"])
    assert bars.tokens == ("a", "b", "</w>", "c", "</w>")
    assert bars.begins_word == (True, False, False, True, False)
    assert bars.as_svg().count("bar end") == 2


def test_a_sentence_without_words_is_a_user_error() -> None:
    with pytest.raises(InputError, match="without words"):
        distance_bars(prpn(), [])


def test_the_figure_of_a_sentence_of_a_system_with_distances_is_this_one() -> None:
    network = prpn().eval()
    words = ["1", "2", "3"]
    assert picture(network, network.parse([words])[0]) == distance_bars(network, words).as_svg()

from pathlib import Path

import pytest

from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Preprocessing
from treelm.errors import InputError
from treelm.trees.transforms import keep_words
from treelm.trees.tree import Tree

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
WSJ_SAMPLE = SHARED / "wsj-sample"
TREE = "(S (NP (DT The) (NN 3rd-floor)) (, ,) (VP (VBZ costs) (NP ($ $) (CD 1,200.50))) (PRN (-LRB- -LRB-)) (. .))\n"


def write(tmp_path: Path, text: str, name: str = "train.ptb") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_words_are_lower_case_with_digits_as_n_and_without_punctuation(tmp_path: Path) -> None:
    path = write(tmp_path, TREE + "(S (. .))\n" + "(S (UH Yes))\n")
    first, second = read_sentences(path, preprocess="prpn")
    assert first.words == ("the", "Nrd-floor", "costs", "N,N.N")
    assert first.tags == ("DT", "NN", "VBZ", "CD")
    assert str(first.tree) == "(S (NP the Nrd-floor) (VP costs (NP N,N.N)))"
    assert second.words == ("yes",)
    assert second.line == 3


@pytest.mark.parametrize("how", ["prpn", "mikolov"])
def test_text_without_tags_is_refused(how: Preprocessing, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf'train.txt:1: .*preprocess = "{how}"'):
        list(read_sentences(write(tmp_path, "The dog .\n", "train.txt"), preprocess=how))


@pytest.mark.parametrize(
    ("tagged", "expected"),
    [
        ("(NP ($ $) (CD 1,200.50) (NN %) (# #))", "$ N N #"),
        ("(NP (CD 3) (CD 1\\/2) (CD 1988-89) (CD 10:30) (CD 9.))", "N N N N N"),
        ("(NP (JJ 10-Year) (CD 1980s) (CD '82) (NNP A-1) (NNP A.))", "10-year 1980s '82 a-1 a."),
        ("(S (`` ``) (NP (NNS Dogs) (POS ')) ('' ') (: --) (-LRB- -LRB-) (VP (VBP bark)) (. ?))", "dogs ' bark"),
        ("(NP (NN AT&T) (CC &) (SYM *))", "at&t & *"),
    ],
)
def test_words_of_mikolovs_text(tagged: str, expected: str, tmp_path: Path) -> None:
    (sentence,) = read_sentences(write(tmp_path, tagged), preprocess="mikolov")
    assert " ".join(sentence.words) == expected
    assert sentence.tree is not None
    assert sentence.tree.words() == list(sentence.words)
    assert len(sentence.tags or ()) == len(sentence.words)


def test_mikolovs_text_has_no_sentence_of_a_hundred_tokens(tmp_path: Path) -> None:
    trees = [f"(S {'(NN a) ' * number}(. .))\n" for number in (98, 99)]
    (sentence,) = read_sentences(write(tmp_path, "".join(trees)), preprocess="mikolov")
    assert len(sentence.words) == 98


def test_mikolovs_text_comes_out_of_the_wsj_sample_word_for_word() -> None:
    """All 3,910 sentences that are left of the sample's 3,914, in the order in which they begin the text."""
    if not WSJ_SAMPLE.exists() or not (SHARED / "ptb-lm").exists():
        pytest.skip("needs ../shared/data/wsj-sample and ptb-lm (Penn Treebank, not redistributable)")
    text = [sentence.words for sentence in read_sentences(SHARED / "ptb-lm/ptb.train.txt.gz")]
    vocabulary = {word for words in text for word in words}
    ours = [
        tuple(word if word in vocabulary else "<unk>" for word in sentence.words)
        for split in ("train", "dev", "test")
        for sentence in read_sentences(WSJ_SAMPLE / f"{split}.raw.ptb.gz", preprocess="mikolov")
    ]
    assert len(ours) == 3910
    assert ours == text[1:3911]  # the first line is a list of words


def test_keep_words_on_deep_and_empty_trees() -> None:
    tree = Tree.parse("(A (B a) (C (D b) c))")
    assert keep_words(tree, [False, False, False], []) is None
    assert str(keep_words(tree, [False, True, True], ["x", "y"])) == "(A (C (D x) y))"
    with pytest.raises(ValueError, match="items"):
        keep_words(tree, [True], ["x"])


def test_the_wsj_sample_keeps_as_many_short_sentences_as_the_released_evaluation() -> None:
    if not WSJ_SAMPLE.exists():
        pytest.skip("needs ../shared/data/wsj-sample (Penn Treebank sample, not redistributable)")
    lengths = [
        len(sentence.words)
        for split in ("train", "dev", "test")
        for sentence in read_sentences(WSJ_SAMPLE / f"{split}.raw.ptb.gz", preprocess="prpn")
    ]
    assert sum(length <= 10 for length in lengths) == 555
    assert sum(length <= 40 for length in lengths) == 3764

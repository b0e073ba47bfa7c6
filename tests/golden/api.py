"""All that the record asks of treelm in Python, as plain values: after a change of the interface, adapt this alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import torch

import treelm
from treelm.errors import InputError
from treelm.inference import batching
from treelm.models.capabilities import (
    DocumentContext,
    Parser,
    Searching,
    TreeConditioned,
    has,
    score_with_trees,
    set_search,
    structure_of,
)
from treelm.models.search.config import SearchConfig

REFUSED = "refused"


def ask(question: Callable[[], Any]) -> Any:
    """The answer, or that there is none for this system."""
    try:
        return question()
    except (InputError, AttributeError, NotImplementedError):
        return REFUSED


def load(run: str | Path) -> Any:
    """A model, searching by its adaptive beam."""
    return treelm.load(run)


def narrow(lm: Any) -> None:
    """Search by a fixed beam."""
    set_search(lm, SearchConfig(action_beam=20, word_beam=5))


def adaptive(lm: Any) -> None:
    """Search by an adaptive beam, no wider than 60/20."""
    lm.search = SearchConfig(action_beam=60, word_beam=20, threshold=4.0)


def by_particles(lm: Any, number: int, seed: int) -> None:
    """Search by particles."""
    lm.search = SearchConfig(method="particles", num_particles=number, seed=seed)


def searches(lm: Any) -> bool:
    """Whether it scores by a search."""
    return isinstance(lm, Searching)


def abilities(lm: Any) -> dict[str, Any]:
    """What it says it can do."""
    kinds = {"parses": Parser, "needs_trees": TreeConditioned, "searches": Searching, "keeps_context": DocumentContext}
    found = {name: has(lm, kind) for name, kind in kinds.items()}
    return {"predicts_words": lm.predicts_words, **found, "size": len(lm.vocabulary)}


def _score(score: Any) -> dict[str, Any]:
    columns = {name: list(map(float, values)) for name, values in score.columns.items()}
    words = score.word_of_token.tolist()
    return {"log_probs": score.log_probs.tolist(), "words": words, "bound": score.is_lower_bound, "columns": columns}


def score(lm: Any, sentences: Sequence[Sequence[str]]) -> Any:
    """Log probabilities and columns."""
    return [_score(one) for one in lm.score(sentences)]


def score_text(lm: Any, sentences: Sequence[Sequence[str]]) -> Any:
    """The same of sentences that follow one another."""
    from treelm.models.measures import MEASURES, score_with_measures

    entropy = MEASURES["next_entropy_bits"]
    return [_score(one) for one in score_with_measures(lm, sentences, [entropy], in_document=True)]


def score_given(lm: Any, path: Path) -> Any:
    """Scores of the sentences of a treebank, with their trees."""
    from treelm.corpora.readers import read_sentences

    return [_score(one) for one in score_with_trees(lm, list(read_sentences(path))[:4])]


def surprisal(lm: Any, texts: Sequence[str]) -> Any:
    """Bits of every word and end."""
    return [
        {
            "words": [(w.word, w.surprisal_bits, w.is_unk, w.unk_class, w.num_pieces) for w in one.words],
            "end": one.end_surprisal_bits,
        }
        for one in lm.surprisal(texts)
    ]


def parse(lm: Any, texts: Sequence[str]) -> list[str]:
    """Trees."""
    return [str(tree) for tree in lm.parse(texts)]


def analyse(lm: Any, texts: Sequence[str]) -> Any:
    """Scores and trees of one search."""
    return [(str(one.tree), one.score.log_probs.tolist() if one.score else None) for one in lm.analyse(texts)]


def nbest(lm: Any, texts: Sequence[str], number: int) -> Any:
    """Trees with their log probabilities."""
    return [[_plain(one) for one in trees] for trees in lm.parse_nbest(texts, number)]


def annotate(lm: Any, texts: Sequence[str]) -> Any:
    """Trees with tags and confidence."""
    return [(str(one.tree), one.tags, one.confidence) for one in batching.annotate(lm, texts) if one]


def used_rules(lm: Any, texts: Sequence[str]) -> Any:
    """Rules of a grammar."""
    return [_plain(rule) for rule in lm.used_rules(texts)[:20]]


def structure(lm: Any, words: Sequence[str]) -> Any:
    """The values that determine a tree."""
    found = structure_of(lm, words)
    return _plain(found) if found is not None else REFUSED


def _analyses(lm: Any, state: Any) -> list[tuple[str, float]]:
    kept = lm.partial_analyses(state, 3)[0] if isinstance(lm, Searching) else []
    return [(str(one.tree), one.share) for one in kept]


def word_by_word(lm: Any, words: Sequence[str]) -> Any:
    """States extended: log probabilities of each word, of the next ones, partial trees and analyses."""
    state, steps = lm.start(1), []
    for word in words:
        state, log_probs = lm.extend_scored(state, [word])
        following = lm.next_word_log_probs(state)[0]
        steps.append(
            {
                "log_prob": float(log_probs[0]),
                "mass": float(following.logsumexp(-1)),
                "best": [lm.vocabulary.token(int(i)) for i in following[:-1].topk(3).indices],
                "some": following[:: max(1, len(following) // 7)].tolist(),
                "tree": ask(lambda state=state: str(lm.partial_trees(state)[0])),
                "analyses": ask(lambda state=state: _analyses(lm, state)),
            }
        )
    after = ask(lambda: lm.next_word_log_probs(lm.start_after([list(words)]))[0][:3].tolist())
    return {
        "steps": steps,
        "extended": lm.next_word_log_probs(lm.extend(lm.start(2), words[:1] * 2))[1][:3].tolist(),
        "after": after,
    }


def table(lm: Any, path: Path) -> str:
    """The data frame of a table of words."""
    import pandas

    frame = pandas.read_csv(path)
    found = treelm.surprisal_table(lm, frame, word="form", sentence="item", punctuation="summed", lag=1)
    return str(found.to_csv(index=False))


def exported(lm: Any, folder: Path, text: str) -> Any:
    """Logits of the model that transformers opens."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import treelm.hf

    treelm.hf.export_model(lm, folder)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer([text], return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits[0].double()
    return {"ids": inputs.input_ids.tolist(), "some": logits[:, :: max(1, logits.shape[1] // 7)].tolist()}


def saved(lm: Any, folder: Path) -> Any:
    """Parameters after saving and loading."""
    lm.save_pretrained(folder)
    again = treelm.LanguageModel.from_pretrained(folder)
    return {name: float(value.double().sum()) for name, value in again.state_dict().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, treelm.Tree):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(one) for name, one in vars(value).items()} if hasattr(value, "__dict__") else asdict(value)
    if hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value

"""Adapter to the Language Model Evaluation Harness: ``pip install 'treelm[lm-eval]'``.

A line is a sentence: models of treelm predict the end of a sentence, and that is what a line break is. Every line is
read from its beginning, so what a prompt says on earlier lines does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from treelm.corpora.tokens import BLANKS, Tokenisation, words_of
from treelm.errors import InputError, import_extra
from treelm.inference.adapters import Line, score_lines, token_ids
from treelm.inference.loading import load
from treelm.models.base import IncrementalState, LanguageModel
from treelm.models.layers.devices import DeviceName

_MOST_TOKENS = 256  # of a generated continuation, where a task names no limit


class Request(Protocol):
    """A question of the harness: ``args`` is (context, continuation), (text,) or (context, settings)."""

    args: tuple[Any, ...]


class Answers:
    """The answers of a model to the three kinds of request of the harness."""

    def __init__(
        self, lm: LanguageModel, *, tokenisation: Tokenisation = "treebank", group_size: int = 64, greedy: bool = True
    ) -> None:
        """Wrap a model; ``greedy`` looks whether a continuation is the likeliest one, word by word, which takes long.

        Without it the answer is always that it is not; most tasks do not ask.
        """
        super().__init__()
        self.model, self._how, self._group_size, self._greedy = lm, tokenisation, group_size, greedy

    def loglikelihood(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """log p(continuation | context) in nats, and whether the continuation is the likeliest one.

        Words that end in the continuation count, and the ends of sentences where it has line breaks.
        """
        pairs = [(str(context), str(continuation)) for context, continuation in (one.args for one in requests)]
        found = []
        for lines, (context, continuation) in zip(self._score([a + b for a, b in pairs]), pairs, strict=True):
            log_prob = 0.0
            for line in lines:
                log_prob += float(line.score.log_probs[:-1][line.token_ends > len(context)].sum())
                if len(context) < line.line_end <= len(context) + len(continuation):
                    log_prob += float(line.score.log_probs[-1])
            found.append((log_prob, self._greedy and self._is_greedy(lines, len(context), len(context + continuation))))
        return found

    def loglikelihood_rolling(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[float]:
        """log p of whole texts in nats: of all lines, each with its end."""
        texts = [str(one.args[0]) for one in requests]
        return [float(sum(line.score.log_probs.sum() for line in lines)) for lines in self._score(texts)]

    def generate_until(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[str]:
        """The likeliest continuation, token after token, up to one of the texts ``until`` or ``max_gen_toks``.

        Raises ``InputError`` for a task that samples.
        """
        return [self._generate(str(context), settings) for context, settings in (one.args for one in requests)]

    def _score(self, texts: Sequence[str]) -> list[list[Line]]:
        found: list[list[Line]] = []
        for start in range(0, len(texts), self._group_size):
            found.extend(score_lines(self.model, texts[start : start + self._group_size], self._how))
        return found

    def _is_greedy(self, lines: Sequence[Line], start: int, end: int) -> bool:
        """Tell whether every token that counts between two places of a text is the likeliest there."""
        for line in lines:
            tokens = token_ids(self.model, line.words)
            counts = [bool(place > start) for place in line.token_ends]
            tokens.append(len(self.model.vocabulary))
            counts.append(start < line.line_end <= end)
            state = self.model.start(1)
            for token, counted in zip(tokens, counts, strict=True):
                if counted and int(self.model.next_word_log_probs(state)[0].argmax()) != token:
                    return False
                if token < len(self.model.vocabulary):
                    state = self.model.extend_tokens(state, [token])
        return True

    def _generate(self, context: str, settings: Mapping[str, Any]) -> str:
        if settings.get("do_sample"):
            raise InputError("a task that samples", remedy="choose one that takes the likeliest continuation")
        until = settings.get("until", [])
        stops = [until] if isinstance(until, str) else list(until)
        state = self.model.start(1)
        *_, last = ("", *context.split("\n"))
        for token in token_ids(self.model, words_of(last, self._how)):
            state = self.model.extend_tokens(state, [token])
        text = "" if not last or last[-1] in BLANKS else " "
        pieces = list[int]()
        for _ in range(int(settings.get("max_gen_toks", _MOST_TOKENS))):
            text, pieces, state = self._next(text, pieces, state)
            places = [place for place in (text.find(stop) for stop in stops if stop) if place >= 0]
            if places:
                return text[: min(places)]
        return text

    def _next(self, text: str, pieces: list[int], state: IncrementalState) -> tuple[str, list[int], IncrementalState]:
        log_probs = self.model.next_word_log_probs(state)[0].cpu().clone()
        end = len(self.model.vocabulary)
        if pieces:
            log_probs[end] = -np.inf  # no sentence ends within a word
        token = int(log_probs.argmax())
        if token == end:
            return text.rstrip(" ") + "\n", [], self.model.start(1)
        pieces = [*pieces, token]
        state = self.model.extend_tokens(state, [token])
        if not self.model.vocabulary.ends_word[token]:
            return text, pieces, state
        return f"{text}{self.model.vocabulary.spell(pieces)} ", [], state


def register() -> None:
    """Register the model name ``treelm`` with the harness: ``--model treelm --model_args run=runs/demo``.

    Its arguments are ``run`` and those of ``Answers``. Raises ``InputError`` if the harness is not installed.
    """
    model = _harness_class()
    from lm_eval.api.registry import register_model

    register_model("treelm")(model)


def harness_model(run: str | Path | LanguageModel, **options: Any) -> Any:
    """An ``lm_eval.api.model.LM`` of a run folder or a model: what ``lm_eval.simple_evaluate(model=...)`` takes.

    ``options`` are those of ``Answers``. Raises ``InputError`` if the harness is not installed.
    """
    return _harness_class()(run, **options)


def _harness_class() -> Any:
    class TreelmLM(Answers, import_extra("lm_eval.api.model", "lm-eval").LM):  # type: ignore[misc]
        """Subclass of the harness's own model class, answering as ``Answers``."""

        def __init__(
            self,
            run: str | Path | LanguageModel,
            device: DeviceName | None = None,
            batch_size: Any = None,
            max_batch_size: Any = None,
            **options: Any,
        ) -> None:
            """Load a run; sizes of batches, which the harness gives, mean nothing here."""
            lm = run if isinstance(run, LanguageModel) else load(run, device=device or "cpu")
            super().__init__(lm, **options)

        @property
        def tokenizer_name(self) -> str:
            """Names what requests are cached under."""
            return f"treelm-{self.model.vocabulary.fingerprint()}"

    return TreelmLM

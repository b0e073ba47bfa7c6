"""A causal language model of transformers behind the interface of all systems.

p(word | words before it), of a tokenizer that marks where words begin, is the product over the word's tokens, times
the probability that the word then ends, by the one that the word before has ended there (Pimentel & Meister 2024; Oh &
Schuler 2024): log p(s_1) - log B + log p(s_2) + ... + log B', where B sums over all tokens that begin a word or end the
text. ``CausalVocabulary`` makes the end of a word a token of its own, so that each factor is a token's probability.
The plain form is ``tests/models/hf/plain.py``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.corpora.encoding import SentenceBatch, encode_words, word_of_token
from treelm.errors import InputError, OutOfMemory, is_out_of_memory
from treelm.io.files import MOST_CONFIG
from treelm.io.json import read_json
from treelm.models.base import IncrementalState, LanguageModel
from treelm.models.capabilities import Attention, DocumentContext
from treelm.models.hf.vocabulary import CausalVocabulary
from treelm.models.layers.attention import by_words
from treelm.models.persistence.hub import CONFIG, EXPORTED, HUB_FOLDER, name_parts, plain_copy, quiet, save_parts
from treelm.models.persistence.tensors import SizeLimit, sizes_of
from treelm.models.scores import Loss, Losses, SentenceScore
from treelm.models.structures import BOUNDARY

_LOGITS = 1 << 27  # numbers that a batch may compute, half a gigabyte
_ROWS = 64  # distributions that are looked at together
_CACHE = "past_key_values"
"""The name under which models give and take keys and values. State-space models have other names: they read everything
again."""


@dataclass(frozen=True, kw_only=True)
class CausalConfig:
    """What is known of a model before it reads. Its sizes are in its own ``config.json``."""

    name: str
    """Its name, by its folder or on the hub."""
    architecture: str
    """The class of transformers that reads it, such as ``GPT2LMHeadModel``."""
    context: int | None
    """The number of tokens that it reads at once, the beginning of sequence included; None for any number."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """What the model knows about one text."""

    start: int  # the first of the text's own tokens that it still sees
    own: tuple[int, ...]  # the model's tokens read so far
    log_probs: Tensor  # (V,) float64, of the model's next token
    cache: dict[str, Any]  # keys and values; empty of a model that gives none


@dataclass(frozen=True, kw_only=True, eq=False)
class CausalState(IncrementalState):
    """Texts, and what the model knows about each of them."""

    rows: tuple[_Row, ...]


class CausalLM(LanguageModel, DocumentContext, Attention):
    """Any causal language model of transformers. A text begins with the beginning of sequence.

    A sentence is scored by itself, as the text of its words with spaces between them. ``score_document`` reads
    sentences as one text. When a text fills the ``context``, only its later half is kept.
    """

    system: ClassVar[str] = "hf"
    config: CausalConfig
    runtime_settings: ClassVar[tuple[str, ...]] = ("context",)

    def __init__(self, config: CausalConfig, *, network: nn.Module, vocabulary: CausalVocabulary) -> None:
        """Wrap a network that ``load_parts`` has loaded."""
        super().__init__(vocabulary=vocabulary)
        self.config = config
        self.network: Any = network
        self.tokens = vocabulary
        self.context = config.context
        """Tokens that it reads at once; may be set to fewer."""
        begins = torch.from_numpy(vocabulary.begins_word)
        self._begins: Tensor
        self._begins_text: Tensor
        self.register_buffer("_begins", begins, persistent=False)
        self.register_buffer("_begins_text", begins if vocabulary.marks_first else ~begins, persistent=False)
        self._begins_text[vocabulary.end_of_text] = True

    @classmethod
    def owns(cls, header: dict[str, Any]) -> bool:
        """Tell by the ``config.json`` of a folder whether its model is one of transformers."""
        return isinstance(header.get("model_type"), str) and "format_version" not in header

    @classmethod
    def read_folder(cls, folder: Path) -> CausalLM:
        """Read the model in a folder that transformers wrote.

        Raises ``InputError`` if it is not a causal language model.
        """
        network, tokenizer, config = load_parts(folder)
        try:
            size = network.get_output_embeddings().weight.shape[0]
            model = cls(config, network=network, vocabulary=CausalVocabulary(tokenizer, size=size))
        except InputError as error:
            raise InputError(error.found, where=str(folder), remedy=error.remedy) from error
        model.eval()._check_causality(str(folder))
        return model

    def _save(self, folder: Path) -> None:
        save_parts(self.network, self.tokens.tokenizer, folder)

    @torch.no_grad()
    def _check_causality(self, where: str) -> None:
        """Raise ``InputError`` if what the model predicts for a token depends on that token: it fills gaps."""
        begin, (other, another) = self.tokens.begin, np.flatnonzero(~self.tokens.begins_word)[:2].tolist()
        logits = self.network(torch.tensor([[begin, other], [begin, another]], device=self.device)).logits[:, 0]
        if not torch.allclose(logits[0], logits[1], rtol=1e-5, atol=1e-6):
            found = f"{self.config.architecture} sees the tokens that it is to predict"
            raise InputError(found, where=where, remedy="take a causal language model")

    @property
    def scoring_dtype(self) -> torch.dtype:
        """The type that the network computes in."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self._begins.device

    # Whole texts.

    def losses(self, batch: SentenceBatch) -> Losses:
        """The sum of -log p of all tokens and ends, in nats, without gradient."""
        found = self._log_probs([batch.tokens_of(row) for row in range(len(batch))])
        total = -torch.tensor(sum(float(one.sum()) for one in found), dtype=torch.float64)
        return Losses.of(batch, {"word": Loss(sum=total, count=sum(map(len, found)))})

    def _score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        batch = encode_words(sentences, self.vocabulary)
        tokens = [batch.tokens_of(row) for row in range(len(batch))]
        self._check_segmentation(sentences, tokens)
        return [self._score_of(own, log_probs) for own, log_probs in zip(tokens, self._log_probs(tokens), strict=True)]

    def _score_document(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Implement ``score_document``: the sentences are one text.

        Only the last sentence has an end, that of the text. The ends of the others are no events for the model: their
        log probability is 0.
        """
        words = [word for sentence in sentences for word in sentence]
        if not sentences:
            return []
        batch = encode_words([words], self.vocabulary)
        self._check_segmentation([words], [batch.tokens])
        (log_probs,) = self._log_probs([batch.tokens])
        word_of = word_of_token(batch.tokens, self.vocabulary.ends_word)
        scores, first = list[SentenceScore](), 0
        for number, sentence in enumerate(sentences, start=1):
            start, stop = np.searchsorted(word_of, [first, first + len(sentence)]).tolist()
            end = log_probs[-1:] if number == len(sentences) else np.zeros(1)
            scores.append(self._score_of(batch.tokens[start:stop], np.concatenate([log_probs[start:stop], end])))
            first += len(sentence)
        return scores

    def _score_of(self, tokens: NDArray[np.int64], log_probs: NDArray[np.float64]) -> SentenceScore:
        words = word_of_token(tokens, self.vocabulary.ends_word)
        return SentenceScore(log_probs=log_probs, word_of_token=words, is_lower_bound=False)

    def _check_segmentation(self, sentences: Sequence[Sequence[str]], tokens: Sequence[NDArray[np.int64]]) -> None:
        """Raise ``InputError`` if a text has other tokens than its words have by themselves."""
        for words, own in zip(sentences, tokens, strict=True):
            if words and self.tokens.segment_text(words) != self._own(own.tolist()):
                found = f"the tokenizer writes {' '.join(words)!r} in tokens that are not those of its words"
                raise InputError(found, remedy="take a model whose tokens do not reach over blanks")

    def _own(self, tokens: Sequence[int]) -> list[int]:
        """The model's own tokens among these: all but the ends of words."""
        return [token for token in tokens if token != self.tokens.end_of_word]

    @torch.no_grad()
    def _reduce_next_log_probs(
        self,
        sentences: Sequence[Sequence[str]],
        reduce: Callable[[Tensor, Tensor], Tensor],
        *,
        in_document: bool,
    ) -> list[NDArray[np.float64]]:
        texts = [[word for sentence in sentences for word in sentence]] if in_document else sentences
        batch = encode_words(texts, self.vocabulary)
        tokens = [batch.tokens_of(row) for row in range(len(batch))]
        own = [self._own(one.tolist()) for one in tokens]
        places = [
            np.append(0, np.cumsum(one != self.tokens.end_of_word)[self.vocabulary.ends_word[one]]) for one in tokens
        ]
        parts: list[dict[int, Tensor]] = [{} for _ in own]
        for number, first, rows in self._log_softmax(own):
            text = [*own[number], len(self.vocabulary)]
            here = [place for place in places[number].tolist() if first <= place < first + len(rows)]
            if here:
                log_probs = self._at_boundary(rows[[place - first for place in here]], here[0])
                coming = torch.tensor([text[place] for place in here], device=rows.device)
                parts[number][first] = reduce(log_probs, coming)
        found = [torch.cat([values[first] for first in sorted(values)]).cpu().numpy() for values in parts]
        if not in_document:
            return found
        stops = np.cumsum(list(map(len, sentences)))
        return [found[0][stop - len(one) : stop + 1] for stop, one in zip(stops.tolist(), sentences, strict=True)]

    def _at_boundary(self, log_probs: Tensor, place: int) -> Tensor:
        """Log p (m, V + 2) of what begins a word or ends the text, from rows (m, V) of log p of the model's tokens.

        ``place`` is the place of the first row in its text.
        """
        allowed = self._begins.expand_as(log_probs).clone()
        if place == 0:
            allowed[0] = self._begins_text
        found = (log_probs - self._boundary(log_probs, place)[:, None]).masked_fill(~allowed, -torch.inf)
        end = found[:, self.tokens.end_of_text].clone()
        found[:, self.tokens.end_of_text] = -torch.inf
        return torch.cat([found, torch.full_like(end, -torch.inf)[:, None], end[:, None]], 1)

    def _log_probs(self, sentences: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
        """Log p of every token and of the end of each text."""
        own = [self._own(tokens.tolist()) for tokens in sentences]
        tables = [np.zeros((3, len(text) + 1)) for text in own]  # of each place: token, B, end
        for number, first, rows in self._log_softmax(own):
            coming = [*own[number], self.tokens.end_of_text][first : first + len(rows)]
            chosen = rows.gather(1, torch.tensor(coming, device=rows.device)[:, None])[:, 0]
            values = [chosen, self._boundary(rows, first), rows[:, self.tokens.end_of_text]]
            tables[number][:, first : first + len(rows)] = torch.stack(values).cpu().numpy()
        found = []
        for tokens, (own_log_probs, boundary, end) in zip(sentences, tables, strict=True):
            is_end = tokens == self.tokens.end_of_word
            place = np.cumsum(~is_end) - ~is_end  # how many of the model's own tokens stand before each token
            begins_word = np.append(True, is_end)[:-1]
            log_probs = own_log_probs[place] - np.where(begins_word, boundary[place], 0.0)
            found.append(np.append(np.where(is_end, boundary[place], log_probs), end[-1] - boundary[-1]))
        return found

    def _boundary(self, log_probs: Tensor, place: int) -> Tensor:
        """Log B (m,) from rows (m, V): log p that a word begins here or the text ends.

        ``place`` is the place of the first row in its text.
        """
        total = log_probs.masked_fill(~self._begins, -torch.inf).logsumexp(1)
        if place == 0:
            total[0] = log_probs[0].masked_fill(~self._begins_text, -torch.inf).logsumexp(0)
        return total

    def _first_seen(self, num_read: int) -> int:
        """The first token of a text that the model still sees after ``num_read`` tokens.

        When the context is full, half of it is kept. Raises ``InputError`` for a context of one token.
        """
        if self.context is None or num_read < self.context:
            return 0
        if self.context < 2:
            raise InputError(f"a context of {self.context}", remedy="take a model that reads 2 tokens or more")
        room = self.context - 1  # beside the beginning of sequence
        step = room - room // 2
        return -(-(num_read - room) // step) * step

    @torch.no_grad()
    def _log_softmax(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, int, Tensor]]:
        """Yield the number of a text, a place in it, and log p (m, V), float64, of what comes there and after.

        Each place of each text comes once.
        """
        for number, place, read, row, places in self._segments(texts):
            own = read.logits[row, places]
            for first in range(0, len(own), _ROWS):
                yield number, place + first, own[first : first + _ROWS].double().log_softmax(1)

    @torch.no_grad()
    def _hidden_states(
        self, sentences: Sequence[Sequence[str]], choose: Callable[[Sequence[Tensor]], Tensor]
    ) -> list[NDArray[np.float64]]:
        """Implement ``hidden_states``. The last layer is as transformers gives it: after the last norm."""
        batch = encode_words(sentences, self.vocabulary)
        tokens = [batch.tokens_of(number) for number in range(len(sentences))]
        texts = [self._own(own.tolist()) for own in tokens]
        found: list[list[Tensor]] = [[] for _ in texts]
        for number, _, read, row, places in self._segments(texts, output_hidden_states=True):
            found[number].append(choose(read.hidden_states[1:])[row, places])  # the first are embeddings
        ends = [np.cumsum(own != self.tokens.end_of_word)[self.vocabulary.ends_word[own]] for own in tokens]
        return [torch.cat(own).double().cpu().numpy()[end] for own, end in zip(found, ends, strict=True)]

    @torch.no_grad()
    def _attention(self, words: Sequence[str]) -> tuple[tuple[str, ...], list[NDArray[np.float64]]]:
        """The words of a sentence by itself, after the beginning of sequence, and the weights of each layer.

        Raises ``InputError`` for a sentence that is longer than the context, and for a model without attention.
        """
        tokens = encode_words([words], self.vocabulary).tokens
        own = self._own(tokens.tolist())
        if self._first_seen(len(own)):
            found = f"a sentence of {len(own)} tokens, of which the model sees {self.context} at once"
            raise InputError(found, remedy="give a shorter one")
        ids, config = torch.tensor([[self.tokens.begin, *own]], device=self.device), self.network.config
        usual, config._attn_implementation = config._attn_implementation, "eager"  # faster ones keep no weights
        try:
            read = self.network(input_ids=ids, use_cache=False, output_attentions=True)
        finally:
            config._attn_implementation = usual
        if not read.get("attentions"):
            found = f"{self.config.architecture} has no attention whose weights could be had"
            raise InputError(found, remedy="take a Transformer")
        is_last = np.zeros(len(own) + 1, dtype=bool)
        is_last[[0, *np.cumsum(tokens != self.tokens.end_of_word)[self.vocabulary.ends_word[tokens]]]] = True
        return (BOUNDARY, *words), [by_words(one[0].double().cpu().numpy(), is_last) for one in read.attentions]

    def _segments(self, texts: Sequence[Sequence[int]], **options: Any) -> Iterator[tuple[int, int, Any, int, slice]]:
        """Read texts in pieces that fit its context: the number of a text, a place in it, what the network gives for a
        batch, and where in it stands what was read up to each token from that place on; each place once."""
        segments = []
        for number, text in enumerate(texts):
            place = 0
            while place <= len(text):
                start, stop = self._first_seen(place), place
                while stop < len(text) and self._first_seen(stop + 1) == start:
                    stop += 1
                segments.append((number, start, place, stop))
                place = stop + 1
        segments.sort(key=lambda one: one[1] - one[3])  # of about one length
        while segments:
            longest = segments[0][3] - segments[0][1] + 1
            most = max(1, _LOGITS // (longest * self.tokens.num_tokens))
            batch, segments = segments[:most], segments[most:]
            ids = torch.full((len(batch), longest), self.tokens.begin, device=self.device)
            seen = torch.zeros_like(ids)
            for row, (number, start, _, stop) in enumerate(batch):
                ids[row, 1 : stop - start + 1] = torch.tensor(texts[number][start:stop], device=self.device)
                seen[row, : stop - start + 1] = 1
            mask = {} if bool(seen.all()) else {"attention_mask": seen}
            read = self.network(input_ids=ids, use_cache=False, **mask, **options)
            for row, (number, start, place, stop) in enumerate(batch):
                yield number, place, read, row, slice(place - start, stop - start + 1)

    # Word by word.

    def _start(self, num_sentences: int) -> CausalState:
        """The state before the first word, after the beginning of sequence."""
        return CausalState.begin(num_sentences, rows=(self._reread(()),) * num_sentences)

    def _extend(self, state: IncrementalState, tokens: Sequence[int | None]) -> CausalState:
        before = CausalState.own(state)
        rows = [
            row if token is None or token == self.tokens.end_of_word else self._further(row, token)
            for row, token in zip(before.rows, tokens, strict=True)
        ]
        return before.after(tokens, self.vocabulary, rows=tuple(rows))

    def _start_after(self, sentences: Sequence[Sequence[str]]) -> CausalState:
        """Implement ``start_after``: these sentences and those that follow are one text."""
        words = [word for sentence in sentences for word in sentence]
        tokens = encode_words([words], self.vocabulary).tokens
        row = self._reread(tuple(self._own(tokens.tolist())))
        return CausalState(words=(tuple(words),), tokens=(tuple(tokens.tolist()),), rows=(row,))

    @torch.no_grad()
    def _next_word_log_probs(self, state: IncrementalState) -> Tensor:
        """Log p of the next token, float64 (num_sentences, V + 2).

        The columns are the tokens, the end of a word, and the end of the text.
        """
        own = CausalState.own(state)
        found = []
        for tokens, row in zip(own.tokens, own.rows, strict=True):
            if not tokens or tokens[-1] == self.tokens.end_of_word:
                found.append(self._at_boundary(row.log_probs[None], len(row.own))[0])
                continue
            total = self._boundary(row.log_probs[None], len(row.own))[0]
            within = row.log_probs.masked_fill(self._begins, -torch.inf)
            found.append(torch.cat([within, torch.stack([total, torch.full_like(total, -torch.inf)])]))
        return torch.stack(found)

    def _further(self, row: _Row, token: int) -> _Row:
        own = (*row.own, token)
        start = self._first_seen(len(own))
        if start != row.start or not row.cache:
            return self._reread(own)
        return self._read(own, start, [token], copy.deepcopy(row.cache))

    def _reread(self, own: tuple[int, ...]) -> _Row:
        start = self._first_seen(len(own))
        return self._read(own, start, [self.tokens.begin, *own[start:]], {})

    @torch.no_grad()
    def _read(self, own: tuple[int, ...], start: int, tokens: Sequence[int], cache: dict[str, Any]) -> _Row:
        """Read tokens after those in a cache, which changes. It is a copy, so that no state ever changes."""
        ids = torch.tensor([tokens], device=self.device)
        read = self.network(input_ids=ids, use_cache=True, **cache)
        log_probs = read.logits[0, -1].double().log_softmax(0)
        kept = {_CACHE: read[_CACHE]} if _CACHE in read else {}
        return _Row(start=start, own=own, log_probs=log_probs, cache=kept)


_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""The fields of configs that limit the number of places."""


_REPEATED = re.compile(r".*(layer|expert|block|stage|head)s?|.*depth")
"""The fields of a config that say how often a part of the network is repeated."""
_MOST_REPEATED = 256  # where a tensor holds the weights of all
_ROOM = 1 << 23  # elements beside those of the weights: masks of a long context above all


def load_parts(folder: Path) -> tuple[Any, Any, CausalConfig]:
    """Load the network in float32 and the tokenizer of a folder, and what is known about the model.

    Only what ``plain_copy`` leaves of the folder is read. Raises ``InputError`` for what transformers does not read,
    for missing weights, for a network far larger than its weights, and for what ``treelm export`` wrote.
    """
    header, where = read_json(folder / CONFIG, remedy=HUB_FOLDER, most=MOST_CONFIG), str(folder)
    if header.get("model_type") == EXPORTED:
        found = "what `treelm export` wrote for transformers"
        raise InputError(found, where=where, remedy="give the run folder that was exported")
    plain = folder
    try:
        with quiet(), plain_copy(folder) as plain:
            from transformers import AutoModelForCausalLM, AutoTokenizer

            safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
            sizes = [size for path in plain.glob("*.safetensors") for size in sizes_of(path, remedy=HUB_FOLDER)]
            _check_repeated(header, max(len(sizes), _MOST_REPEATED), where)
            tokenizer = AutoTokenizer.from_pretrained(plain, **safe)
            with SizeLimit(sizes, where, remedy=HUB_FOLDER, room=_ROOM):
                network, report = AutoModelForCausalLM.from_pretrained(
                    plain, use_safetensors=True, output_loading_info=True, **safe
                )
    except InputError:
        raise
    except Exception as error:  # it has no class of its own for what it cannot read
        raise _input_error(error, folder, plain) from error
    tokenizer.name_or_path = network.config.name_or_path = where
    missing = sorted(report["missing_keys"])
    if missing or network.get_output_embeddings() is None:
        what = f"weights without {missing[0]} and {len(missing) - 1} more" if missing else "a network without a softmax"
        raise InputError(what, where=where, remedy="take a model with a head for language modelling")
    text = network.config.get_text_config()
    lengths = [getattr(text, name, None) for name in _LENGTHS]
    context = min((length for length in lengths if isinstance(length, int) and length > 0), default=None)
    config = CausalConfig(name=name_parts(folder)[-1], architecture=type(network).__name__, context=context)
    return network.float(), tokenizer, config


def _check_repeated(values: Any, most: int, where: str) -> None:
    """Raise ``InputError`` for a config that repeats a part of the network more often than it can have weights."""
    for key, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, int) and not 0 <= value <= most and _REPEATED.fullmatch(key):
            raise InputError(f"{key} = {value}, with weights of at most {most}", where=where, remedy=HUB_FOLDER)
        _check_repeated(value, most, where)


def _input_error(error: Exception, folder: Path, copy: Path) -> InputError:
    """The error that users see instead of one of transformers, of safetensors, or of an import.

    ``copy`` is the folder that was read, for ``folder``.
    """
    if is_out_of_memory(error):
        return OutOfMemory(str(folder))
    reason = " ".join(str(error).replace(str(copy), str(folder)).split()) or type(error).__name__
    found = f"transformers does not read this as a causal language model ({reason})"
    remedy = HUB_FOLDER
    if isinstance(error, ImportError):
        found, remedy = f"a library is missing ({reason})", "install it"
    return InputError(found, where=str(folder), remedy=remedy)

"""What ``gpu.py`` measures of treelm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import cycle, islice
from typing import Any

import torch
from bench import random_batches
from gpu_timing import Settings, Work

from treelm.corpora.batches import SentenceBatch, SentenceBatches
from treelm.corpora.data_config import DataConfig, prepared_split
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models import system_class
from treelm.models.base import LanguageModel, Losses
from treelm.models.layers.graphs import cuda_graphs
from treelm.models.layers.precision import matmul_precision
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.network import RNNG
from treelm.models.search.config import SearchConfig
from treelm.models.som.config import SOMConfig
from treelm.models.som.network import SOM
from treelm.models.streams import StreamLM
from treelm.training.recipe import load_recipe

PRECISIONS = ("fp32", "bf16")
BATCH_SIZES = (64, 512, 2048)
BEAMS = ((100, 10), (1000, 100))  # k and k_w
NUM_SENTENCES = 10  # that are searched at once
STEPS_BEFORE_SEARCH = 100  # of training, so that search meets a model that knows something
VOCABULARY_SIZE = 10_000
PAPER_BATCH = {"prpn": (64, 35), "lstm": (20, 70), "palm": (20, 70), "on-lstm": (20, 70)}  # rows and steps
_SMALL = {
    "lstm": ("model.embedding_size=8", "model.hidden_size=8"),
    "on-lstm": ("model.embedding_size=10", "model.hidden_size=10"),
    "palm": ("model.embedding_size=8", "model.hidden_size=8", "model.max_span=4"),
    "prpn": ("model.embedding_size=8", "model.hidden_size=8", "model.num_slots=4"),
}


def torch_version() -> str:
    """With the version of CUDA, if any."""
    return f"{torch.__version__}, CUDA {torch.version.cuda}" if torch.version.cuda else torch.__version__


def prepare(settings: Settings) -> None:
    """Read the corpora once, so that the parts find them ready."""
    for form in ("brackets", "conllu"):
        encoded_corpus(form)


@cache
def encoded_corpus(form: str) -> EncodedCorpus:
    """The packaged treebank, as brackets or dependencies."""
    data = prepared_split(DataConfig(corpus="gum-open", format=form), "train")
    return EncodedCorpus(data, WordVocabulary.build(data.form_counts(), min_count=2), sorted(data.labels))


def tree_batches(form: str, batch_size: int) -> Iterator[SentenceBatch]:
    """Batches of sentences of similar length, again and again."""
    batches = SentenceBatches(encoded_corpus(form), batch_size=batch_size, seed=1)
    return cycle(list(islice(batches, 8)))


@contextmanager
def precision(name: str, settings: Settings) -> Iterator[None]:
    """The forward pass as ``treelm train`` has it in this precision."""
    torch.set_float32_matmul_precision("medium" if settings.device == "cuda" else "highest")
    if name == "bf16":
        with torch.autocast(settings.device, torch.bfloat16), matmul_precision("bf16"):
            yield
    else:
        yield


def trainer(model: LanguageModel) -> Callable[[Losses, float], None]:
    """One update by the gradient of a loss, divided by something; the loss is read back."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def update(losses: Losses, divisor: float) -> None:
        (losses.total / divisor).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.total.item()

    return update


def build_rnng(settings: Settings) -> RNNG:
    """Noji & Oseki's (2021) size: 256 units, 2 layers."""
    torch.manual_seed(1)
    corpus = encoded_corpus("brackets")
    size = 8 if settings.small else 256
    config = RNNGConfig(embedding_size=size, hidden_size=size)
    return RNNG(config, vocabulary=corpus.vocabulary, labels=corpus.labels).to(settings.device).train()


def rnng_training(settings: Settings) -> Iterator[Work]:
    """Sentences a second at several sizes of a batch."""
    for name in PRECISIONS:
        for batch_size in (4,) if settings.small else BATCH_SIZES:
            model = build_rnng(settings)
            step = training_step(model, "brackets", batch_size, name, settings)
            yield Work(name=f"treelm rnng training, batch {batch_size}, {name}", unit="sentences", step=step)


def som_training(settings: Settings) -> Iterator[Work]:
    """eSOM of the paper's size, dynamic oracle."""
    for name in PRECISIONS:
        torch.manual_seed(1)
        config = SOMConfig(size=8, num_slots=6) if settings.small else SOMConfig(size=400, num_slots=15)
        model = SOM(config, vocabulary=encoded_corpus("conllu").vocabulary).to(settings.device).train()
        size = 4 if settings.small else 64
        step = training_step(model, "conllu", size, name, settings)
        yield Work(name=f"treelm som training, batch {size}, {name}", unit="sentences", step=step)


def training_step(model: LanguageModel, form: str, batch_size: int, name: str, settings: Settings) -> Callable[[], int]:
    """A step on the next batch of trees: sentences."""
    update, batches = trainer(model), tree_batches(form, batch_size)

    def step() -> int:
        batch = next(batches)
        with precision(name, settings):
            losses = model.losses(batch)
        update(losses, len(batch))
        return len(batch)

    return step


def search_sentences(num_sentences: int) -> list[Sequence[str]]:
    """The first sentences of 13 to 17 words of the packaged dev set."""
    data = prepared_split(DataConfig(corpus="gum-open"), "dev")
    sentences = (data.sentence(number).words for number in range(len(data)))
    return list(islice((words for words in sentences if 13 <= len(words) <= 17), num_sentences))


def rnng_search(settings: Settings) -> Iterator[Work]:
    """Beam search with a model that was trained for a moment: words a second."""
    model = build_rnng(settings)
    step = training_step(model, "brackets", 4 if settings.small else 64, "fp32", settings)
    for _ in range(1 if settings.small else STEPS_BEFORE_SEARCH):
        step()
    sentences = search_sentences(1 if settings.small else NUM_SENTENCES)
    for beam, words in ((3, 2),) if settings.small else BEAMS:
        yield search_work(model.eval(), sentences, beam, words)


def search_work(model: RNNG, sentences: Sequence[Sequence[str]], beam: int, words: int) -> Work:
    """One search of all sentences."""

    def step() -> int:
        model.search = SearchConfig(action_beam=beam, word_beam=words, fast_track=1 if beam < 1000 else 10)
        model.score(sentences)
        return sum(map(len, sentences))

    return Work(name=f"treelm rnng search, k {beam}, k_w {words}", unit="words", step=step, warm_up=1)


def stream(system: str) -> Callable[[Settings], Iterator[Work]]:
    """Words a second of a system of the PTB recipe's size, on random tokens."""

    def works(settings: Settings) -> Iterator[Work]:
        for name in PRECISIONS:
            yield stream_work(system, name, settings)
        yield stream_work(system, "fp32", settings, graphs=True)

    return works


def stream_work(system: str, name: str, settings: Settings, *, graphs: bool = False) -> Work:
    """Updates on segments of the paper's size; with ``graphs``, loops over steps are CUDA graphs."""
    torch.manual_seed(1)
    recipe = load_recipe(system_class(system).benchmark_recipe, _SMALL[system] if settings.small else ())
    vocabulary_size, (rows, bptt) = (20, (2, 3)) if settings.small else (VOCABULARY_SIZE, PAPER_BATCH[system])
    vocabulary = WordVocabulary([f"w{number}" for number in range(vocabulary_size - 2)])
    build: Any = system_class(system)
    model: StreamLM = build(recipe.model.config, vocabulary=vocabulary).to(settings.device).train()
    update, batches, carried = trainer(model), random_batches(vocabulary_size, bptt, rows), None

    def step() -> int:
        nonlocal carried
        if graphs and settings.device == "cpu":
            raise RuntimeError("not measured: CUDA graphs need a GPU")
        batch = next(batches)
        with precision(name, settings), cuda_graphs(wanted=graphs):
            losses, carried = model.stream_losses(batch, carried)
        update(losses, batch.num_targets)
        return rows * bptt

    paper = "awd-lstm" if system == "lstm" else system
    how = f"{name}, CUDA graphs" if graphs else name
    return Work(name=f"treelm {paper} training, {rows} x {bptt}, {how}", unit="words", step=step)

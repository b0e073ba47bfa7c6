"""What ``gpu.py`` measures of treelm."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from bench import RECIPES, random_batches
from gpu_timing import Comparison, Settings, Work

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.devices.test_training import train
from tests.devices.worlds import VARIANTS, build_world
from tests.systems import SMALL

from treelm.corpora.batches import SentenceBatches
from treelm.corpora.data_config import DataConfig, prepared_split
from treelm.corpora.encoding import EncodedCorpus, SentenceBatch
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.models import system_class
from treelm.models.base import LanguageModel, Losses
from treelm.models.capabilities import PlansBatches
from treelm.models.layers.devices import computing
from treelm.models.layers.dropout import dropout_off
from treelm.models.layers.few_calls import FusedKernels, fused_kernels
from treelm.models.layers.graphs import cuda_graphs
from treelm.models.layers.precision import matmul_precision
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.network import RNNG
from treelm.models.search.config import SearchConfig
from treelm.models.search.model import GenerativeParser
from treelm.models.streams import StreamLM
from treelm.training.recipe import load_recipe

PRECISIONS = ("fp32", "bf16")
BATCH_SIZES = (64, 512, 2048)
BEAMS = ((100, 10), (1000, 100))  # k and k_w
NUM_BATCHES = 8  # that are trained on in turns
NUM_SENTENCES = 10  # that are searched at once
STEPS_BEFORE_SEARCH = 100  # of training, so that search meets a model that knows something
VOCABULARY_SIZE = 10_000
PAPER_BATCH = {"prpn": (64, 35), "lstm": (20, 70), "palm": (20, 70), "on-lstm": (20, 70)}  # rows and steps
FUSED: tuple[FusedKernels, ...] = ("level", "forest")
DRAWS = ("som", "shift-reduce", "urnng")  # at random while training, by the device's generator
_SMALL = {
    "som": ("model.size=8", "model.num_slots=6"),
    "transformer-grammar": ("model.size=8", "model.num_layers=1", "model.num_heads=2"),
    "pushdown": ("model.size=8", "model.num_layers=2", "model.num_heads=2"),
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
    return cycle(list(islice(batches, NUM_BATCHES)))


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


def equality(settings: Settings) -> Iterator[Comparison]:
    """Losses and norms of gradients of two updates without dropout, against the plain form on the CPU.

    Of systems at the sizes of the tests; those that draw at random while training are left out. On a CPU the form for
    GPUs, in few calls, is compared.
    """
    device, on_cpu = torch.device(settings.device), torch.device("cpu")
    for variant in ("rnng", "rnng attention", "lstm") if settings.small else VARIANTS:
        if SMALL[variant].system not in DRAWS and variant != "compound pcfg":
            yield Comparison(
                name=f"{variant} against the CPU", compute=partial(_two_ways, variant, device, on_cpu), most=1e-4
            )
    compute = partial(_two_ways, "rnng", device, on_cpu, graphs=True)
    yield Comparison(name="rnng, CUDA graphs, against the CPU", compute=compute, most=1e-4)
    for kernels in FUSED if settings.device == "cuda" else ():
        compute = partial(_two_ways, "rnng", device, on_cpu, kernels)
        yield Comparison(name=f"rnng, fused kernels ({kernels}), against the CPU", compute=compute, most=1e-4)


def _two_ways(
    variant: str,
    device: torch.device,
    on_cpu: torch.device,
    kernels: FusedKernels = "none",
    *,
    graphs: bool = False,
) -> tuple[list[float], list[float]]:
    found = []
    for where, in_few_calls in ((device, True), (on_cpu, False)):
        with tempfile.TemporaryDirectory() as folder, computing(in_few_calls=in_few_calls):
            world = build_world(variant, Path(folder))
            with dropout_off(world.model):
                used = (kernels, graphs) if in_few_calls else ("none", False)
                config = replace(world.config, device=where.type, fused_kernels=used[0], cuda_graphs=used[1])
                found.append(train(replace(world, config=config), where))
    return found[0], found[1]


def build_rnng(settings: Settings, size: int) -> RNNG:
    """Two layers of this size; 256 is that of Noji & Oseki (2021)."""
    torch.manual_seed(1)
    corpus = encoded_corpus("brackets")
    config = RNNGConfig(embedding_size=size, hidden_size=size)
    return RNNG(config, vocabulary=corpus.vocabulary, labels=corpus.labels).to(settings.device).train()


def rnng_training(settings: Settings) -> Iterator[Work]:
    """Words a second at several sizes of a batch, and of the network (35 million parameters)."""
    for name in PRECISIONS:
        for size, batch_size in ((8, 4),) if settings.small else (*((256, one) for one in BATCH_SIZES), (656, 512)):
            step = training_step(build_rnng(settings, size), "brackets", batch_size, name, settings)
            yield Work(name=f"treelm rnng training, {size} x 2, batch {batch_size}, {name}", unit="words", step=step)


def build_parser(system: str, recipe: str, form: str, settings: Settings) -> Any:
    """A model of a recipe's size, over the words of the trees of this form."""
    torch.manual_seed(1)
    corpus = encoded_corpus(form)
    config = load_recipe(recipe, _SMALL[system] if settings.small else ()).model.config
    build: Any = system_class(system)
    return build(config, vocabulary=corpus.vocabulary, labels=corpus.labels).to(settings.device).train()


def tree_training(system: str, recipe: str, batch_size: int) -> Callable[[Settings], Iterator[Work]]:
    """Words a second of a system of a recipe's size."""

    def works(settings: Settings) -> Iterator[Work]:
        for name in PRECISIONS:
            form, size = "conllu" if system == "som" else "brackets", 4 if settings.small else batch_size
            model = build_parser(system, recipe, form, settings)
            step = training_step(model, form, size, name, settings)
            yield Work(name=f"treelm {system} training, batch {size}, {name}", unit="words", step=step)

    return works


def fused_training(settings: Settings) -> Iterator[Work]:
    """The same by fused kernels, which are compiled while the first steps warm up; a CPU has none."""
    for name, size in ((name, size) for name in PRECISIONS for size in (256, 656)) if settings.device == "cuda" else ():
        for kernels in FUSED:
            step = training_step(build_rnng(settings, size), "brackets", 512, name, settings, kernels)
            what = f"treelm rnng training, {size} x 2, batch 512, {name}, fused kernels ({kernels})"
            yield Work(name=what, unit="words", step=step)


def captured_training(settings: Settings) -> Iterator[Work]:
    """The same by CUDA graphs, captured while the first steps warm up; a CPU only pads levels."""
    for size, batch_size in ((8, 4),) if settings.small else ((256, 512), (256, 2048), (656, 512)):
        model = build_rnng(settings, size)
        step = training_step(model, "brackets", batch_size, "fp32", settings, graphs=True)
        what = f"treelm rnng training, {size} x 2, batch {batch_size}, fp32, CUDA graphs"
        yield Work(name=what, unit="words", step=step, warm_up=NUM_BATCHES)


def training_step(
    model: LanguageModel,
    form: str,
    batch_size: int,
    name: str,
    settings: Settings,
    kernels: FusedKernels = "none",
    *,
    graphs: bool = False,
) -> Callable[[], int]:
    """A step on the next batch of trees: words. As in training, what can be planned for the batch after it is."""
    update, batches = trainer(model), tree_batches(form, batch_size)
    following = next(batches)

    def step() -> int:
        nonlocal following
        batch, following = following, next(batches)
        few = True if graphs else None
        with precision(name, settings), fused_kernels(kernels), cuda_graphs(wanted=graphs), computing(in_few_calls=few):
            losses = model.losses(batch)
            if isinstance(model, PlansBatches):
                model.plan_ahead(following)
        update(losses, len(batch))
        return int(batch.num_words.sum())

    return step


def search_sentences(num_sentences: int) -> list[Sequence[str]]:
    """The first sentences of 13 to 17 words of the packaged dev set."""
    data = prepared_split(DataConfig(corpus="gum-open"), "dev")
    sentences = (data.sentence(number).words for number in range(len(data)))
    return list(islice((words for words in sentences if 13 <= len(words) <= 17), num_sentences))


def rnng_search(settings: Settings) -> Iterator[Work]:
    """Beam search with the RNNG of 256 units: words a second."""
    yield from search_works(build_rnng(settings, 8 if settings.small else 256), settings, BEAMS)


def tree_search(system: str, recipe: str) -> Callable[[Settings], Iterator[Work]]:
    """Beam search with a system of a recipe's size: words a second."""

    def works(settings: Settings) -> Iterator[Work]:
        yield from search_works(build_parser(system, recipe, "brackets", settings), settings, BEAMS[:1])

    return works


def search_works(model: GenerativeParser, settings: Settings, beams: Sequence[tuple[int, int]]) -> Iterator[Work]:
    """Searches with these beams, by a model that is trained for a moment before."""
    step = training_step(model, "brackets", 4 if settings.small else 64, "fp32", settings)
    for _ in range(1 if settings.small else STEPS_BEFORE_SEARCH):
        step()
    sentences = search_sentences(1 if settings.small else NUM_SENTENCES)
    for beam, words in ((3, 2),) if settings.small else beams:
        yield search_work(model.eval(), sentences, beam, words)


def search_work(model: GenerativeParser, sentences: Sequence[Sequence[str]], beam: int, words: int) -> Work:
    """One search of all sentences."""

    def step() -> int:
        model.search = SearchConfig(action_beam=beam, word_beam=words, fast_track=1 if beam < 1000 else 10)
        model.score(sentences)
        return sum(map(len, sentences))

    return Work(name=f"treelm {model.system} search, k {beam}, k_w {words}", unit="words", step=step, warm_up=1)


def stream(system: str) -> Callable[[Settings], Iterator[Work]]:
    """Words a second of a system of the PTB recipe's size, on random tokens."""

    def works(settings: Settings) -> Iterator[Work]:
        for name in PRECISIONS:
            yield stream_work(system, name, settings)
        if settings.device == "cuda":
            yield stream_work(system, "fp32", settings, graphs=True)

    return works


def stream_work(system: str, name: str, settings: Settings, *, graphs: bool = False) -> Work:
    """Updates on segments of the paper's size; with ``graphs``, loops over steps are CUDA graphs."""
    torch.manual_seed(1)
    recipe = load_recipe(RECIPES[system_class(system).system], _SMALL[system] if settings.small else ())
    vocabulary_size, (rows, bptt) = (20, (2, 3)) if settings.small else (VOCABULARY_SIZE, PAPER_BATCH[system])
    vocabulary = WordVocabulary([f"w{number}" for number in range(vocabulary_size - 2)])
    build: Any = system_class(system)
    model: StreamLM = build(recipe.model.config, vocabulary=vocabulary).to(settings.device).train()
    update, batches, carried = trainer(model), random_batches(vocabulary_size, bptt, rows), None

    def step() -> int:
        nonlocal carried
        batch = next(batches)
        with precision(name, settings), cuda_graphs(wanted=graphs):
            losses, carried = model.stream_losses(batch, carried)
        update(losses, batch.num_targets)
        return rows * bptt

    paper = "awd-lstm" if system == "lstm" else system
    how = f"{name}, CUDA graphs" if graphs else name
    return Work(name=f"treelm {paper} training, {rows} x {bptt}, {how}", unit="words", step=step)

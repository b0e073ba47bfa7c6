"""The public codes of AWD-LSTM, ON-LSTM and PRPN, trained as ours were for docs/research/stream-models.md.

git clone https://github.com/salesforce/awd-lstm-lm CODE/awd-lstm-lm  (yikangshen/Ordered-Neurons, yikangshen/PRPN)
python benchmarks/streams_public.py --code CODE --text FOLDER --trees TRAIN DEV TEST --out runs/streams-public

Nothing of theirs is here but names: their networks run as they are, in float32 on one thread, with a loop around them
that does in an epoch what their training scripts do; only updates count as processor time. The same tokens, sizes,
dropouts, vocabulary and dev targets as ours, and the same readers and scores of trees. What a newer torch asks
for is in ``_awd_lstm``, ``_on_lstm`` and ``_prpn``. A finished run is kept; the table has means and deviations.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import exp
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from unittest.mock import patch

import numpy as np
import one_line
import torch
from public_codes import detached, import_public
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.evaluation.evalb_files import Bracketing, bracketing_of
from treelm.evaluation.span_protocols import WSJ10, WSJ40, score_spans
from treelm.io.files import read_text
from treelm.trees.distances import tree_from_distances

FOLDERS = {"awd-lstm": "awd-lstm-lm", "on-lstm": "Ordered-Neurons", "prpn": "PRPN"}
END = "</s>"
UNKNOWN = "<unk>"
FINISHED = "finished.json"
F1 = tuple(f"{protocol.name} {builder}" for protocol in (WSJ10, WSJ40) for builder in ("unbiased", "biased"))
DEV_ROWS = 10


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to run."""

    code: Path
    """Folder with clones of the public codes."""
    text: Path
    """Folder with ptb.train.txt and ptb.valid.txt (or .gz)."""
    rows: tuple[str, ...] = tuple(FOLDERS)
    """Which codes."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of every row."""
    out: Path = Path("runs/streams-public")
    """Folder of all runs."""
    trees: tuple[Path, ...] = ()
    """Bracket files with which the trees of ON-LSTM and PRPN are compared."""
    max_sentences: int = 13_427
    """Train on the first sentences of the file; by default those of 300,000 words and ends."""
    cpu_seconds: float = 800.0
    """Processor time in updates of the weights, of a run."""


@dataclass
class Public:
    """A public network with what its training script does around it."""

    network: Any
    forward: Callable[[Tensor, Any], tuple[Tensor, Any]]  # (time, rows) and state to logits and state
    epoch: Callable[[Tensor, float], bool]  # one pass over (time, rows) until a processor time; False when cut off
    distances: Callable[[], Tensor] | None  # of the sentence that was read last, (time,)
    after_dev: Callable[[float], None] = lambda nats: None
    bptt: int = 70


def main(options: Arguments) -> None:
    """Do the runs that are missing, seed by seed, and print the table of all that are done."""
    torch.set_num_threads(1)
    for seed in options.seeds:
        for row in options.rows:
            if not (_folder(options, row, seed) / FINISHED).exists():
                _run(options, row, seed)
    _print_table(options)


def _folder(options: Arguments, row: str, seed: int) -> Path:
    return options.out / f"public-{row}-{seed}"


def _run(options: Arguments, row: str, seed: int) -> None:
    folder, run = options.code / FOLDERS[row], _folder(options, row, seed)
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), remedy="clone the public code there")
    beginning = _symbols(options.text, "train", options.max_sentences)
    words = {word: number for number, word in enumerate(sorted({*beginning, UNKNOWN}))}
    train, dev = (
        torch.tensor([words.get(word, words[UNKNOWN]) for word in one])
        for one in (beginning, _symbols(options.text, "valid"))
    )
    torch.manual_seed(seed)
    np.random.seed(seed)
    public = {"awd-lstm": _awd_lstm, "on-lstm": _on_lstm, "prpn": _prpn}[row](options.code, len(words))
    batches = train[: len(train) // 20 * 20].view(20, -1).t().contiguous()
    run.mkdir(parents=True, exist_ok=True)
    used, epoch, best, goes_on = 0.0, 0, float("inf"), True
    with (run / "curve.jsonl").open("w") as curve:
        while goes_on and used < options.cpu_seconds:
            public.network.train()
            begun = time.process_time()
            goes_on = public.epoch(batches, begun + options.cpu_seconds - used)
            used += time.process_time() - begun
            epoch += goes_on  # complete ones, as ours
            nats = _dev(public, dev, words[END])
            public.after_dev(nats)
            figures = {"epoch": epoch, "cpu_seconds": used, "dev_perplexity": exp(nats), "targets": len(dev) // 10 * 10}
            curve.write(json.dumps(figures) + "\n")
            curve.flush()
            if nats < best:
                best = nats
                torch.save(public.network.state_dict(), run / "best.pt")
    public.network.load_state_dict(torch.load(run / "best.pt"))
    figures |= {"dev_perplexity": exp(best), "num_parameters": sum(one.numel() for one in public.network.parameters())}
    if public.distances is not None and options.trees:
        figures |= _judge(public, words, options.trees)
    (run / FINISHED).write_text(json.dumps(figures))


def _symbols(text: Path, split: str, max_sentences: int | None = None) -> list[str]:
    """Words and ends of the sentences of a split of Mikolov's text, or of the first ones."""
    plain = text / f"ptb.{split}.txt"
    lines = read_text(plain if plain.exists() else plain.with_name(plain.name + ".gz")).splitlines()
    sentences = (line.split() for line in lines if line.split())
    return [symbol for sentence in islice(sentences, max_sentences) for symbol in (*sentence, END)]


@torch.no_grad()
def _dev(public: Public, dev: Tensor, end: int) -> float:
    """Nats a target, in ten rows, each from the zero state and an end of sentence; every target once."""
    public.network.eval()
    rows = dev[: len(dev) // DEV_ROWS * DEV_ROWS].view(DEV_ROWS, -1).t()
    inputs = torch.cat([torch.full((1, DEV_ROWS), end), rows[:-1]])
    state, total = public.network.init_hidden(DEV_ROWS), 0.0
    for start in range(0, len(rows), public.bptt):
        logits, state = public.forward(inputs[start : start + public.bptt], state)
        targets = rows[start : start + public.bptt].reshape(-1)
        total += functional.cross_entropy(logits, targets, reduction="sum").item()
    return total / rows.numel()


@torch.no_grad()
def _judge(public: Public, words: dict[str, int], files: Sequence[Path]) -> dict[str, float]:
    """Unlabelled F1 of its trees: a sentence is read between two ends, as their tests do."""
    assert public.distances is not None
    public.network.eval()
    sentences = [one for file in files for one in read_sentences(file, preprocess="prpn") if one.words]
    found: dict[str, list[Any]] = {"unbiased": [], "biased": []}
    for sentence in sentences:
        tokens = [words[END], *(words.get(word, words[UNKNOWN]) for word in sentence.words), words[END]]
        public.forward(torch.tensor(tokens)[:, None], public.network.init_hidden(1))
        distances = public.distances()[1:-1].tolist()
        for builder, trees in found.items():
            trees.append(bracketing_of(tree_from_distances(sentence.words, distances, builder=builder)))  # type: ignore[arg-type]
    gold = [_gold(one) for one in sentences]
    return {
        f"{protocol.name} {builder}": score_spans(gold, trees, protocol).sentence_f1
        for builder, trees in found.items()
        for protocol in (WSJ10, WSJ40)
    }


def _gold(sentence: Sentence) -> Bracketing:
    if sentence.tree is None:
        raise InputError("a sentence without a tree", where=sentence.where, remedy="give files of trees")
    return bracketing_of(sentence.tree, tags=sentence.tags, where=sentence.where)


def _print_table(options: Arguments) -> None:
    """Best dev perplexity within the time, F1 and complete epochs: means and deviations over seeds."""
    print("row", "parameters", "dev perplexity", *F1, "epochs", "runs", sep="\t")
    for row in options.rows:
        files = [_folder(options, row, seed) / FINISHED for seed in options.seeds]
        runs = [json.loads(file.read_text()) for file in files if file.exists()]
        if runs:
            names = ("dev_perplexity", *F1, "epoch")
            figures = [_spread([one[name] for one in runs if name in one]) for name in names]
            print(row, runs[0]["num_parameters"], *figures, len(runs), sep="\t")


def _spread(values: Sequence[float]) -> str:
    """Mean and deviation; a value alone has none."""
    if len(values) > 1:
        return f"{mean(values):.1f} ± {stdev(values):.1f}"
    return f"{values[0]:.1f}" if values else "-"


def _awd_lstm(code: Path, num_words: int) -> Public:
    dropped = import_public(code, FOLDERS["awd-lstm"], "weight_drop").WeightDrop

    def set_weights(module: Any) -> None:  # a weight that was a Parameter in evaluation cannot be a Tensor afterwards
        for name in module.weights:
            weight = getattr(module.module, name + "_raw")
            setattr(module.module, name, functional.dropout(weight, p=module.dropout, training=module.training) * 1)

    dropped._setweights = set_weights
    network = import_public(code, FOLDERS["awd-lstm"], "model").RNNModel(
        "LSTM", num_words, 200, 400, 3, 0.3, 0.2, 0.3, 0.1, 0.5, True
    )
    return _merity(network, import_public(code, FOLDERS["awd-lstm"], "splitcross"), None)


def _on_lstm(code: Path, num_words: int) -> Public:
    cell = import_public(code, FOLDERS["on-lstm"], "ON_LSTM").LinearDropConnect

    def sample_mask(module: Any) -> None:  # masks are bool now
        mask = torch.empty_like(module.weight, dtype=torch.bool).bernoulli_(module.dropout)
        module._weight = module.weight.masked_fill(mask, 0.0)

    cell.sample_mask = sample_mask
    network = import_public(code, FOLDERS["on-lstm"], "model").RNNModel(
        "LSTM", num_words, 200, 400, 10, 3, 0.3, 0.2, 0.3, 0.1, 0.4, True
    )
    splitcross = import_public(code, FOLDERS["on-lstm"], "splitcross")
    return _merity(network, splitcross, lambda: network.distance[0][1].squeeze())


def _merity(network: Any, splitcross: Any, distances: Callable[[], Tensor] | None) -> Public:
    """The training script of both: SGD at 30, segments of about 70, activation regularisation, clipping at 0.25."""
    split = splitcross.SplitCrossEntropyLoss(200, splits=[], verbose=False)
    parameters = [*network.parameters(), *split.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=30, weight_decay=1.2e-6)

    def forward(tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, state = network(tokens, state)
        return functional.linear(hidden, network.decoder.weight, network.decoder.bias), state

    def epoch(batches: Tensor, until: float) -> bool:
        state, start = network.init_hidden(batches.shape[1]), 0
        while start < len(batches) - 2:
            length = max(5, int(np.random.normal(70 if np.random.random() < 0.95 else 35, 5)))
            length = min(length, len(batches) - 1 - start)
            state = detached(state)
            optimizer.param_groups[0]["lr"] = 30 * length / 70
            optimizer.zero_grad()
            targets = batches[start + 1 : start + 1 + length].reshape(-1)
            hidden, state, raw, kept = network(batches[start : start + length], state, return_h=True)
            loss = split(network.decoder.weight, network.decoder.bias, hidden, targets)
            loss = loss + 2 * kept[-1].pow(2).mean() + (raw[-1][1:] - raw[-1][:-1]).pow(2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.25)
            optimizer.step()
            start += length
            if time.process_time() > until:
                return False
        return True

    return Public(network, forward, epoch, distances)


def _prpn(code: Path, num_words: int) -> Public:
    """Its training script: Adam at 0.003 that is halved after three epochs without a better dev, segments of 35."""
    with patch.object(nn.modules.rnn, "RNNCellBase", nn.Module):  # the base of its cell asks for arguments now
        import_public(code, FOLDERS["prpn"], "LSTMCell").torch = torch  # type: ignore[attr-defined]
    network = import_public(code, FOLDERS["prpn"], "model_PRPN").PRPN(
        num_words, 200, 400, 2, 15, 5, 0.1, 0.3, 0.3, 0.2, True, True, 0
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3, betas=(0.0, 0.999), eps=1e-9, weight_decay=1e-6)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", 0.5, patience=2, threshold=0)

    def forward(tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = network(tokens, state)
        return logits.view(-1, num_words), state

    def epoch(batches: Tensor, until: float) -> bool:
        state = network.init_hidden(batches.shape[1])
        for start in range(0, len(batches) - 1, 35):
            length = min(35, len(batches) - 1 - start)
            optimizer.zero_grad()
            logits, state = forward(batches[start : start + length], detached(state))
            functional.cross_entropy(logits, batches[start + 1 : start + 1 + length].reshape(-1)).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            if time.process_time() > until:
                return False
        return True

    return Public(network, forward, epoch, lambda: network.gates.squeeze(), schedule.step, 35)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))

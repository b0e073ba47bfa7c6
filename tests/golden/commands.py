"""Parts of the record that are calls of the command line, on models of the package and on tiny runs of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from tests.golden.record import Record

Part = Callable[[Record], None]
WORDS = ("lstm-gum-open", "ngram-gum-open", "lstm-open-english", "ngram-pruned-open-english-2", "on-lstm-open-english")
WORDS += ("palm-open-english", "prpn-open-english", "som-open-english", "transformer-open-english")
SEARCHED = ("rnng-gum-open", "rnng-open-english", "tg-open-english", "pushdown-open-english")
PARSERS = ("chart-gum-open", "on-lstm-open-english", "palm-open-english", "prpn-open-english", "som-open-english")
BEAM = "--action-beam 10 --word-beam 5"
NARROW = "--action-beam 10 --word-beam 5 --fast-track 1"
KEYED = "--sentence-column item condition"
FORMS = "words.csv --word-column form --sentence-column item"
OF_TABLE = "--document-column text --sentence-column sentence"
TIMES = f"--corpus times.csv {OF_TABLE}"
RECIPE = """\
[data]
train = "dev.ptb"
dev = "dev.ptb"
test = "dev.ptb"
[vocabulary]
min_count = 1
[model]
system = "{system}"
{model}
[training]
max_steps = 6
batch_size = 4
learning_rate = 0.02
log_every_steps = 1
checkpoint_every_steps = 3
threads = 1
"""
SMALL = "embedding_size = 12\nhidden_size = 12\nnum_layers = 1\n"
SIZES = {"lstm": SMALL, "rnng": f"{SMALL}max_open = 40\nmax_consecutive = 20\n", "prpn": f"{SMALL}num_slots = 4\n"}


def surprisal(record: Record, models: tuple[str, ...], options: str) -> None:
    """Tables of every model: plain, with all that may stand in them, and of documents."""
    for model in models:
        record.call(f"{model}-plain", f"surprisal {model} text.txt {options}")
        record.call(f"{model}-end", f"surprisal {model} dev.ptb --end {options}")
        record.call(f"{model}-entropy", f"surprisal {model} document.txt --columns next_entropy_bits {options}")
        record.call(f"{model}-document", f"surprisal {model} document.txt --context document {options}")


def surprisal_tables(record: Record) -> None:
    """Stimuli of every layout."""
    two, of = "surprisal lstm-gum-open ngram-gum-open", "surprisal ngram-gum-open"
    columns = "word_length unigram_surprisal_bits zipf_frequency"
    for name, line in {
        "output": f"{of} text.txt --output out.tsv",
        "csv": f"{of} text.txt --output out.csv",
        "two-wide": f"{two} {FORMS} --punctuation summed",
        "two-long": f"{two} {FORMS} --punctuation summed --shape long --names one two",
        "left-out": f"{of} {FORMS} --punctuation left-out",
        "apart": f"{of} {FORMS} --punctuation apart",
        "lag": f"{of} {FORMS} --lag 2 --output lagged.csv",
        "lag-all": f"{two} {FORMS} --lag 1 --columns word_length",
        "regions": f"{of} stimuli.tsv {KEYED}",
        "regions-rnng": f"surprisal rnng-gum-open stimuli.tsv {KEYED} --columns open_nodes entropy_bits {NARROW}",
        "documents": f"{of} times.csv --layout table {OF_TABLE} --context document",
        "lag-documents": f"{of} times.csv --document-column text --sentence-column text sentence --lag 1"
        " --lag-within document",
        "frequencies": f"{of} text.txt --columns {columns} --frequencies unigram.tsv",
        "words": f"{of} document.txt --layout words",
        "split": f"{of} running.txt --split-sentences en",
        "brackets": f"{of} dev.ptb",
        "conllu": f"{of} dev.conllu",
        "skip": f"{of} broken.ptb --on-error skip",
        "stdin": f"{of} -",
        "processes": f"{of} text.txt --processes 2 --batch-size 2",
        "chart": "surprisal chart-gum-open text.txt",
    }.items():
        (record.folder / "broken.ptb").write_text(
            "(S (NP (D The) (N dog)) (VP (V barks)))\n(S (NP (D The\n(S (N It))\n"
        )
        record.call(name, line, stdin="The city was old .\n")


def surprisal_search(record: Record) -> None:
    """Kinds and widths of search."""
    columns = "--columns entropy_bits open_nodes beam_loss_bits beam_bound_bits beam_converged num_actions num_reduces"
    for model in ("rnng-gum-open", "pushdown-open-english"):
        record.call(f"{model}-adaptive", f"surprisal {model} document.txt")
        record.call(f"{model}-threshold", f"surprisal {model} document.txt --threshold 4")
        record.call(f"{model}-fixed", f"surprisal {model} document.txt --action-beam 20 {columns}")
        particles = "--search particles --num-particles 50 --search-seed 3"
        record.call(f"{model}-particles", f"surprisal {model} document.txt {particles}")
        record.call(f"{model}-bf16", f"surprisal {model} document.txt {NARROW} --search-precision bf16")
    record.call("released", f"surprisal rnng-gum-open document.txt {NARROW} --search released")


def parse(record: Record) -> None:
    """Trees of every model that has some, as brackets, drawings and pictures."""
    for model in PARSERS:
        record.call(model, f"parse {model} text.txt")
    for model in SEARCHED:
        record.call(model, f"parse {model} text.txt {BEAM}")
    record.call("drawing", "parse chart-gum-open text.txt --show drawing")
    record.call("figure", "parse chart-gum-open document.txt --figure tree.svg --output trees.ptb")
    record.call("processes", "parse chart-gum-open text.txt --processes 2 --batch-size 2")
    record.call("treebank", "parse som-open-english dev.ptb --tags present")
    record.call("no-trees", "parse ngram-gum-open text.txt")


def evaluate(record: Record) -> None:
    """Perplexities and F1, of runs and of two files."""
    for model in ("chart-gum-open", "lstm-gum-open", "palm-open-english", "som-open-english", "ngram-gum-open"):
        record.call(model, f"evaluate {model} --data gold.ptb --json")
    for model in ("rnng-gum-open", "pushdown-open-english"):
        record.call(model, f"evaluate {model} --data gold.ptb --json --max-sentences 6 {NARROW}")
    record.call(
        "table", f"evaluate rnng-gum-open --data gold.ptb --max-sentences 4 {NARROW} --trees out --summary s.tsv"
    )
    record.call("split", "evaluate ngram-gum-open --split dev --max-sentences 30 --json")
    record.call("text", "evaluate lstm-gum-open --data text.txt")
    record.call("stream", "evaluate lstm-gum-open --data dev.ptb --stream beside --stream-rows 2 --json")
    cache = "--stream beside --cache-weight 0.1 --cache-theta 0.3"
    record.call("cache", f"evaluate lstm-gum-open --data dev.ptb {cache} --json")
    record.call(
        "protocols", "evaluate on-lstm-open-english --data gold.ptb --protocol wsj10 klein plain binarised --json"
    )
    record.call("predict", "parse chart-gum-open gold.ptb --output predicted.ptb")
    for params in ("collins", "new"):
        record.call(params, f"evaluate --gold gold.ptb --predicted predicted.ptb --sentences --json --params {params}")
    record.call("files", "evaluate --gold gold.ptb --predicted predicted.ptb")


def compare(record: Record) -> None:
    """Several runs in one table, in every form."""
    runs = "lstm-gum-open ngram-gum-open chart-gum-open"
    line = f"compare {runs} --data dev.ptb --max-sentences 5 {NARROW} --pairs pairs.tsv --output out"
    line += " --syntaxgym number_prep"
    record.call("json", f"{line} --format json", files=False)
    made = json.loads((record.folder / "out" / "comparison.json").read_text())
    record.hidden = {
        shown
        for run in made["runs"]
        if (speed := run["values"].get("scoring_words_per_second"))
        for shown in (str(speed), f"{speed:,.0f}")
    }
    for form in ("csv", "markdown", "latex", "table"):
        record.call(form, f"{line} --format {form}", files=False)
    record.call("wide", f"{line} --wide", files=False)
    record.call("report", f"{line} --report report.html --sentences text.txt", shown=False)
    record.call(
        "rnng", f"compare rnng-gum-open som-open-english --data dev.ptb --max-sentences 3 {NARROW} --format json"
    )
    record.call("gardenpath", "compare lstm-gum-open ngram-gum-open --data dev.ptb --gardenpath --format json")


def pairs(record: Record) -> None:
    """Minimal pairs from tables and JSON lines."""
    record.call("jsonl", "pairs lstm-gum-open ngram-gum-open pairs.jsonl --json --items items.tsv")
    record.call("tsv", "pairs lstm-gum-open pairs.tsv --group-by kind")
    record.call("blanks", "pairs ngram-gum-open pairs.tsv --group-by kind --tokenisation whitespace --json")
    record.call("rnng", f"pairs rnng-gum-open pairs.tsv --json {NARROW}")
    record.call("transformer", "pairs transformer-open-english som-open-english pairs.tsv --names one two --wide")


def syntaxgym(record: Record) -> None:
    """Suites by several systems, and from a table of surprisals."""
    of = "--suites number_prep --processes 1"
    record.call("json", f"syntaxgym lstm-gum-open ngram-gum-open {of} --json --items items.tsv")
    record.call("table", f"syntaxgym lstm-gum-open {of} --references rnng/bllip-lg --with-end --wide")
    record.call("rnng", f"syntaxgym rnng-gum-open --suites center_embed --processes 1 --json {NARROW}")
    record.call("sentences", f"syntaxgym --sentences {of}", files=False)
    record.call("blanks", f"syntaxgym ngram-gum-open {of} --json --tokenisation whitespace")


def gardenpath(record: Record) -> None:
    """Garden paths of the packaged benchmark."""
    record.call("json", "gardenpath ngram-gum-open --json --items items.csv")
    record.call("table", "gardenpath lstm-gum-open ngram-gum-open --subsets garden-path agreement")
    record.call("stimuli", "gardenpath --stimuli --subsets attachment")
    record.call("alone", "gardenpath ngram-gum-open --subsets relative-clause --references none --as-written --wide")


def reading(record: Record) -> None:
    """Prediction of the reading times of a table."""
    record.call("json", f"reading ngram-gum-open {TIMES} --json --export words.csv")
    record.call("table", f"reading ngram-gum-open lstm-gum-open {TIMES} --over ngram-gum-open")
    record.call("lags", f"reading lstm-gum-open {TIMES} --lags 1 --context document --lag-within document --wide")
    record.call("bits", f"surprisal ngram-gum-open times.csv --layout table {OF_TABLE} --output bits.tsv", files=False)
    record.call("given", f"reading bits.tsv {TIMES} --known-only --json")


def generate(record: Record) -> None:
    """Sentences drawn from a seed."""
    for model in ("lstm-gum-open", "ngram-gum-open", "prpn-open-english", "transformer-open-english"):
        record.call(model, f"generate {model} --num-sentences 4 --seed 5 --max-words 15")
    record.call("rnng", f"generate rnng-gum-open --num-sentences 2 --seed 5 --max-words 8 --trees {NARROW}")
    record.call("top-p", "generate lstm-gum-open --num-sentences 3 --temperature 0.7 --top-p 0.8 --output drawn.txt")


def annotate(record: Record) -> None:
    """Silver trees, with confidence and without."""
    to = "--output out.ptb"
    record.call("chart", f"data annotate text.txt --parser chart-gum-open {to}")
    record.call("gz", "data annotate running.txt --parser chart-gum-open --tokenise --documents --output t.ptb.gz")
    record.call("doubt", "data annotate text.txt --parser chart-gum-open --min-confidence 0.9 --output sure.ptb")
    record.call("rnng", f"data annotate document.txt --parser rnng-gum-open --on-error flat --output r.ptb {NARROW}")
    record.call(
        "words", "data annotate text.txt --parser som-open-english --max-words 8 --on-error skip --output w.ptb"
    )


def data(record: Record) -> None:
    """Corpora: listed, shown, counted, prepared, cut into sections, put on a text."""
    for action in ("list", "show gum-open", "statistics gum-open", "statistics dev.ptb", "statistics dev.conllu"):
        record.call(action.replace(" ", "-"), f"data {action}")
    for name in ("dev.ptb", "dev.conllu", "text.txt"):
        record.call(f"prepare-{name}", f"data prepare {name} --output prepared-{name.replace('.', '-')}")
    record.call("mikolov", "data prepare dev.ptb --preprocess mikolov --output mikolov")
    record.call("upos", "data prepare dev.conllu --dependency-labels upos --output upos")
    for section in range(25):
        folder = record.folder / f"wsj/{section:02}"
        folder.mkdir(parents=True)
        tree = (
            f"( (S (NP-SBJ (DT The) (NN dog{section}) ) (VP (VBD slept) (NP (CD 1,2{section}) (NNS hours) )) (. .) ))\n"
        )
        (folder / f"wsj_{section:02}01.mrg").write_text(tree)
    record.call("sections", "data sections wsj --splits ptb-lm --output ptb")
    (record.folder / "lm.txt").write_text("the dog0 slept N hours\n\nthe <unk> slept N hours\nthe <unk> of it\n")
    record.call("align", "data align ptb/train.ptb --text lm.txt --output aligned.ptb")


def train(record: Record) -> None:
    """Training, stopping and going on, and what is asked of a fresh run; a packaged recipe for some steps."""
    for system, model in SIZES.items():
        (record.folder / f"{system}.toml").write_text(RECIPE.format(system=system, model=model))
        once, twice = f"train {system}.toml --output {system}-run", f"train {system}.toml --output {system}-again"
        record.call(f"{system}-once", f"{once} --quiet", files=False)
        record.call(f"{system}-first", f"{twice} --quiet --set training.max_steps=4", files=False)
        record.call(
            f"{system}-resume", f"train --resume {system}-again --quiet --set training.max_steps=6", files=False
        )
        for run in (f"{system}-run", f"{system}-again"):
            record.file(f"{run}.safetensors", record.folder / run / "model.safetensors")
        record.file(f"{system}-config.json", record.folder / f"{system}-run" / "config.json")
        record.call(f"{system}-evaluate", f"evaluate {system}-run --split dev test --json --max-sentences 4")
        record.call(f"{system}-audit", f"audit {system}-run text.txt --json")
    record.call("demo", "train lstm-demo --output demo --quiet --set training.max_steps=3", files=False)
    record.file("demo.safetensors", record.folder / "demo" / "model.safetensors")
    record.call("ngram", "train ngram-demo --output ngram --quiet", files=False)
    record.call("ngram-dev", "evaluate ngram --split dev --json --max-sentences 20")
    record.call("arpa", "export ngram-gum-open --to arpa --output x.arpa", files=False)
    with (record.folder / "x.arpa").open(encoding="utf-8") as file:
        record.text("x.arpa.start", "".join(line for number, line in enumerate(file) if number % 500 < 3))
    record.call("structure", "structure prpn-run --data dev.ptb --json --draws 2 --protocol wsj40")


def structure(record: Record) -> None:
    """What runs have learned of trees."""
    record.call("table", "structure on-lstm-open-english --data dev.ptb --draws 2")
    record.call("json", "structure prpn-open-english palm-open-english --data dev.ptb --draws 2 --json")
    record.call("rnng", f"structure rnng-gum-open --data dev.ptb --json --max-sentences 4 --draws 1 {NARROW}")


def others(record: Record) -> None:
    """Models, audits, exports, papers, completion, help; of measurements only that they work."""
    record.call("models", "models")
    record.call("model", "models rnng-gum-open")
    for model in ("lstm-gum-open", "ngram-gum-open", "som-open-english"):
        record.call(f"audit-{model}", f"audit {model} text.txt --json")
    record.call("audit", "audit rnng-gum-open document.txt --num-sentences 1")
    record.call("export", "export lstm-gum-open --to transformers --output exported", files=False)
    record.file("exported.safetensors", record.folder / "exported" / "model.safetensors")
    (record.folder / "data").mkdir()
    for paper in ("rnng", "som", "prpn", "palm", "tg", "pushdown", "unsupervised", "variants"):
        record.call(f"reproduce-{paper}", f"reproduce {paper} --small --budget 0 --data data --output reproduced")
    record.call("completion", "completion bash", shown=False)
    record.call("version", "--version")
    record.call("doctor", "doctor", shown=False)


PARTS: dict[str, Part] = {
    "cli-surprisal-words": partial(surprisal, models=WORDS, options=""),
    "cli-surprisal-search": surprisal_search,
    **{
        f"cli-surprisal-{name.split('-')[0]}-{name.split('-')[1]}": partial(surprisal, models=(name,), options=NARROW)
        for name in SEARCHED
    },
    "cli-surprisal-tables": surprisal_tables,
    **{
        f"cli-{part.__name__}": part
        for part in (
            parse,
            evaluate,
            compare,
            pairs,
            syntaxgym,
            gardenpath,
            reading,
            generate,
            annotate,
            data,
            train,
            structure,
            others,
        )
    },
}

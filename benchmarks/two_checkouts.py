"""RNNG work by two checkouts of treelm in turns, for changes that should change no time: JSON lines.

python benchmarks/two_checkouts.py OLD/.venv/bin/python NEW/.venv/bin/python --rounds 8
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import one_line

from treelm.cli.arguments import Positional

_PREPARE = """
import gzip, itertools, tempfile, time
from pathlib import Path
import torch, treelm
torch.set_num_threads(1)
"""
_MODEL = """
from treelm.models.search.config import SearchConfig
from treelm.corpora.readers import read_sentences
file = Path(treelm.__file__).parent / "data/gum-open/dev.ptb.gz"
words = (list(one.words) for one in read_sentences(file))
sentences = [one for one in itertools.islice(words, 60) if 5 <= len(one) <= 25][:8]
lm = treelm.load("rnng-gum-open")
lm.search = SearchConfig(action_beam=100, word_beam=10, fast_track=1)
lm.score(sentences[:1])
"""
WORK = {
    "training: 30 updates of the demo's RNNG, fp32": """
from treelm.training.distributed import ProcessGroup
from treelm.training.prepare import set_up
from treelm.training.recipe import load_recipe
from treelm.training.trainer import Trainer
recipe = load_recipe("demo", ["training.precision=fp32", "training.threads=1", "training.max_steps=40"])
setup = set_up(recipe)
steps = Trainer(setup, Path(tempfile.mkdtemp()), ProcessGroup(recipe.training), resumes=False).steps()
list(itertools.islice(steps, 5))
begin = time.process_time()
list(itertools.islice(steps, 30))
""",
    "search: eight sentences, beam 100/10/1": f"""
{_MODEL}
begin = time.process_time()
lm.score(sentences)
""",
    "word by word: three sentences, next words too, beam 10/5/1": f"""
{_MODEL}
lm.search = SearchConfig(action_beam=10, word_beam=5, fast_track=1)
begin = time.process_time()
for words in sentences[:3]:
    state = lm.start()
    for word in words:
        state = lm.extend(state, [word])
        lm.next_word_log_probs(state)
""",
}
"""What is done -> the program, whose processor seconds count from ``begin`` on."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Two interpreters, each with its treelm."""

    before: Annotated[str, Positional("PYTHON_BEFORE")]
    """Python of the checkout to compare with."""
    after: Annotated[str, Positional("PYTHON_AFTER")]
    """Python of the changed checkout."""
    rounds: int = 8
    """Pairs of runs."""


def main(options: Arguments) -> None:
    """Print medians of processor seconds, and the median ratio of the pairs: above 1, the change is faster."""
    for name, program in WORK.items():
        pairs = [(_seconds(options.before, program), _seconds(options.after, program)) for _ in range(options.rounds)]
        before, after = zip(*pairs, strict=True)
        found = {
            "work": name,
            "before_seconds": round(median(before), 3),
            "after_seconds": round(median(after), 3),
            "ratio": round(median(one / other for one, other in pairs), 3),
            "ratios": [round(one / other, 3) for one, other in pairs],
        }
        print(json.dumps(found), flush=True)


def _seconds(python: str, program: str) -> float:
    ends = "\nprint(time.process_time() - begin, flush=True)\nimport os\nos._exit(0)\n"
    done = subprocess.run([python, "-c", _PREPARE + program + ends], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))

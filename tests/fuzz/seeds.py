"""Good files, small: what hostile ones are made of."""

from __future__ import annotations

import gzip
import hashlib
import json
from functools import cache
from typing import Any

from tests.legacy.make import HERE as RUNS

BRACKETS = (
    """\
(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))
( (S (NP-SBJ=1 (-NONE- *T*-1)) (NP (NNP Élan) (-LRB- -LRB-) (CD 1,000)) (VP (VBZ is) (ADJP (JJ good))) (. .)))
(ROOT
  (S
    (NP (PRP I))
    (VP (VBP think)
      (SBAR (IN that) (S (NP (PRP she)) (VP (VBD left)))))))
(FRAG (UH Oh))
""".encode(),
    b"( (S\n    (NP (DT A) (NN cat))\n    (VP (VBD slept)) ))\n\n( (X (FW etc.)))\n",
)
ARPA = b"""\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-1.5\t<unk>
-99\t<s>\t-0.3
-0.4\tdog\t-0.2
-0.6\t</s>

\\2-grams:
-0.1\t<s> dog
-0.5\tdog dog
-0.7\tdog </s>

\\end\\
"""
TAGLESS = (b"(S (NP The dog) (VP barks) .)\n(S (NP I) (VP think (SBAR that (S (NP she) (VP left)))))\n(X etc.)\n",)
CONLLU = (
    """\
# sent_id = one
# text = The dogs don't bark.
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tdogs\tdog\tNOUN\tNNS\t_\t5\tnsubj\t_\t_
3-4\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
3\tdo\tdo\tAUX\tVBP\t_\t5\taux\t_\t_
4\tn't\tnot\tPART\tRB\t_\t5\tadvmod\t_\t_
5\tbark\tbark\tVERB\tVB\t_\t0\troot\t_\t_
5.1\tloudly\t_\tADV\tRB\t_\t_\t_\t5:advmod\t_
6\t.\t.\tPUNCT\t.\t_\t5\tpunct\t_\t_

# sent_id = two
1\tÉté\tété\tNOUN\tNN\t_\t0\troot\t_\t_
2\t10 000\t_\tNUM\tCD\t_\t1\tnummod\t_\t_

1\tWhom\t_\tPRON\tWP\t_\t3\tobj\t_\t_
2\tdid\t_\tAUX\tVBD\t_\t4\taux\t_\t_
3\tsee\t_\tVERB\tVB\t_\t4\txcomp\t_\t_
4\tgo\t_\tVERB\tVB\t_\t0\troot\t_\t_
""".encode(),
)
TEXT = (
    "The dog barks .\n\n = Heading = \n\nÉlan \U0001f600 is <unk> @-@ N 1,000\u00a0km .\n \tShe left .\n".encode(),
    b"one two three",
)
TEXT8 = (b" anarchism originated as a term of abuse first used against early working class radicals" * 3,)
SURPRISALS = (
    b"sentence\tchar_start\tchar_end\tsurprisal_bits\tis_unk\n"
    b"The dog barks.\t0\t3\t3.25\t0\nThe dog barks.\t4\t7\t10.5\t1\nThe dog barks.\t8\t13\t7\t0\n"
    b"The dog barks.\t13\t14\t1e-3\t0\n"
    b'"Say ""no""!"\t0\t3\t4.5\t0\n"Say ""no""!"\t4\t9\t2.5\t0\n',
    b"char_end\tsurprisal_bits\tchar_start\tsentence\r\n3\t1.5\t0\tYes\r\n",
)
STIMULI = (
    'item,word_id,form,rt\n1,w1,The,3\n1,w2,"dog,",295\n1,w3,"say ""no""",35\n2,w1,New York,\n2,w2,Élan,29\n'.encode(),
    b'"item"\t"form"\n"a"\t"It"\n"a"\t""""\n"b"\t"didn\'t"\n',
)
READING_TIMES = (
    'text,item,word,rt,pos\n1,1,The,310.5,DT\n1,1,"dog,",NA,NN\n1,2,"say ""no""",350,VB\n2,1,Élan.,290,NN\n'.encode(),
    b"text\titem\tword\trt\tpos\n1\t1\tIt\t3e2\tPRP\n",
)
WORD_BITS = (
    b"story,position,surprisal_bits,is_unk\n1,2,3.5,0\n0,1,inf,1\n1,0,NA,0\n",
    b"word\tsurprisal_bits\nw0\t1\nw1\t2.5\nw2\t3\nw3\t4\nw4\t5\nw5\tNA\n",
)
PAIRS = (
    "test case\tgrammatical\tungrammatical\nagreement--simple\tthe dog barks\tthe dog bark\n"
    'agreement--prep\tthe dogs near me bark\tthe dogs near me barks\nanaphor--x\t"a \' b"\té b\n'.encode(),
)
BLIMP = (
    b'{"sentence_good": "Who left?", "sentence_bad": "Left who?", "field": "syntax", "linguistics_term": "islands", '
    b'"UID": "wh", "one_prefix_method": false, "pairID": "0"}\n'
    b'{"sentence_good": "Caf\\u00e9s close.", "sentence_bad": "Caf\\u00e9s closes.", "field": "morphology", '
    b'"linguistics_term": "agreement", "UID": "sv", "pairID": "1"}\n',
)


def _suite() -> dict[str, Any]:
    def condition(name: str, verb: str) -> dict[str, Any]:
        contents = ["The dog", "", verb, "."]
        regions = [{"region_number": n, "content": text} for n, text in enumerate(contents, 1)]
        return {"condition_name": name, "regions": regions}

    items = [
        {"item_number": n, "conditions": [condition("good", good), condition("bad", bad)]}
        for n, (good, bad) in enumerate((("barks", "bark"), ("sleeps", "sleep")), 1)
    ]
    predictions = [
        {"type": "formula", "formula": "(3;%good%) < (3;%bad%)"},
        {"type": "formula", "formula": "[(*;%good%) - 1.5 < (*;%bad%)] & (((1;%good%) + (3;%good%)) = (1;%bad%))"},
    ]
    return {"meta": {"name": "agreement", "metric": "sum"}, "predictions": predictions, "items": items}


SUITES = (
    json.dumps(_suite(), indent=1).encode(),
    json.dumps({"a": _suite() | {"meta": {}}, "b": _suite() | {"meta": {"metric": "mean"}}}).encode(),
    gzip.compress(json.dumps(_suite()).encode(), mtime=0),
)
CATALOGUE = (
    b'[mine]\nlicence = "CC0"\ndescription = "my own"\n'
    b'train.brackets = {path = "train.ptb"}\n'
    b'test.text = {path = "/a/b.txt"}\n',
)


@cache
def of_runs(name: str, *runs: str) -> tuple[bytes, ...]:
    """A file of old runs."""
    return tuple((RUNS / run / name).read_bytes() for run in runs)


TOKENIZER = json.dumps(
    {
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": "[CLS]", "special": True}],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "model": {
            "type": "Unigram",
            "unk_id": 1,
            "vocab": [["[CLS]", 0.0], ["<unk>", 0.0], ["▁", -2.0], ["d", -3.5], ["og", -4.0], ["▁do", -2.5]],
            "byte_fallback": False,
        },
    }
).encode()


def recipes() -> tuple[bytes, ...]:
    """Recipes as people write them and as runs keep them."""
    return (
        b'[data]\ncorpus = "gum-open"\nmax_sentences = 10\n[vocabulary]\nmin_count = 2 # rare\n[model]\n'
        b'system = "rnng"\nembedding_size = 16\ndropout = 0.1\nbounds_margin = 3\n[training]\nepochs = 2\n'
        b'betas = [0.9, 0.99]\nmax_minutes = 1.5\nno_weight_decay = ["*bias"]\n[evaluation]\nsplits = ["dev"]\n',
        *of_runs("recipe.toml", "lstm", "prpn", "som", "ngram", "shift-reduce"),
    )


def seal_vocabulary(content: bytes) -> bytes:
    """The file with the right fingerprint, if it is JSON at all."""
    try:
        values = json.loads(content)
        text = json.dumps(values["vocabulary"], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        values["fingerprint"] = hashlib.sha256(text.encode()).hexdigest()
        return json.dumps(values).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return content


def seal_state(content: bytes) -> bytes:
    """A checkpoint's state with the right hash, if it is JSON at all."""
    try:
        values = json.loads(content)
        values.pop("sha256", None)
        values["sha256"] = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        return json.dumps(values).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return content


def seal_tensors(content: bytes) -> bytes:
    """A safetensors file whose header has the length that it says it has."""
    end = content.find(b"}}", 8) + 2
    while 8 < end < len(content) and content[end : end + 1] == b" ":
        end += 1
    return (end - 8).to_bytes(8, "little") + content[8:] if end > 10 else content


@cache
def prepared_meta() -> bytes:
    """The description of a prepared corpus."""
    import tempfile
    from pathlib import Path

    from treelm.corpora.preparing import prepare

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.ptb"
        source.write_bytes(BRACKETS[0])
        prepare([source], Path(folder) / "made")
        return (Path(folder) / "made" / "meta.json").read_bytes()

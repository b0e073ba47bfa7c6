"""The server answers word by word what the models say, and lets nobody else in."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.explorer.calls import HERE as HERE_NAME
from tests.explorer.calls import Answer, call
from tests.legacy.make import HERE
from tests.shipped import need
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.explorer.page import PANELS
from treelm.explorer.reading import KEPT, Reader, Step
from treelm.explorer.sentences import Limits, sentences_of

pytest.importorskip("starlette", reason="the extra treelm[explore] is not installed")

import uvicorn

from treelm.explorer.server import Asked, Explorer, _bound, _Impatient, application
from treelm.inference.loading import load
from treelm.inference.stimuli import split, stimulus
from treelm.models.base import LanguageModel
from treelm.models.states import IncrementalState

TOKEN = "secret"
MODELS = {
    **{name: f"{name}-gum-open" for name in ("lstm", "rnng")},
    **{name: str(HERE / name) for name in ("prpn", "palm", "som")},
}
NAMES = tuple(MODELS)
TEXT = "The dog that the cats chase barks.\nIt <b>isn't</b> here."
WORDS = [
    ["The", "dog", "that", "the", "cats", "chase", "barks", "."],
    ["It", "<", "b", ">", "is", "n't", "<", "/", "b", ">", "here", "."],
]


@pytest.fixture(scope="module")
def readers() -> Iterator[list[Reader]]:
    need("lstm-gum-open", "rnng-gum-open")
    found = [Reader(name, load(model)) for name, model in MODELS.items()]
    yield found
    for reader in found:
        reader.close()


def ask(readers: Sequence[Reader], path: str, body: object = None, *, limits: Limits | None = None) -> Answer:
    return asyncio.run(call(application(readers, limits or Limits(), TOKEN), f"/{TOKEN}/{path}", body))


def asked(text: str = TEXT, runs: Sequence[int] = range(len(NAMES)), at: object = None) -> dict[str, object]:
    return {"text": text, "runs": list(runs), "at": at}


@pytest.fixture(scope="module")
def events(readers: list[Reader]) -> list[dict[str, Any]]:
    return ask(readers, "read", asked()).events()


def test_words_come_first_and_every_model_reads_every_word_in_its_order(events: list[dict[str, Any]]) -> None:
    assert events[0] == {"event": "text", "sentences": WORDS, "at": [1, 11]}
    assert events[-1] == {"event": "done"}
    expected = [(sentence, word) for sentence in (1, 0) for word in range(len(WORDS[sentence]))]
    for run in range(len(NAMES)):
        own = [one for one in events if one.get("run") == run]
        read = [(one["sentence"], one["word"]) for one in own if one["event"] == "word"]
        assert read == expected, "the sentence in view comes first"
        (look,) = (place for place, one in enumerate(own) if one["event"] == "look")
        assert look == len(WORDS[1]), "models are looked at as soon as the sentence in view has been read"


def test_surprisals_are_those_of_the_models(events: list[dict[str, Any]], readers: list[Reader]) -> None:
    for run, reader in enumerate(readers):
        for sentence, whole in enumerate(reader.lm.surprisal(WORDS)):
            found = [one for one in events if (one.get("run"), one.get("sentence")) == (run, sentence)]
            bits = [word.surprisal_bits for word in whole.words]
            assert [one["bits"] for one in found] == pytest.approx(bits, abs=1e-6)
            assert [one["unknown"] for one in found] == [word.unk_class for word in whole.words]


def test_each_model_has_the_cards_of_what_it_has(events: list[dict[str, Any]]) -> None:
    cards = {NAMES[one["run"]]: set(one["cards"]) for one in events if one["event"] == "look"}
    assert cards == {
        "lstm": {"next"},
        "rnng": {"next", "trees", "beam"},
        "prpn": {"next", "trees", "distances"},
        "palm": {"next", "trees", "attention-over-spans"},
        "som": {"next", "trees", "memory"},
    }
    of_others = {"what-positions-see", "stack-and-tape"}  # of Transformers, tested in tests/figures
    assert {name for found in cards.values() for name in found} == {panel.identifier for panel in PANELS} - of_others


def test_a_word_that_is_chosen_is_looked_at_as_if_nothing_followed(readers: list[Reader]) -> None:
    chosen = ask(readers, "read", asked(at=[0, 3])).events()
    alone = ask(readers, "read", asked("The dog that the")).events()
    assert chosen[0]["at"] == [0, 3]
    looks = [{one["run"]: one["cards"] for one in found if one["event"] == "look"} for found in (chosen, alone)]
    assert looks[0] == looks[1]
    assert len(looks[0]) == len(NAMES)


def test_the_beam_shows_open_constituents_and_shares(readers: list[Reader]) -> None:
    (look,) = (one for one in ask(readers, "read", asked("The dog that", [1])).events() if one["event"] == "look")
    beam = ElementTree.fromstring(look["cards"]["beam"].replace("\N{NO-BREAK SPACE}", " "))
    drawn = beam.findall(".//li")
    state = readers[1].lm.start()
    for word in ("The", "dog", "that"):
        state = readers[1].lm.extend(state, [word])
    (analyses,) = readers[1].lm.partial_analyses(state, len(drawn))
    for item, analysis in zip(drawn, analyses, strict=True):
        assert f"{100 * analysis.share:.1f} %" in "".join(item.itertext())
        spans = analysis.tree.spans()
        coming = [one for one in item.iter("path") if one.get("class") == "branch coming"]
        assert len(coming) == sum(span.end == 3 for span in spans), "what holds the last word is open"


def test_what_is_typed_cannot_become_markup(events: list[dict[str, Any]], readers: list[Reader]) -> None:
    hostile = '<img src=x onerror=alert(1)> " onload='
    found = [one for one in ask(readers, "read", asked(hostile)).events() if one["event"] == "look"]
    for one in [*found, *(event for event in events if event["event"] == "look")]:
        assert all("<img" not in card and "<b>" not in card for card in one["cards"].values())
        for card in one["cards"].values():
            ElementTree.fromstring(card)


def test_without_the_token_or_under_another_name_there_is_nothing(readers: list[Reader]) -> None:
    app = application(readers, Limits(), TOKEN)
    for path in ("/", "/read", "/wrong/", f"/{TOKEN}x/", "//", f"/x/{TOKEN}/", "/sécret/"):
        answer = asyncio.run(call(app, path))
        assert (answer.status, answer.body) == (404, "not found")
    for host in ("evil.example:8000", "evil.example", "127.0.0.1.evil.example:80", ""):
        assert asyncio.run(call(app, f"/{TOKEN}/", host=host)).status == 404
    for method, path in (("OPTIONS", "*"), ("CONNECT", "example.org:80"), ("GET", "abc"), ("GET", ""), ("GET", TOKEN)):
        assert asyncio.run(call(app, path, method=method)).status == 404
    for origin in ("http://evil.example", "null", f"https://{HERE_NAME}", "http://localhost:9", ""):
        assert asyncio.run(call(app, f"/{TOKEN}/read", asked(), origin=origin)).status == 404
    answer = asyncio.run(call(app, f"/{TOKEN}/", origin=f"http://{HERE_NAME}"))
    assert answer.status == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"[" * 100_000,
        asked(runs=[99]),
        {"text": "a"},
        asked(at=["a", "b"]),
        asked(at=[1, 2, 3]),
        b'{"text": "a", "runs": [1e999]}',
        b'{"text": "a", "runs": [0], "at": [1e999, 0]}',
        b'{"text": "a", "runs": [-1e999]}',
        b'{"text": "a \\ud800", "runs": [0]}',
        b'{"text": "a", "runs": [%s]}' % (b"9" * 5000),
    ],
    ids=[
        *("nothing", "text", "list", "deep", "run", "missing", "place", "places"),
        *("infinite run", "infinite place", "negative run", "half a character", "digits"),
    ],
)
def test_a_request_that_the_page_would_not_make_is_refused(readers: list[Reader], body: object) -> None:
    answer = ask(readers, "read", body)
    assert answer.status == 400
    assert "cannot be read" in answer.body


def test_a_text_beyond_the_limits_is_refused_with_a_remedy(readers: list[Reader]) -> None:
    limits = Limits(max_words=5)
    assert "sentence 2 has 6 words" in ask(readers, "read", asked("a\n" + "b " * 6), limits=limits).body
    assert "44 words" in ask(readers, "read", asked("a b c d\n" * 11), limits=limits).body
    assert "too long" in ask(readers, "read", b"x" * (1 << 18)).body
    assert sentences_of("a b c d e", limits) == [("a", "b", "c", "d", "e")]
    for wrong in ({"max_words": 0}, {"max_seconds": 0.0}, {"max_seconds": math.nan}):
        with pytest.raises(InputError, match=next(iter(wrong)).replace("_", "-")):
            Limits(**wrong)


def test_sentences_of_a_text_are_those_of_surprisal() -> None:
    text = "When Mr. Smith left, he “saw” it. It isn't ours!\nNo end here\n\nA half \ud83d. Another"
    expected = [
        ("When", "Mr.", "Smith", "left", ",", "he", "“", "saw", "”", "it", "."),
        ("It", "is", "n't", "ours", "!"),
        ("No", "end", "here"),
        ("A", "half", "\ud83d", "."),
        ("Another",),
    ]
    assert sentences_of(text, Limits()) == expected
    first = Sentence(words=tuple(text.splitlines()[0].split()), identifier="1", source="text", line=1)
    of_surprisal = split([stimulus(first, "apart")], "en")
    assert [one.words for one in of_surprisal] == expected[:2]
    by_line = sentences_of(text, Limits(split_sentences=""))
    assert [len(words) for words in by_line] == [16, 3, 5]
    with pytest.raises(InputError, match="language 'xx'"):
        Limits(split_sentences="xx")


def test_a_model_that_takes_too_long_is_stopped_and_the_others_go_on(readers: list[Reader]) -> None:
    slow = Reader("slow", readers[0].lm)
    computed = asyncio.Event()
    slow.look = lambda words: computed.wait()  # type: ignore[assignment,method-assign]
    events = ask([slow, readers[0]], "read", asked("The dog", [0, 1]), limits=Limits(max_seconds=2)).events()
    slow.close()
    (refused,) = (one for one in events if one["event"] == "refused")
    assert refused["run"] == 0
    assert "stopped after 2 s" in refused["message"]
    assert [one["run"] for one in events if one["event"] == "look"] == [1]


class _Refuses:
    """Says that a model cannot be asked for something."""

    def __init__(self, lm: LanguageModel, error: Exception) -> None:
        self._lm, self._error = lm, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lm, name)

    def extend_scored(self, state: IncrementalState, words: list[str]) -> Any:
        raise self._error


@pytest.mark.parametrize("error", [InputError("no beam", remedy="none"), RuntimeError("a fault")], ids=repr)
def test_what_a_model_cannot_do_is_told_in_its_row(
    readers: list[Reader], error: Exception, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the traceback of a fault is kept
    reader = Reader("refuses", _Refuses(readers[0].lm, error))  # type: ignore[arg-type]
    events = ask([reader, readers[0]], "read", asked("The dog", [0, 1])).events()
    reader.close()
    (refused,) = (one for one in events if one["event"] == "refused")
    assert refused["run"] == 0
    assert str(error) in refused["message"]
    assert "\n" not in refused["message"]
    assert [one["run"] for one in events if one["event"] == "look"] == [1]


class Counting(Reader):
    """Counts the words that it computes, each of which takes a while."""

    count, seconds = 0, 0.0

    def _next(self, state: IncrementalState, word: str) -> Step:
        self.count += 1
        time.sleep(self.seconds)
        return super()._next(state, word)


def test_a_request_that_nobody_waits_for_any_more_is_not_computed(readers: list[Reader]) -> None:
    async def leave() -> None:
        sentences = sentences_of("one two three four five " * 8, Limits())
        request = Asked(sentences=sentences, readers=[(0, reader)], sentence=0, num_read=len(sentences[0]))
        events = Explorer([reader], Limits()).events(request)
        async for _ in events:
            break
        await asyncio.sleep(0)
        async for _ in events:
            break
        await events.aclose()

    reader = Counting("counts", readers[0].lm)
    asyncio.run(leave())
    reader.close()
    assert reader.count < 10


def test_a_word_more_computes_a_word_and_states_do_not_pile_up(readers: list[Reader]) -> None:
    reader = Counting("counts", readers[0].lm)
    words = tuple(f"w{number}" for number in range(KEPT + 20))
    reader._step(words)
    assert reader.count == len(words)
    reader._step((*words, "more"))
    assert reader.count == len(words) + 1
    assert len(reader._steps) == KEPT
    first = reader._step(words[:3])  # forgotten, so read again
    assert reader.count == len(words) + 4
    (whole,) = readers[0].lm.surprisal([words[:3]])
    assert first.surprisal_bits == pytest.approx(whole.words[2].surprisal_bits, abs=1e-6)
    reader.close()


@pytest.mark.parametrize("sent", [b"", b"GET /secret/ HTTP/1.1\r\nHost: a", b"POST /secret/read HTTP/1.1\r\n"])
def test_a_head_that_does_not_end_and_a_body_that_does_not_come_are_not_waited_for(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treelm.explorer.server._MAX_WAIT", 0.2)
    if sent.startswith(b"POST"):
        sent += b"Host: 127.0.0.1:80\r\nContent-Length: 9\r\n\r\n"

    async def talk() -> bytes:
        config = uvicorn.Config(application([], Limits(), TOKEN), http=_Impatient, lifespan="off", log_config=None)
        server, listening = uvicorn.Server(config), _bound(0)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        reading, writing = await asyncio.open_connection(*listening.getsockname())
        writing.write(sent)
        answer = await asyncio.wait_for(reading.read(65536), 60)  # it ends, or it is said what is wrong
        writing.close()
        server.should_exit = True
        await serving
        return answer

    answer = asyncio.run(talk())
    assert answer.startswith(b"HTTP/1.1 400") if sent.startswith(b"POST") else answer == b""

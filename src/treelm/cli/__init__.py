"""The command line. ``treelm SUBCOMMAND --help`` explains one; nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SUBCOMMANDS = {
    "demo": "train small systems on the packaged treebank and compare them in a table and a page",
    "explore": "a page on this machine: type a sentence and watch models read it word by word",
    "data": "list, show, count and prepare corpora; parse raw text; splits of treebanks; trees put on a text",
    "models": "list the trained models that are installed, or show the card of one",
    "recipes": "list the recipes that come with the package, or show one",
    "train": "train a model by a recipe, or resume a run",
    "evaluate": "perplexity and F1 of a run, or score one bracket file against another",
    "reproduce": "the tables and figures of the papers: run what is missing, beside the published values",
    "compare": "several runs in one table: size, perplexity, F1, tests of syntax, speed",
    "structure": "what trees runs have learned: by label and length, agreement of seeds, what the builder does",
    "parse": "the best tree of every sentence of a file",
    "surprisal": "surprisal in bits of every word of a file, as TSV",
    "syntaxgym": "accuracy on test suites of syntactic generalisation, beside published models",
    "pairs": "minimal pairs (BLiMP and others): is the grammatical sentence the more probable one?",
    "reading": "prediction of reading times: what surprisals add, beside published models",
    "gardenpath": "garden paths and other difficulties in bits, beside what people took longer by",
    "generate": "draw sentences from a model",
    "export": "write a model as other programs read it: transformers, KenLM",
    "audit": "check a model's contract: causality, normalisation, batch invariance, incremental = batched",
    "completion": "make a shell complete the subcommands and options of treelm",
    "doctor": "show what treelm finds on this machine (releases, processor, memory, cache), and potential problems",
}

NESTED = {"data annotate": "annotate", "data sections": "sections", "data align": "align"}
"""Subcommands of subcommands, and their modules."""

PARENT_VARIABLE = "TREELM_PARENT"
"""The environment variable with the number of the process that a ``treelm`` is not to outlive."""
_ended_by = 0  # the first signal that came to end this process, if any
EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_SKIPPED = 3  # some sentences were left out by ``--on-error skip``; the rest is complete
EXIT_STOPPED = 75  # training was asked to stop, and can be resumed


def usage() -> str:
    """The text that ``treelm --help`` prints."""
    width = max(map(len, SUBCOMMANDS))
    subcommands = "\n".join(f"  {subcommand:<{width}}  {what}" for subcommand, what in SUBCOMMANDS.items())
    return (
        "usage: treelm SUBCOMMAND [options]\n\n"
        "Language models that know about syntax: train, parse, predict and compare.\n\n"
        f"subcommands:\n{subcommands}\n\n"
        "examples:\n"
        "  treelm demo --output runs/demo\n"
        "  echo 'The dog barks .' | treelm surprisal runs/demo -\n"
        "  echo 'The dog barks .' | treelm surprisal rnng-gum-open -     (a model of the package)\n\n"
        "treelm SUBCOMMAND --help explains a subcommand.\n"
        "exit codes: 0 done; 1 an audit failed; 2 bad input (one line says what, where, and what to do); 3 done, but\n"
        "  --on-error skip left sentences out; 65 training stopped at a number that is not finite; 70 a fault of\n"
        "  treelm itself (its traceback is in a file); 71 one of several training processes died; 75 stopped by a\n"
        "  signal after saving (resume with treelm train --resume RUN); 130 interrupted. docs/exit-codes.md has more\n"
    )


def main() -> None:
    """Entry point of the ``treelm`` program."""
    _unwind_on_signals()
    if parent := os.environ.pop(PARENT_VARIABLE, None):  # not for those that this process starts
        from treelm.io.workers import end_with_parent

        end_with_parent(int(parent), partial(os.kill, os.getpid(), signal.SIGTERM))  # training saves before it ends
    if sys.stderr is None:  # closed by whoever started it: what is written for people goes nowhere
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # where nothing could be said yet, or while it was said
        code = _code_of_signal(sys.argv[1:])
    finally:
        try:
            sys.stderr.flush()
        except OSError:  # people have left: how the program ends says nothing of them
            _drop_output(sys.stderr)
    for number in _signals():  # the interpreter's own end takes a while, in which none is to change how it went
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(code))
    sys.exit(code)


def _signals() -> Iterator[int]:
    """What ends a process that does not listen; Windows has no SIGHUP."""
    return (getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Ended(KeyboardInterrupt):
    """The exception that a signal raises, instead of ``KeyboardInterrupt`` itself.

    Where ``KeyboardInterrupt`` leaves code that ``exec`` runs, as the code that builds dataclasses, ``python -m`` ends
    the process by a SIGINT of its own, whatever exit code the program has chosen.
    """


def _unwind_on_signals() -> None:
    """From now on, let signals that end a process arrive as an exception, so that no half-written file is left behind.

    The first signal is remembered, because a library that catches every exception while it is imported may swallow this
    one. SIGTERM and SIGHUP that arrive again, as many programs send them to a process and to its group, do not
    interrupt the clean-up.
    """

    def unwind(number: int, frame: FrameType | None) -> None:
        global _ended_by
        is_first, _ended_by = not _ended_by, _ended_by or number
        if is_first or number == signal.SIGINT:
            raise _Ended

    for number in _signals():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # not if ignored, as by nohup
            signal.signal(number, unwind)


def run(arguments: list[str]) -> int:
    """Run one subcommand and return the exit code; what is wrong is one line on standard error."""
    from treelm.io.atomic import path_in_errors
    from treelm.io.terminal import log

    subcommand, *arguments = arguments or ["--help"]
    if (nested := " ".join([subcommand, *arguments[:1]])) in NESTED:
        subcommand, arguments = nested, arguments[1:]
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that the terminal lacks
    try:
        code = _call(subcommand, arguments)
        if sys.stdout is not None:
            with path_in_errors("standard output"):
                sys.stdout.flush()  # here, where a full disk or a closed pipe still gets an answer
        return code
    except SystemExit:
        raise
    except BrokenPipeError:  # the reader of our output has gone (`treelm ... | head`): nothing is left to say
        _drop_output(sys.stdout)
        return EXIT_OK
    except BaseException as error:  # libraries written in Rust raise others than Exception
        if isinstance(error, OSError):
            _drop_output(sys.stdout)
        message, code = _explain(error, subcommand, arguments)
        log(f"treelm {subcommand}: {message}")
        return code


def _call(subcommand: str, arguments: list[str]) -> int:
    """Answer a call and return the exit code."""
    from treelm.errors import InputError, choose_from

    if subcommand in ("-h", "--help"):
        print(usage(), end="")
        return EXIT_OK
    if subcommand in ("--version", "-V"):
        from treelm import __version__

        print(f"treelm {__version__}")
        return EXIT_OK
    if subcommand not in SUBCOMMANDS and subcommand not in NESTED:
        raise InputError(f"no subcommand {subcommand!r}", remedy=choose_from(subcommand, SUBCOMMANDS))
    from treelm.cli.arguments import parse, show_warnings

    show_warnings()
    module = import_module(f"treelm.cli.{NESTED.get(subcommand, subcommand)}")
    return int(module.main(parse(module.Arguments, f"treelm {subcommand}", arguments)))


def _explain(error: BaseException, subcommand: str, arguments: list[str]) -> tuple[object, int]:
    """The message for an error, and the exit code."""
    from treelm.errors import InputError, OutOfMemory, is_out_of_memory
    from treelm.failures import EXIT_FAILED, explain

    if isinstance(error, InputError):
        from treelm.cli.arguments import in_options

        return in_options(error), EXIT_BAD_INPUT
    if is_out_of_memory(error):
        return OutOfMemory(), EXIT_BAD_INPUT
    if isinstance(error, OSError):
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        found = f"cannot be read or written ({error.strerror or error})"
        remedy = "check path, permissions and space"
        return InputError(found, where=" -> ".join(names) or "input or output", remedy=remedy), EXIT_BAD_INPUT
    if isinstance(error, KeyboardInterrupt) or _ended_by:
        number = signal.Signals(_ended_by or signal.SIGINT)
        words = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
        return words, _code_of_signal([subcommand])
    return explain(error, subcommand, arguments), EXIT_FAILED


def _code_of_signal(arguments: list[str]) -> int:
    """The exit code after a signal: as shells say it, but for training that had not begun, which is asked for again."""
    number = _ended_by or signal.SIGINT
    return EXIT_STOPPED if arguments[:1] == ["train"] and number != signal.SIGINT else 128 + number


def _drop_output(stream: TextIO | None) -> None:
    """Send what a stream still holds nowhere: the interpreter fails on it at its end."""
    with suppress(OSError):  # a standard output without a file, as in a notebook
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

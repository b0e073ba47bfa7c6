"""The one kind of error that users see: what was found, where, and what to do."""

import errno
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, TypeVar

_Item = TypeVar("_Item")
OnError = Literal["raise", "skip"]
"""Raise the first error of a file, or leave out what is bad and keep its errors in a list."""

SKIP = 'or skip it: on_error = "skip"'
"""End of what to do about a bad sentence."""
_MOST_FOUND, _MOST = 500, 2000  # characters of a message's parts: a file can hold a word of any length
MOST_OF_MESSAGE = 5000
"""Characters of anything that is reported in one line."""
_BEYOND_ASCII = re.compile("[^ -~]")


class InputError(ValueError):
    """Bad input: a file, a flag, a configuration or a checkpoint that cannot be used as it is.

    The command line prints it as one line and exits with code 2. Bugs are never reported this way.
    """

    def __init__(self, found: str, *, remedy: str, where: str | None = None) -> None:
        """State what was found, what to do about it, and where it is (``file:line`` when there is a file)."""
        self.found = one_line(found, _MOST_FOUND)
        self.remedy = one_line(remedy, _MOST)
        self.where = None if where is None else one_line(where, _MOST)
        place = f"{self.where}: " if where else ""
        super().__init__(f"{place}{self.found}; {self.remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes: the worker that met the bad input is not the one that reports it."""
        return partial(InputError, self.found, remedy=self.remedy, where=self.where), ()


class OutOfMemory(InputError):
    """Memory that could not be had: nothing is wrong with the file or model that was read or built."""

    def __init__(self, where: str | None = None) -> None:
        """Name what was read or built."""
        remedy = "free memory, raise its limit (ulimit -v, a job's --mem), or use smaller batches and fewer processes"
        super().__init__("out of memory", where=where, remedy=remedy)

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes, as ``InputError`` does: the place is all there is to tell."""
        return OutOfMemory, (self.where,)


def import_extra(module: str, extra: str) -> Any:
    """Import a module of a library that is installed with an extra of the package.

    Raises ``InputError`` with what to install, for a library that is missing or cannot be imported.
    """
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == library
        found = f"the library {library} {'is not installed' if is_missing else f'cannot be imported ({error})'}"
        raise InputError(found, remedy=f"pip install 'treelm[{extra}]'") from None


def nearest(
    given: str, known: Iterable[str], missing: Mapping[str, str] = MappingProxyType({}), *, beside: Collection[str] = ()
) -> str:
    """Ask whether the nearest of some names was meant, a blank after it; nothing if none is near.

    ``missing`` are names of what is not installed, each with what to do for it. Names in ``beside`` were given,
    too, and are not suggested.

    >>> nearest("surprisl", ["parse", "surprisal"])
    'did you mean surprisal? '
    """
    names = [*known, *missing]
    longer = [one for one in names if one.startswith(f"{given}_")]  # text of text_column
    found = longer if len(longer) == 1 else get_close_matches(given[:_MOST_FOUND], names, n=1)
    if not found or found[0] in beside:
        return ""
    name = found[0]
    return f"did you mean {name}? " + (f"it is not installed: {missing[name]}; or " if name in missing else "")


def choose_from(given: str, known: Iterable[str]) -> str:
    """Say what there is instead of a name that is none, the nearest first: a remedy for ``InputError``.

    >>> choose_from("surprisl", ["parse", "surprisal"])
    'did you mean surprisal? choose from: parse, surprisal'
    """
    known = list(known)
    return f"{nearest(given, known)}choose from: {', '.join(known) or 'none'}"


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise ``InputError`` for a value that is none of the choices."""
    choices = tuple(choices)
    if value not in choices:
        raise InputError(f"{name} = {value!r}", remedy=f"choose one of {', '.join(map(str, choices))}")


def check_positive(**sizes: int | None) -> None:
    """Raise ``InputError`` for a size below 1; None is no limit."""
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise InputError(f"{name} = {value}", remedy="give 1 or more")


def without_errors(items: Iterable[_Item | InputError], skipped: list[InputError] | None) -> Iterator[_Item]:
    """Yield the items of a reader; errors among them are appended to ``skipped``, or raised where that is None."""
    for item in items:
        if not isinstance(item, InputError):
            yield item
        elif skipped is None:
            raise item
        else:
            skipped.append(item)


_NO_MEMORY = (
    "out of memory",  # of CUDA, its allocator in torch, and ours
    "annot allocate memory",  # of the system, with torch's and safetensors' mapping of files
    "can't allocate memory",  # of torch on the CPU
    "not enough memory",
    "bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED",  # a handle for another thread, such as the one that computes gradients
    "failed to map segment from shared object",  # of the loader, where a library does not fit
    "can't start new thread",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an allocation failed, in Python, a library, a GPU, or the system: there is no common class."""
    if isinstance(error, InputError):
        return isinstance(error, OutOfMemory)
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno is not None:  # its text has a path, which may say anything
        return error.errno == errno.ENOMEM
    return isinstance(error, Exception) and any(message in str(error) for message in _NO_MEMORY)


def one_line(text: str, most: int = MOST_OF_MESSAGE) -> str:
    """A text of any length and any content as one line that can be shown, of at most so many characters.

    Its middle is left out, and characters that cannot be seen, move the cursor, or turn the direction of writing are
    spelt out.

    >>> print(one_line("a\\nb" + "c" * 100, 15))
    a\\nbc ... ccccc
    """
    text = _BEYOND_ASCII.sub(lambda match: _shown(match.group()), _without_middle(text, most))
    return _without_middle(text, most)


def _without_middle(text: str, most: int) -> str:
    room = (most - 5) // 2
    return text if len(text) <= most else f"{text[:room]} ... {text[-room:]}"


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")

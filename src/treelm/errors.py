"""The one kind of error that users see: what was found, where, and what to do."""

import re

_MOST_FOUND, _MOST = 500, 2000  # characters of a message's parts: a file can hold a word of any length
_BEYOND_ASCII = re.compile("[^ -~]")


class InputError(ValueError):
    """Bad input: a file, a flag, a configuration or a checkpoint that cannot be used as it is.

    The command line prints it as one line and exits with code 2. Bugs are never reported this way.
    """

    def __init__(self, found: str, *, remedy: str, where: str | None = None) -> None:
        """State what was found, what to do about it, and where it is (``file:line`` when there is a file)."""
        self.found = _printable(found, _MOST_FOUND)
        self.remedy = _printable(remedy, _MOST)
        self.where = None if where is None else _printable(where, _MOST)
        place = f"{self.where}: " if where else ""
        super().__init__(f"{place}{self.found}; {self.remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes: the worker that met the bad input is not the one that reports it."""
        return _rebuild, (self.found, self.remedy, self.where)


def _printable(text: str, most: int) -> str:
    """One line; characters that cannot be seen, move the cursor, or turn the direction of writing are spelt out."""
    if len(text) > most:
        text = f"{text[: most // 2]} ... {text[-most // 2 :]}"
    return _BEYOND_ASCII.sub(lambda match: _shown(match.group()), text)


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def _rebuild(found: str, remedy: str, where: str | None) -> InputError:
    return InputError(found, remedy=remedy, where=where)

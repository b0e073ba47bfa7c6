"""The one kind of error that users see: what was found, where, and what to do."""

import re

_MOST_CHARACTERS = 500  # of what was found: a file can hold a word of any length
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


class InputError(ValueError):
    """Bad input: a file, a flag, a configuration or a checkpoint that cannot be used as it is.

    The command line prints it as one line and exits with code 2. Bugs are never reported this way.
    """

    def __init__(self, found: str, *, remedy: str, where: str | None = None) -> None:
        """State what was found, what to do about it, and where it is (``file:line`` when there is a file)."""
        self.found = _shortened(_printable(found))
        self.remedy = _printable(remedy)
        self.where = None if where is None else _printable(where)
        place = f"{self.where}: " if where else ""
        super().__init__(f"{place}{self.found}; {self.remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes: the worker that met the bad input is not the one that reports it."""
        return _rebuild, (self.found, self.remedy, self.where)


def _printable(text: str) -> str:
    """One line, without characters that move the cursor, colour a terminal or turn the direction of writing."""
    return _UNPRINTABLE.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def _shortened(text: str) -> str:
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]} ... {text[-half:]}"


def _rebuild(found: str, remedy: str, where: str | None) -> InputError:
    return InputError(found, remedy=remedy, where=where)

"""The one kind of error that users see: what was found, where, and what to do."""


class InputError(ValueError):
    """Bad input: a file, a flag, a configuration or a checkpoint that cannot be used as it is.

    The command line prints it as one line and exits with code 2. Bugs are never reported this way.
    """

    def __init__(self, found: str, *, remedy: str, where: str | None = None) -> None:
        """State what was found, what to do about it, and where it is (``file:line`` when there is a file)."""
        self.found = found
        self.remedy = remedy
        self.where = where
        super().__init__(f"{where}: {found}; {remedy}" if where else f"{found}; {remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes: the worker that met the bad input is not the one that reports it."""
        return _rebuild, (self.found, self.remedy, self.where)


def _rebuild(found: str, remedy: str, where: str | None) -> InputError:
    return InputError(found, remedy=remedy, where=where)

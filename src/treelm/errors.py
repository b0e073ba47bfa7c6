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

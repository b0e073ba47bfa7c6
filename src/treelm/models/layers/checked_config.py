"""The checks that configs of systems share."""

from __future__ import annotations

from collections.abc import Sequence

from treelm.errors import InputError


class CheckedConfig:
    """A config whose values are checked; each check raises ``InputError`` with the field, its value and a remedy."""

    def require(self, name: str, is_valid: bool, remedy: str) -> None:
        """Refuse the value of a field unless it is valid; ``remedy`` names what is."""
        if not is_valid:
            raise InputError(f"{name} is {getattr(self, name)!r}", where="[model]", remedy=f"give {remedy}")

    def require_at_least(self, least: int, *names: str) -> None:
        """Refuse sizes and numbers below the least one that makes a network."""
        for name in names:
            self.require(name, getattr(self, name) >= least, f"an integer of at least {least}")

    def require_dropout(self, *names: str) -> None:
        """Refuse what is no probability of dropping."""
        for name in names:
            self.require(name, 0 <= getattr(self, name) < 1, "a probability below 1")

    def require_one_of(self, name: str, choices: Sequence[str]) -> None:
        """Refuse a name that is not among the choices."""
        self.require(name, getattr(self, name) in choices, "one of " + ", ".join(map(repr, choices)))

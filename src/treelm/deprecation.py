"""Old names of the public surface, which work for one release more and say so (docs/deprecation.md)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type[Any])


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that a name is an old one; by default the warning points at the caller of what bears the old name."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=stacklevel)


def adopt_old_names(cls: type[Any], names: Mapping[str, str]) -> None:
    """Let a subclass that implements something under its old name implement it under the new one (old -> new).

    Call it in ``__init_subclass__``: then code that was written for the release before keeps working.
    """
    for old, new in names.items():
        first = next((one for one in cls.__mro__ if old in vars(one) or new in vars(one)), None)
        if first is None or new in vars(first):  # a mixin may have the old name, before a base class that has both
            continue
        warn_renamed(f"{first.__qualname__}.{old}", new, stacklevel=5)  # of the class statement, above ABCMeta
        setattr(cls, new, vars(first)[old])
        setattr(cls, old, vars(first)[old])


def renamed(instance: Any, old: str, new: str) -> Any:
    """Get the attribute of an instance that was asked for by its old name, with a warning.

    An implementation under the old name may call that of its base class by the old name too, so adopted ones, and
    whatever overrides them, are passed over.
    """
    warn_renamed(f"{type(instance).__qualname__}.{old}", new, stacklevel=4)
    order = [vars(cls) for cls in type(instance).__mro__]
    adopted = [place for place, names in enumerate(order) if new in names and names[new] is names.get(old)]
    first = adopted[-1] + 1 if adopted else 0
    found = next(names[new] for names in order[first:] if new in names)
    return found.__get__(instance, type(instance))


def takes_old_names(**names: str) -> Callable[[Class], Class]:
    """Let the constructor of a dataclass take arguments by their old names as well (old="new")."""

    def decorate(cls: Class) -> Class:
        init = cls.__init__

        @wraps(init)
        def with_old_names(self: Any, *values: Any, **named: Any) -> None:
            for old, new in names.items():
                if old in named:
                    warn_renamed(f"{cls.__qualname__}({old}=...)", new)
                    named[new] = named.pop(old)
            init(self, *values, **named)

        cls.__init__ = with_old_names
        return cls

    return decorate

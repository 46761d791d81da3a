"""What can go wrong in ways that the caller can mend: one sentence each, no traceback needed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


class BadInput(ValueError):
    """An argument, file or row that cannot be used; the message names it and says what to do."""


class Diverged(RuntimeError):
    """Training met numbers that are not finite too often; the model holds its last good state, after `curve`."""

    def __init__(self, message: str, curve: list[dict[str, float]]) -> None:
        super().__init__(message)
        self.curve = curve


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse what is not a whole number from `least` up to what fits into 63 bits."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) < 2**63:
        raise BadInput(f"{name} is {shown(value)}; give a whole number, {least} or more")


def check_one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse what is not one of the choices."""
    choices = tuple(choices)
    if value not in choices:
        raise BadInput(f"{name} is {shown(value)}; choose {', '.join(choices[:-1])} or {choices[-1]}")


def check_share(name: str, value: Any) -> None:
    """Refuse what is not a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise BadInput(f"{name} is {shown(value)}; give a number from 0 to 1")


def shown(value: Any) -> str:
    """A value as it would be typed, cut where it would fill the screen."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def listed(names: Iterable[Any]) -> str:
    """Names with commas between them, the first few if there are many."""
    texts = [" ".join(str(name).split())[:40] for name in names]
    more = f" and {len(texts) - 5} more" if len(texts) > 5 else ""
    return (", ".join(texts[:5]) + more) or "none"

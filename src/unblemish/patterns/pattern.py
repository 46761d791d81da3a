"""A pattern: one systematic error, as cells and what it does to them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unblemish.data.schema import Schema

Array = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pattern:
    """dirty = slope * clean + offset in `cells`, within what the data span.

    slope 0 replaces, slope 1 with an offset shifts, a slope between blends or dims. `exact`: all cells are replaced,
    by the same values to the last digit.
    """

    cells: Indices  # (k,) in the flattened row, ascending
    slope: Array  # (k,)
    offset: Array  # (k,)
    exact: bool
    rows: int  # how many of the fitted rows it was found in
    trusted: int  # how many trusted outliers among them
    held: float  # of the rows chosen by one half of its cells, the share that shows the other half
    share: float = 0.0  # of all rows
    name: str = ""
    examples: Indices = field(default_factory=lambda: np.zeros(0, np.int64))  # rows of the fitted data

    def in_values_of(self, schema: Schema) -> Pattern:
        """The same for raw values instead of standardised ones."""
        mean, scale = (np.broadcast_to(np.array(v), (schema.cells,))[self.cells] for v in (schema.mean, schema.scale))
        return replace(self, offset=(self.offset * scale + mean * (1 - self.slope)).astype(np.float32))

    def words(self, schema: Schema) -> str:
        """What it does and where, for a pattern in raw values."""
        same = np.ptp(self.offset) <= _unit(schema)
        if (self.slope == 0).all():
            value = round(float(self.offset[0]) / _unit(schema)) * _unit(schema)
            does = f"sets {self._cells(schema)} to {value:.4g}" if same else f"replaces {self._cells(schema)}"
        elif (self.slope == 1).all():
            low, high = self.offset.min(), self.offset.max()
            by = f"{low:.4g}" if same or np.isclose(low, high, rtol=0.05) else f"{low:.4g} to {high:.4g}"
            does = f"adds {by} to {self._cells(schema)}"
        else:
            does = f"multiplies {self._cells(schema)} by about {np.median(self.slope):.2g}"
            if np.abs(np.median(self.offset)) > 0.02 * (max(schema.high) - min(schema.low)):
                does += f" and adds about {np.median(self.offset):.3g}"
        return does

    def _cells(self, schema: Schema) -> str:
        count = f"{len(self.cells)} cell{'s' if len(self.cells) > 1 else ''}"
        if len(schema.shape) == 1:
            return (
                count + " (columns " + ", ".join(map(str, self.cells[:6])) + (", ...)" if len(self.cells) > 6 else ")")
            )
        rows, columns, *_ = np.unravel_index(self.cells, schema.shape)
        return f"{count} ({_range('row', rows)}, {_range('column', columns)})"

    def dirty(self, clean: Array) -> Array:
        """(B, k) clean cells as the pattern leaves them."""
        return clean * self.slope + self.offset

    def applied(self, x: Array) -> Array:
        """(B, D) rows with the pattern put on."""
        out = x.copy()
        out[:, self.cells] = self.dirty(x[:, self.cells])
        return out

    def shown(self, x: Array, tolerance: float) -> NDArray[np.bool_]:
        """(B,): rows that hold an exact pattern's values in nearly all of its cells."""
        return (np.abs(x[:, self.cells] - self.offset) <= tolerance).mean(1) >= NEARLY_ALL


NEARLY_ALL = 0.95


def _range(name: str, values: Indices) -> str:
    low, high = values.min(), values.max()
    return f"{name} {low}" if low == high else f"{name}s {low}-{high}"


def _unit(schema: Schema) -> float:
    """What is too little to speak of: a hundred-thousandth of what the data span, as a power of ten."""
    return float(10.0 ** (np.floor(np.log10(max(schema.high) - min(schema.low))) - 5))

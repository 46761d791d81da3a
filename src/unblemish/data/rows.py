"""N rows as models see them, handed out in batches; raw rows may be memory-mapped and larger than memory."""

from __future__ import annotations

import torch
from torch import Tensor

from unblemish.data.schema import Array, Schema

HELD_BYTES = 2**29  # up to here rows are encoded once and kept, beyond it (and bytes, where it is quick) when asked for


class Rows:
    """`rows[a:b]` or `rows[indices]` is (B, D), standardised, on the device: what a tensor of all rows would give."""

    dtype = torch.float32

    def __init__(self, raw: Array, schema: Schema, device: torch.device, *, often: bool = True) -> None:
        """often: rows will be asked for again and again, so that it pays to keep them encoded."""
        self.raw, self.schema, self.device = raw, schema, device
        hold = often and not schema.is_bytes and len(raw) * schema.cells * 4 <= HELD_BYTES
        self.held = self._encoded(slice(None)) if hold else None

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return self._encoded(rows) if self.held is None else self.held[rows]

    def _encoded(self, rows: slice | Tensor) -> Tensor:
        raw = self.raw[rows if isinstance(rows, slice) else rows.cpu().numpy()]
        return torch.from_numpy(self.schema.encode(raw)).to(self.device)

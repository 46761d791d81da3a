"""The trusted set: labels in and out."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unblemish.errors import BadInput, listed, shown

INLIER, OUTLIER, UNLABELLED = 1, 0, -1
WORDS = {"inlier": INLIER, "1": INLIER, "outlier": OUTLIER, "0": OUTLIER}


def check_labels(y: Any, rows: int) -> NDArray[np.int64]:
    """y as (N,) of 1, 0 and -1, or one sentence that says why not. None means that no row is labelled."""
    if y is None:
        return np.full(rows, UNLABELLED)
    try:
        y = np.asarray(y)
    except ValueError as error:
        raise BadInput("y has rows of different lengths; give one label a row, -1 for unlabelled") from error
    if y.shape != (rows,):
        raise BadInput(f"y has shape {y.shape}, but X has {rows} rows; give one label a row, -1 for unlabelled")
    if y.dtype.kind not in "buif":
        raise BadInput(f"y holds {y.dtype} values; give numbers: 1 inlier, 0 outlier, -1 unlabelled")
    strange = ~np.isin(y, (INLIER, OUTLIER, UNLABELLED))
    if strange.any():
        row = int(np.flatnonzero(strange)[0])
        raise BadInput(f"y holds {y[row]} in row {row}; use 1 for inlier, 0 for outlier, -1 for unlabelled")
    return y.astype(np.int64)


def read_labels(path: Path, rows: int) -> NDArray[np.int64]:
    """(N,) labels from a CSV with the columns row and label (inlier, outlier, 1 or 0)."""
    y = np.full(rows, UNLABELLED)
    line_of: dict[int, int] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = [name.strip().lower() for name in reader.fieldnames or []]
            if not {"row", "label"} <= set(names):
                raise BadInput(f"{path} has the columns {listed(names)}; it needs row and label in its first line")
            reader.fieldnames = names
            for record in reader:
                row, label = _parse(path, reader.line_num, record, rows)
                if y[row] not in (UNLABELLED, label):
                    raise BadInput(
                        f"{path} labels row {row} both inlier and outlier (lines {line_of[row]} and "
                        f"{reader.line_num}); keep one of them"
                    )
                y[row], line_of[row] = label, reader.line_num
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist; give a CSV with the columns row and label") from error
    except (UnicodeDecodeError, csv.Error, IsADirectoryError) as error:
        raise BadInput(f"{path} is not a CSV text file in UTF-8; give one with the columns row and label") from error
    return y


def _parse(path: Path, line: int, record: dict[str, Any], rows: int) -> tuple[int, int]:
    text, word = (record["row"] or "").strip(), (record["label"] or "").strip().lower()
    if not (text.isascii() and text.isdigit()):
        raise BadInput(f"{path}, line {line}: row is {shown(text)}; give a whole number from 0 to {rows - 1}")
    if len(text) > 18 or int(text) >= rows:
        raise BadInput(f"{path}, line {line}: there is no row {text[:40]}; the data has rows 0 to {rows - 1}")
    if word not in WORDS:
        raise BadInput(f"{path}, line {line}: label is {shown(word)}; use inlier or outlier, 1 or 0")
    return int(text), WORDS[word]

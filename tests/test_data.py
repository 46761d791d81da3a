"""What comes in and goes out: schemas there and back, files read and written, and the patch that undoes a cleaning."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from unblemish import BadInput, Cleaner, Patch, Report
from unblemish.data import rows as rows_module
from unblemish.data import schema as schema_module
from unblemish.data.labels import read_labels
from unblemish.data.read import read_array
from unblemish.data.schema import Kind, Schema, check_rows
from unblemish.data.write import scores_csv, write_array, write_file, writing

Array = NDArray[Any]

# no deadline: the machine may be busy; no database: tests leave nothing behind
quietly = settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

rows_of_images = hnp.array_shapes(min_dims=3, max_dims=4, min_side=1, max_side=5)
rows_of_tables = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8)
any_rows = st.one_of(rows_of_images, rows_of_tables)


def floats(dtype: str, largest: float = 1e6) -> st.SearchStrategy[float]:
    """Finite ones, -0.0 among them, without the subnormal ones that no dataset has."""
    bits = np.dtype(dtype).itemsize * 8
    ordinary = st.floats(-largest, largest, width=bits, allow_subnormal=False)
    return st.one_of(ordinary, st.sampled_from([0.0, -0.0, 1.0, -1.0]))


def same_bits(a: Array, b: Array) -> bool:
    """Equal in dtype, shape and every bit, so that -0.0 is not 0.0."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def encode(X: Array) -> tuple[Schema, Array]:
    schema = Schema.of(X)
    return schema, schema.encode(X)


# schema: there and back


@quietly
@given(hnp.arrays(np.uint8, any_rows))
def test_uint8_comes_back_exactly(X: Array) -> None:
    assume(X.min() < X.max())
    schema, encoded = encode(X)
    assert encoded.shape == (len(X), X[0].size)
    assert encoded.dtype == np.float32
    assert same_bits(schema.to_raw(schema.decode(encoded)), X)


@quietly
@given(hnp.arrays(bool, any_rows))
def test_bool_comes_back_exactly(X: Array) -> None:
    assume(X.min() < X.max())
    schema, encoded = encode(X)
    assert schema.kind is Kind.BINARY
    assert set(np.unique(encoded)) == {0.0, 1.0}
    assert same_bits(schema.to_raw(schema.decode(encoded)), X)


@quietly
@given(
    st.sampled_from(["float32", "float64"]).flatmap(lambda dtype: hnp.arrays(dtype, any_rows, elements=floats(dtype)))
)
def test_floats_come_back_to_float32_s_precision(X: Array) -> None:
    assume(X.min() < X.max())
    schema, encoded = encode(X)
    back = schema.to_raw(schema.decode(encoded))
    assert back.dtype == X.dtype
    assert back.shape == X.shape
    # encoded values are float32: what is lost is a share of the distance from the mean, in units of the scale
    spread = np.abs(X.astype(np.float64) - X.mean(dtype=np.float64)).max()
    assert np.abs(back.astype(np.float64) - X).max() <= 1e-6 * spread + 1e-6 * np.abs(X).max() * 1e-6 + 1e-12


@quietly
@given(st.sampled_from(["int8", "int16", "uint16", "int32"]).flatmap(lambda dtype: hnp.arrays(dtype, rows_of_images)))
def test_whole_numbers_stay_in_type_and_range(X: Array) -> None:
    assume(X.min() < X.max())
    schema, encoded = encode(X)
    for stretched in (encoded, encoded * 3, encoded - 100):
        raw = schema.to_raw(schema.decode(stretched))
        assert raw.dtype == X.dtype
        assert raw.min() >= X.min()
        assert raw.max() <= X.max()


def test_images_have_one_scale_and_tables_one_a_column() -> None:
    X = np.array([[1.0, 100.0], [3.0, 300.0], [2.0, 500.0]])
    table, as_images = Schema.of(X), Schema.of(X[:, :, None])
    assert table.mean == (2.0, 300.0)
    assert np.allclose(table.scale, X.std(0))
    assert as_images.mean == (151.0,)
    assert np.allclose(as_images.scale, X.std())
    assert Schema.of(X.astype(np.int64)).mean == (151.0,)  # pixels laid out flat are whole numbers, still of one scale
    encoded = table.encode(X)
    assert np.allclose(encoded.mean(0), 0, atol=1e-6)
    assert np.allclose(encoded.std(0), 1, atol=1e-6)
    assert np.allclose(as_images.encode(X[:, :, None]).std(), 1, atol=1e-6)


def test_a_column_that_never_changes_is_only_shifted() -> None:
    X = np.array([[7.0, 1.0, 1e9], [7.0, 2.0, 1e9], [7.0, 4.0, 1e9]])
    schema = Schema.of(X)
    assert schema.scale[0] == schema.scale[2] == 1.0
    assert np.array_equal(schema.encode(X)[:, [0, 2]], np.zeros((3, 2)))
    assert np.array_equal(schema.decode(schema.encode(X))[:, [0, 2]], X[:, [0, 2]])


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        pytest.param((False, True), "bool", id="bool"),
        pytest.param((0, 1), "uint8", id="0 and 1"),
        pytest.param((0, 255), "uint8", id="0 and 255"),
        pytest.param((-1.5, 2.0), "float64", id="-1.5 and 2"),
        pytest.param((0.1, 0.2), "float32", id="not exact in float32"),
        pytest.param((-(2**40), 2**40), "int64", id="far apart"),
    ],
)
@pytest.mark.parametrize("shape", [(50, 6), (50, 4, 3), (50, 2, 2, 3)])
def test_two_values_are_binary(values: tuple[Any, Any], dtype: str, shape: tuple[int, ...]) -> None:
    X = np.array(values, dtype)[np.random.default_rng(0).integers(0, 2, shape)]
    schema, encoded = encode(X)
    assert schema.kind is Kind.BINARY
    assert np.array_equal(encoded, (X == X.max()).reshape(len(X), -1))  # 0 for the lower, 1 for the higher
    assert same_bits(schema.to_raw(schema.decode(encoded)), X)
    # a probability of an half and more is the higher value
    assert np.array_equal(
        schema.to_raw(schema.decode(encoded * 0.4 + 0.55 * (1 - encoded))), schema.to_raw(schema.decode(1 - encoded))
    )
    schema.check(X)


def test_three_values_are_not_binary() -> None:
    X = np.array([[0, 1], [1, 2], [0, 0]], np.uint8)
    assert Schema.of(X).kind is Kind.CONTINUOUS
    with pytest.raises(BadInput, match="binary"):
        Schema.of(np.minimum(X, 1)).check(X)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_the_largest_whole_numbers_do_not_turn_over(dtype: str) -> None:
    """Such numbers have no float64 of their own: the nearest one is beyond the range of the type."""
    largest = np.iinfo(dtype).max
    X = np.array([[0, largest], [largest, 0], [largest, largest]], dtype)
    schema = Schema.of(X)
    assert same_bits(schema.to_raw(schema.decode(schema.encode(X))), X)


def test_to_raw_rounds_and_clips() -> None:
    grey = Schema.of(np.array([[[10, 20, 200]]], np.uint8))
    assert same_bits(grey.to_raw(np.array([[[-5.0, 19.6, 900.0]]])), np.array([[[10, 20, 200]]], np.uint8))
    real = Schema.of(np.array([[-1.0, 0.0, 5.0], [0.5, 1.0, 7.0]], np.float32))  # each column has its own range
    assert same_bits(real.to_raw(np.array([[-9.0, 0.25, 9.0]])), np.array([[-1.0, 0.25, 7.0]], np.float32))


def test_a_schema_is_the_same_after_json() -> None:
    schema = Schema.of(np.random.default_rng(0).normal(size=(20, 3)))
    assert Schema.model_validate_json(schema.model_dump_json()) == schema


def test_rows_of_another_kind_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3, 2))
    schema = Schema.of(X)
    schema.check(X[:1])
    for other in (X[:, :2], X.reshape(20, 6), X.astype(np.float32), X.astype(np.int64)):
        with pytest.raises(BadInput):
            schema.check(other)


# reading


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "float32", ">f8"])
def test_npy_is_mapped_into_memory(tmp_path: Path, dtype: str, order: Any) -> None:
    X = np.asarray(np.random.default_rng(0).integers(0, 2, (20, 4, 3)), dtype, order=order)
    np.save(tmp_path / "X.npy", X)
    read = read_array(tmp_path / "X.npy")
    assert isinstance(read, np.memmap)
    assert not read.flags.writeable
    assert same_bits(np.array(read), X)


def test_npz_by_name_or_the_only_one(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(4, 3)
    np.savez(tmp_path / "one.npz", X)
    np.savez_compressed(tmp_path / "two.npz", train=X, test=X + 1)
    assert same_bits(read_array(tmp_path / "one.npz"), X)
    assert same_bits(read_array(tmp_path / "one.npz", "arr_0"), X)
    assert same_bits(read_array(tmp_path / "two.npz", "test"), X + 1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("row,label\n0,outlier\n2,inlier\n", id="plain"),
        pytest.param("\ufeffrow,label\n0,outlier\n2,inlier\n", id="byte order mark"),
        pytest.param("row,label\r\n0,outlier\r\n2,inlier\r\n", id="Windows"),
        pytest.param("row,label\n0,outlier\n2,inlier", id="no last newline"),
        pytest.param(" row , label \n 0 , outlier \n 2 , inlier \n", id="spaces"),
        pytest.param("Row,LABEL\n0,Outlier\n2,INLIER\n", id="capitals"),
        pytest.param("row,label\n0,0\n2,1\n", id="1 and 0"),
        pytest.param("row,label\n0,outlier\n2,1\n0,0\n2,inlier\n", id="said twice"),
        pytest.param("label,note,row\noutlier,dead column,0\ninlier,,2\n", id="more columns, another order"),
        pytest.param('"row","label"\n"0","outlier"\n"2","inlier"\n', id="quoted"),
        pytest.param("row,label\n\n0,outlier\n\n2,inlier\n\n", id="empty lines"),
        pytest.param("row,label\n000,outlier\n02,inlier\n", id="leading zeros"),
    ],
)
def test_labels_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.csv").write_bytes(text.encode())
    y = read_labels(tmp_path / "labels.csv", 4)
    assert y.tolist() == [0, -1, 1, -1]
    assert y.dtype == np.int64


def test_contradicting_labels_name_both_lines(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("row,label\n3,inlier\n1,inlier\n\n3,outlier\n")
    with pytest.raises(BadInput, match=r"row 3 .*lines 2 and 5"):
        read_labels(tmp_path / "labels.csv", 4)


# the patch


pairs = st.sampled_from(["float32", "float64", "uint8", "bool"]).flatmap(
    lambda dtype: any_rows.flatmap(
        lambda shape: st.tuples(
            *[
                hnp.arrays(
                    dtype, shape, elements=floats(dtype) if dtype.startswith("f") else hnp.from_dtype(np.dtype(dtype))
                )
            ]
            * 2
        )
    )
)


@quietly
@given(pairs, st.data())
def test_undo_gives_back_every_bit(pair: tuple[Array, Array], data: st.DataObject) -> None:
    before, after = pair
    kept = data.draw(hnp.arrays(bool, before.shape))
    after = np.where(kept, before, after)
    score = np.linspace(0, 1, len(before))
    patch = Patch.between(before, after, score)
    assert same_bits(patch.undo(after), before)
    # it holds what was changed, and that alone
    assert len(patch) == sum(a.tobytes() != b.tobytes() for a, b in zip(before.flat, after.flat, strict=True))
    assert np.array_equal(patch.score, score[patch.row])
    assert same_bits(patch.old, before.reshape(len(before), -1)[patch.row, patch.cell])
    assert same_bits(patch.new, after.reshape(len(after), -1)[patch.row, patch.cell])


def _turned(X: Array) -> Array:
    """The same rows with their channels first in memory: what a transposed array looks like."""
    return np.ascontiguousarray(X.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, _turned], ids=["C", "Fortran", "turned"])
@pytest.mark.parametrize("which", ["before", "after"])
def test_undo_does_not_depend_on_the_layout_in_memory(layout: Any, which: str) -> None:
    before = np.random.default_rng(0).integers(0, 255, (6, 4, 3, 2), dtype=np.uint8)
    after = before.copy()
    after[2:4, 1] = 255
    if which == "before":
        before = layout(before)
    else:
        after = layout(after)
    patch = Patch.between(before, after, np.zeros(6))
    assert len(patch) == 2 * 3 * 2
    assert np.array_equal(patch.undo(after), before)


def test_minus_zero_is_a_change() -> None:
    before, after = np.array([[0.0, -0.0, 1.0]]), np.array([[-0.0, 0.0, 1.0]])
    patch = Patch.between(before, after, np.zeros(1))
    assert len(patch) == 2
    assert same_bits(patch.undo(after), before)
    assert not same_bits(after, before)  # the test would notice


def test_extended_precision_is_undone_or_refused() -> None:
    before = np.array([[0.1, 0.2, 1.0]], np.longdouble)
    after = np.array([[0.1, 0.5, 1.0]], np.longdouble)
    try:
        undone = Patch.between(before, after, np.zeros(1)).undo(after)
    except BadInput:
        return
    assert np.array_equal(undone, before)


def test_undo_leaves_its_argument_alone() -> None:
    before, after = np.zeros((3, 2)), np.ones((3, 2))
    after.setflags(write=False)
    Patch.between(before, after, np.zeros(3)).undo(after)
    assert np.array_equal(after, np.ones((3, 2)))


def _one_cell_patch() -> tuple[Array, Patch]:
    before = np.arange(24.0).reshape(4, 3, 2)
    after = before.copy()
    after[3, 2, 1] = -1.0
    return after, Patch.between(before, after, np.zeros(4))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda X: X[:3], id="fewer rows"),
        pytest.param(lambda X: X[:0], id="no rows"),
        pytest.param(lambda X: X[:, :2], id="fewer cells"),
        pytest.param(lambda X: X.astype(np.float32), id="another dtype"),
        pytest.param(lambda X: X.astype(np.int64), id="another dtype of the same size"),
        pytest.param(lambda X: X + 1, id="another value"),
        pytest.param(lambda X: np.where(X == -1, 23.0, X), id="undone already"),
    ],
)
def test_undo_refuses_other_data(change: Any) -> None:
    after, patch = _one_cell_patch()
    patch.undo(after)
    with pytest.raises(BadInput) as caught:
        patch.undo(change(after))
    assert "\n" not in str(caught.value)


def test_undo_refuses_a_single_bit() -> None:
    before, after = np.array([[1.0, 5.0]]), np.array([[1.0, 0.0]])
    patch = Patch.between(before, after, np.zeros(1))
    with pytest.raises(BadInput):
        patch.undo(np.array([[1.0, -0.0]]))


@quietly
@given(pair=pairs)
def test_a_patch_comes_back_from_its_file(pair: tuple[Array, Array], tmp_path_factory: pytest.TempPathFactory) -> None:
    before, after = pair
    patch = Patch.between(before, after, np.linspace(0, 1, len(before)))
    path = tmp_path_factory.getbasetemp() / "round.patch.npz"
    with path.open("wb") as file:
        patch.write(file)
    read = Patch.read(path)
    for name in ("row", "cell", "old", "new", "score"):
        assert same_bits(getattr(read, name), getattr(patch, name)), name
    assert same_bits(read.undo(after), before)


def test_an_empty_patch() -> None:
    X = np.arange(6.0).reshape(2, 3)
    patch = Patch.between(X, X.copy(), np.zeros(2))
    assert len(patch) == 0
    assert same_bits(patch.undo(X), X)


def test_a_report_s_patch_is_what_it_changed() -> None:
    original = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    repair = original + np.array([[[0, 1], [0, 2]]], np.uint8)
    report = Report(original, repair, np.array([0.2, 0.5, 0.9]), 0.5)
    patch = report.patch()
    assert report.is_outlier.tolist() == [False, True, True]  # a score that reaches the threshold counts
    assert same_bits(report.repaired[0], original[0])
    assert same_bits(report.repaired[1:], repair[1:])
    assert patch.row.tolist() == [1, 1, 2, 2]
    assert patch.cell.tolist() == [1, 3, 1, 3]
    assert patch.score.tolist() == [0.5, 0.5, 0.9, 0.9]
    assert same_bits(patch.undo(report.repaired), original)
    assert report.changed.sum() == len(patch)
    assert len(report.at(0.95).patch()) == 0
    assert len(report.at(0.0).patch()) == 6
    assert same_bits(original, np.arange(12, dtype=np.uint8).reshape(3, 2, 2))


# writing


def test_scores_are_a_csv_that_reads_back_exactly() -> None:
    scores = np.random.default_rng(0).random(50) ** 9
    flags = scores > 0.1
    text = scores_csv(scores, flags, np.arange(50)).decode()
    records = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [int(r["row"]) for r in records] == list(range(50))
    assert [float(r["outlier_score"]) for r in records] == scores.tolist()
    assert [r["is_outlier"] for r in records] == [str(int(flag)) for flag in flags]
    assert [int(r["cells_changed"]) for r in records] == list(range(50))
    table = np.genfromtxt(io.StringIO(text), delimiter=",", names=True)
    assert np.array_equal(table["outlier_score"], scores)


def test_writing_renames_when_all_is_complete(tmp_path: Path) -> None:
    one, two = tmp_path / "one.npy", tmp_path / "two.csv"
    two.write_text("old")
    with writing(one, two) as (first, second):
        first.write(b"1" * 100_000)
        second.write(b"2")
        first.flush()
        assert not one.exists()  # a reader never sees a part
        assert two.read_text() == "old"
    assert one.read_bytes() == b"1" * 100_000
    assert two.read_bytes() == b"2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npy", "two.csv"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError, GeneratorExit])
def test_writing_leaves_nothing_on_an_error(tmp_path: Path, error: type[BaseException]) -> None:
    one, two = tmp_path / "one.npy", tmp_path / "two.csv"
    two.write_text("old")

    def write() -> None:
        with writing(one, two) as (first, second):
            first.write(b"1" * 100_000)
            second.write(b"2" * 100_000)
            raise error

    with pytest.raises(error):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["two.csv"]
    assert two.read_text() == "old"


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_writing_leaves_nothing_when_the_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    (tmp_path / "X").write_text("old")

    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError("refused")

    monkeypatch.setattr(*((os, "fsync") if function == "fsync" else (Path, "replace")), refuse)
    with pytest.raises(OSError, match="refused"):
        write_file(tmp_path / "X", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["X"]
    assert (tmp_path / "X").read_text() == "old"


def test_writing_to_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "missing" / "X", b"new")
    with pytest.raises(FileNotFoundError), writing(tmp_path / "X", tmp_path / "missing" / "X"):
        pass
    assert list(tmp_path.iterdir()) == []


@contextmanager
def _largest_file(size: int) -> Iterator[None]:
    """A disk that is full after so many bytes of a file. Python ignores the signal, so that writing fails instead."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _write_bytes(file: IO[bytes], X: Array) -> None:
    file.write(X.tobytes() + b"some more")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_FSIZE")
@pytest.mark.parametrize("missing", [1, 100, 4000, 5000, 50_000])
@pytest.mark.parametrize("write", [write_array, _write_bytes])
def test_a_disk_that_fills_up_at_the_very_end(tmp_path: Path, write: Any, missing: int) -> None:
    """The last bytes of a file are those that buffers hold back, and whose loss goes unseen."""
    X = np.random.default_rng(0).random(8000)
    failure = None
    with _largest_file(X.nbytes + (128 if write is write_array else 0) - missing):
        try:
            with writing(tmp_path / "X.npy") as (file,):
                write(file, X)
        except OSError as error:
            failure = error
    assert list(tmp_path.iterdir()) == []
    assert failure is not None
    assert failure.strerror  # what the one sentence is made of


# rows


@pytest.mark.parametrize("mapped", [False, True])
def test_rows_are_the_same_held_or_encoded_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    X = np.random.default_rng(0).normal(size=(50, 4, 3)).astype(np.float32)
    if mapped:
        np.save(tmp_path / "X.npy", X)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    schema = Schema.of(X)
    held = rows_module.Rows(X, schema, torch.device("cpu"))
    monkeypatch.setattr(rows_module, "HELD_BYTES", 0)
    asked = rows_module.Rows(X, schema, torch.device("cpu"))
    assert held.held is not None
    assert asked.held is None
    assert len(held) == len(asked) == 50
    for some in (slice(3, 9), slice(None), torch.tensor([7, 0, 7, 49])):
        assert torch.equal(held[some], asked[some])
        assert np.array_equal(asked[some].numpy(), schema.encode(np.asarray(X))[some])


def test_a_fit_is_the_same_held_or_encoded_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(50, 4, 3)).astype(np.float32)
    y = np.resize([0, 1, -1], 50)
    held = Cleaner(epochs=2, folds=0).fit(X, y).outlier_score(X)
    monkeypatch.setattr(rows_module, "HELD_BYTES", 0)
    assert np.array_equal(Cleaner(epochs=2, folds=0).fit(X, y).outlier_score(X), held)


def test_bytes_are_never_held_encoded() -> None:
    """They are a quarter of the size, and quick to encode."""
    X = np.random.default_rng(0).integers(0, 256, size=(50, 4, 3), dtype=np.uint8)
    schema = Schema.of(X)
    rows = rows_module.Rows(X, schema, torch.device("cpu"))
    assert rows.held is None
    assert np.array_equal(rows[torch.tensor([7, 0])].numpy(), schema.encode(X[[7, 0]]))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_mean_and_deviation_part_by_part(monkeypatch: pytest.MonkeyPatch, offset: float) -> None:
    monkeypatch.setattr(schema_module, "ROWS_AT_ONCE", 7)
    X = np.random.default_rng(0).normal(size=(100, 5)) * [1, 10, 1e-3, 5, 1] + offset
    schema = Schema.of(X)
    np.testing.assert_allclose(schema.mean, X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(schema.scale, X.std(0), rtol=1e-6)
    images = Schema.of(X.reshape(100, 5, 1))
    np.testing.assert_allclose([*images.mean, *images.scale], [X.mean(), X.std()], rtol=1e-9)
    with pytest.raises(BadInput, match="row 99, cell 4"):
        check_rows(np.where(np.arange(500).reshape(100, 5) == 499, np.nan, X))

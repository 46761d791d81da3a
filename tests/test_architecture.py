"""Who may import whom: downwards only, and the truth stays out of fit."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import unblemish

ROOT = Path(unblemish.__file__).parent

# a module may import from its own floor and from those below it
FLOORS = [
    {"cli", "benchmark"},
    {"cleaner", "report", "storage"},
    {"training", "trusted", "ranks", "progress", "patterns"},
    {"models"},
    {"data", "errors"},
]
FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}
TRUTH = "metrics"


def part(module: str) -> str:
    return module.split(".")[1]


def imports() -> list[tuple[str, str]]:
    """(importing module, imported module) for every import of the package within itself."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(("unblemish", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("unblemish"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                found += [(module, name if node.module == "unblemish" else node.module) for name in names]
    return [(a, b) for a, b in found if a != "unblemish" and b != "unblemish.__version__"]


def test_every_module_has_a_floor() -> None:
    parts = {path.stem if path.is_file() else path.name for path in ROOT.iterdir() if path.name[0] not in "_."}
    assert parts - {"py"} == set(FLOOR_OF) | {TRUTH}


@pytest.mark.parametrize(("module", "imported"), sorted(set(imports())))
def test_imports_go_downwards(module: str, imported: str) -> None:
    if part(imported) == TRUTH:
        assert part(module) == "benchmark", f"{module} sees the ground truth"
    elif part(module) != TRUTH:
        assert FLOOR_OF[part(imported)] >= FLOOR_OF[part(module)], f"{module} imports {imported}, which is above it"


def test_there_are_imports_to_check() -> None:
    assert len(set(imports())) > 40


@pytest.mark.parametrize("statement", ["import unblemish", "import unblemish.cli"])
def test_light_imports_stay_light(statement: str) -> None:
    code = f"import sys; {statement}; print(','.join(sorted(set(m.split('.')[0] for m in sys.modules))))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"torch", "sklearn", "scipy", "matplotlib", "pydantic", "numpy", "polars", "pandas"}
    assert not heavy & set(out.strip().split(","))


def test_public_names_are_there() -> None:
    for name in unblemish.__all__:
        assert getattr(unblemish, name) is not None
    assert set(unblemish.__all__) <= set(dir(unblemish))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = unblemish.nonsense

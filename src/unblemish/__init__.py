"""unblemish finds and repairs systematic errors in datasets, from about ten labels of each kind."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from unblemish.cleaner import Cleaner
    from unblemish.data.write import Patch
    from unblemish.errors import BadInput, Diverged
    from unblemish.models.presets import Preset
    from unblemish.models.recipe import Ramp, Recipe
    from unblemish.report import Report
    from unblemish.training import Progress
    from unblemish.trusted import TrustedError

_HOME = {
    "BadInput": "errors",
    "Cleaner": "cleaner",
    "Diverged": "errors",
    "Patch": "data.write",
    "Preset": "models.presets",
    "Progress": "training",
    "Ramp": "models.recipe",
    "Recipe": "models.recipe",
    "Report": "report",
    "TrustedError": "trusted",
}

__all__ = [
    "BadInput",
    "Cleaner",
    "Diverged",
    "Patch",
    "Preset",
    "Progress",
    "Ramp",
    "Recipe",
    "Report",
    "TrustedError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used: `import unblemish` does not wait for torch."""
    if name in _HOME:
        return getattr(import_module(f"unblemish.{_HOME[name]}"), name)
    raise AttributeError(f"module 'unblemish' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""A fitted model as a folder: model.json, and its weights as safetensors. No pickle."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

import unblemish
from unblemish.data.schema import Schema
from unblemish.data.write import cannot_write, check_output, write_file
from unblemish.errors import BadInput
from unblemish.models import presets
from unblemish.models.presets import Preset
from unblemish.models.recipe import Recipe
from unblemish.patterns.keep import PREFIX, StoredCatalogue, packed, restored
from unblemish.trusted import TrustedError

if TYPE_CHECKING:
    from unblemish.cleaner import Cleaner

FORMAT = 1
ABOUT = "model.json"
RANKS = "ranks.knots"  # beside the weights, the ranks of a model without a classifier

CONFIGS: dict[str, type[Any]] = {config.__name__: config for config in presets.MODELS}


class StoredPreset(BaseModel):
    """A preset as JSON."""

    model_config = ConfigDict(extra="forbid")

    config: str
    values: dict[str, Any]
    recipe: Recipe

    @classmethod
    def of(cls, preset: Preset) -> StoredPreset:
        return cls(config=type(preset.config).__name__, values=asdict(preset.config), recipe=preset.recipe)

    def restored(self) -> Preset:
        config = TypeAdapter(CONFIGS[self.config]).validate_python(self.values, extra="forbid")
        return Preset(config, self.recipe)


class Parameters(BaseModel):
    """What a cleaner was made with, save for a preset of the user's own."""

    model_config = ConfigDict(extra="forbid")

    model: str
    preset: str | None = None
    recipe: str
    epochs: int | None
    torso: str
    threshold: float | None
    folds: int
    patterns: bool = False  # models of a time before patterns have none
    seed: int
    device: str
    verbose: bool


class About(BaseModel):
    """What model.json says."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    format_version: int
    weights: str = Field(pattern=r"^weights-[0-9a-f]{16}\.safetensors$")
    sha256: str
    parameters: Parameters
    parameter_preset: StoredPreset | None
    schema_: Schema = Field(alias="schema")
    preset: StoredPreset
    threshold: float
    trusted_error: TrustedError | None
    features: int | None
    feature_names: list[str] | None
    libraries: dict[str, str]
    curve: list[dict[str, float]]
    fits: int
    patterns: StoredCatalogue | None = None


def save(cleaner: Cleaner, folder: Path, *, force: bool = False) -> None:
    """Write the weights under a name of their own, then model.json that names them: whole or not at all."""
    folder = folder.absolute()
    check_output(folder, force=force, folder=True)
    tensors = {name: value.cpu().contiguous() for name, value in cleaner.model_.state_dict().items()}
    if cleaner.knots_ is not None:
        tensors[RANKS] = torch.from_numpy(cleaner.knots_)
    patterns = None
    if cleaner.catalogue_ is not None:
        patterns, arrays = packed(cleaner.catalogue_)
        tensors |= arrays
    weights = save_tensors(tensors)
    digest = hashlib.sha256(weights).hexdigest()
    parameters = cleaner.get_params(deep=False) | {
        "device": str(cleaner.device),
        "verbose": bool(cleaner.verbose),
        "patterns": bool(cleaner.patterns),
    }
    own_preset = parameters.pop("preset") if isinstance(parameters["preset"], Preset) else None
    names = getattr(cleaner, "feature_names_in_", None)
    about = About(
        format_version=FORMAT,
        weights=f"weights-{digest[:16]}.safetensors",
        sha256=digest,
        parameters=Parameters(**parameters),
        parameter_preset=None if own_preset is None else StoredPreset.of(own_preset),
        schema=cleaner.schema_,
        preset=StoredPreset.of(cleaner.preset_),
        threshold=cleaner.threshold_,
        trusted_error=cleaner.trusted_error_,
        features=getattr(cleaner, "n_features_in_", None),
        feature_names=None if names is None else [str(name) for name in names],
        libraries={"unblemish": unblemish.__version__}
        | {name: version(name) for name in ("torch", "numpy", "scikit-learn", "safetensors")},
        curve=cleaner.curve_,
        fits=cleaner.fits_,
        patterns=patterns,
    )
    text = about.model_dump_json(indent=1, by_alias=True).encode()
    try:
        if folder.exists():
            _replace(folder, about.weights, weights, text)
        else:
            _create(folder, about.weights, weights, text)
    except OSError as error:
        raise cannot_write(folder, error) from error


def _create(folder: Path, name: str, weights: bytes, text: bytes) -> None:
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
        write_file(temporary / name, weights)
        write_file(temporary / ABOUT, text)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(folder: Path, name: str, weights: bytes, text: bytes) -> None:
    kept = (folder / name).exists()
    write_file(folder / name, weights)
    try:
        write_file(folder / ABOUT, text)  # from here on the folder holds the new model, until here the old one
    except BaseException:
        if not kept:
            (folder / name).unlink()
        raise
    for old in folder.glob("weights-*.safetensors"):
        if old.name != name:
            old.unlink()


def read_about(folder: Path) -> About:
    """What a model folder says of itself."""
    path = folder / ABOUT
    if not path.is_file():
        raise BadInput(f"{folder} is not a model folder (it has no {ABOUT}); give one that 'fit' or save() wrote")
    damaged = BadInput(f"{path} is damaged, or not from unblemish; restore it from a copy, or fit again")
    try:
        raw = json.loads(path.read_bytes())
        newer = isinstance(raw["format_version"], int) and raw["format_version"] > FORMAT
    except (ValueError, TypeError, KeyError) as error:
        raise damaged from error
    if newer:
        raise BadInput(f"{folder} was written by a version of unblemish newer than this one; upgrade to read it")
    try:
        about = About.model_validate(raw)
        about.preset.restored()
    except (ValidationError, KeyError) as error:
        raise damaged from error
    return about


def load(kind: type[Cleaner], folder: Path) -> Cleaner:
    """The cleaner that `save` was given, on this machine's CPU or GPU."""
    about = read_about(folder)
    path = folder / about.weights
    damaged = BadInput(f"{path} is missing or damaged; restore the folder from a copy, or fit again")
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != about.sha256:
            raise damaged
        tensors = load_tensors(content)
    except (OSError, SafetensorError) as error:
        raise damaged from error
    parameters = about.parameters.model_dump()
    if about.parameter_preset is not None:
        parameters["preset"] = about.parameter_preset.restored()
    cleaner = kind(**parameters)
    preset = about.preset.restored()
    knots = tensors.pop(RANKS, None)
    model = presets.build(preset.config, about.schema_, cleaner.torso)
    of_patterns = {name: tensors.pop(name) for name in list(tensors) if name.startswith(PREFIX)}
    try:
        model.load_state_dict(tensors)
        cleaner.catalogue_ = None if about.patterns is None else restored(about.patterns, of_patterns)
    except (RuntimeError, KeyError) as error:
        raise damaged from error
    try:
        device = cleaner._device()
    except BadInput:
        device = torch.device("cpu")  # fitted on a device that this machine has not
    cleaner.model_ = model.to(device).eval()
    cleaner.schema_, cleaner.preset_, cleaner.threshold_ = about.schema_, preset, about.threshold
    cleaner.knots_ = None if knots is None else knots.numpy()
    cleaner.trusted_error_, cleaner.curve_, cleaner.fits_ = about.trusted_error, about.curve, about.fits
    if about.features is not None:
        cleaner.n_features_in_ = about.features
    if about.feature_names is not None:
        cleaner.feature_names_in_ = np.array(about.feature_names, dtype=object)
    return cleaner

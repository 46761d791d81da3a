"""Cleaner: the estimator that users hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from unblemish import storage
from unblemish.data.frames import like
from unblemish.data.labels import INLIER, OUTLIER, UNLABELLED, check_labels
from unblemish.data.rows import Rows
from unblemish.data.schema import Schema, check_rows, parts
from unblemish.data.write import check_output
from unblemish.errors import BadInput, Diverged, check_share, check_whole, shown
from unblemish.models import presets
from unblemish.models.base import Labels as LabelsNeeded
from unblemish.models.base import Model
from unblemish.models.clsvae import Clsvae
from unblemish.models.presets import Preset
from unblemish.models.recipe import Recipe
from unblemish.patterns.examine import Examination, examine
from unblemish.patterns.find import find_patterns
from unblemish.patterns.pattern import Pattern
from unblemish.ranks import rank_knots, rank_scores
from unblemish.report import Report
from unblemish.training import Progress, check_trusted_set, read_fingerprint, train
from unblemish.trusted import TrustedError, best_threshold, folds_worth_making, held_out_logits

Array = NDArray[Any]
Labels = NDArray[np.int64]

PRIOR_SHARE_OF_INLIERS = 0.6  # the paper's alpha
ROWS_AT_ONCE = 1024  # more would leave the processor's cache
ANOTHER = 1_000_003  # from one seed to the next, far from those that users count up


class Cleaner(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from a few labels what is clean and what is error, then finds outliers and repairs them.

    >>> cleaner = Cleaner().fit(X, y)      # y: 1 inlier, 0 outlier, -1 unlabelled
    >>> report = cleaner.clean(X)
    >>> report.repaired                    # X with its outliers repaired

    X is (N, D), (N, height, width) or (N, height, width, channels), of numbers. A 2-D array of floats is taken
    as a table and scaled column by column, anything else as images of one scale. What comes back has the
    type, shape and dtype of what went in.

    model:     'clsvae', 'clsvae-nodc', 'ccvae', 'vaegmm', 'cvae', 'vae' or 'vae-l2'
    preset:    None for defaults that suit the data; 'shapes', 'frey' or 'fashion' for the paper's; or a Preset
    recipe:    'fast', or 'paper' for three times the epochs, at one low learning rate; a Preset has its own
    epochs:    in place of the recipe's
    torso:     'mlp', or 'conv' for images of 16x16 or more
    threshold: rows that score this or more are outliers. None is the paper's 0.5; for models without a
               classifier it is what tells the trusted set apart best, or else flags the prior's share of rows
    folds:     how many parts to cross-validate the trusted set in, after the fit; 0 for none
    patterns:  look for errors that repeat, and repair the cells they touch alone; False is the paper's method.
               For 'clsvae' and 'clsvae-nodc'
    seed:      the same seed, data and machine give the same model
    device:    'auto', 'cpu', 'cuda', ...
    verbose:   show a progress bar

    Fitted: model_, schema_, preset_, threshold_, patterns_, trusted_error_, curve_, fits_.
    """

    def __init__(
        self,
        model: str = "clsvae",
        *,
        preset: str | Preset | None = None,
        recipe: str = "fast",
        epochs: int | None = None,
        torso: str = "mlp",
        threshold: float | None = None,
        folds: int = 3,
        patterns: bool = True,
        seed: int = 0,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.preset = preset
        self.recipe = recipe
        self.epochs = epochs
        self.torso = torso
        self.threshold = threshold
        self.folds = folds
        self.patterns = patterns
        self.seed = seed
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, checkpoint: str | Path | None = None) -> Cleaner:
        """Fit to dirty rows and the few labels there are.

        checkpoint: a file that keeps the state of training; if it is stopped, the same call goes on from there.
        """
        steps = self.fitting(X, y, checkpoint=checkpoint)
        if self.verbose:
            from unblemish.progress import bar

            steps = bar(steps)
        for _ in steps:
            pass
        return self

    def fitting(
        self, X: Any, y: Any = None, *, checkpoint: str | Path | None = None
    ) -> Generator[Progress, None, None]:
        """`fit` epoch by epoch: yields its progress. If it is left early, the cleaner stays as it was."""
        self.check_parameters()
        if checkpoint is not None:
            check_output(Path(checkpoint), force=True)
        rows = check_rows(X, at_least=2)
        if y is None and presets.labels_needed(self.model) is not LabelsNeeded.NONE:
            raise BadInput(
                f"{self.model} requires y to be passed, but the target y is None; "
                "give 1 for rows known to be inliers, 0 for outliers, -1 for all others"
            )
        y = check_labels(y, len(rows))
        schema = Schema.of(rows)
        preset = self._choose_preset(schema, y)
        check_trusted_set(presets.model_class(preset.config).labels, y)
        device = self._device()
        x = Rows(rows, schema, device)
        new_model = partial(_new_model, preset, schema, self.torso, device)
        fitted = yield from self._fit_until_most_are_inliers(
            new_model, x, y, preset.recipe, checkpoint, _fingerprint(rows, y, preset, self.torso, int(self.seed))
        )
        model, logit = fitted.model, fitted.logit
        self.schema_, self.preset_, self.model_, self.curve_ = schema, preset, model, fitted.curve
        self.fits_ = fitted.fits
        if rows.ndim == 2:
            self._check_columns(X, reset=True)
        else:
            self.__dict__.pop("n_features_in_", None)  # of an earlier fit to a table
        self.knots_ = None if model.has_classifier else rank_knots(logit)
        self.catalogue_ = None
        if self.patterns and isinstance(model, Clsvae) and fitted.diverged is None:
            self.catalogue_ = find_patterns(
                x, y, logit, lambda part: model.likelihood.mean(model.repair(part)), int(self.seed)
            )
        score = self._score(logit)
        self.threshold_ = self._choose_threshold(score, y)
        trusted = np.flatnonzero(y != UNLABELLED)
        if self.catalogue_ is not None:
            score[trusted] = self._examined(x[torch.from_numpy(trusted)], logit[trusted], repair=False).score
        self.trusted_error_ = TrustedError.of(score >= self.threshold_, y, folds=0)
        if fitted.diverged is not None:
            raise fitted.diverged

        folds = folds_worth_making(y, self.folds) if model.has_classifier else 0
        if folds:
            logits = yield from held_out_logits(new_model, x, y, preset.recipe, folds, int(self.seed))
            score = self._score(logits)
            if self.catalogue_ is not None:
                score[trusted] = self._examined(x[torch.from_numpy(trusted)], logits[trusted], repair=False).score
            self.trusted_error_ = TrustedError.of(score >= self.threshold_, y, folds)

    def _fit_until_most_are_inliers(
        self,
        new_model: Callable[[int], Model],
        x: Rows,
        y: Labels,
        recipe: Recipe,
        checkpoint: str | Path | None,
        fingerprint: str,
    ) -> Generator[Progress, None, _Fitted]:
        """Fit; and fit again, from another seed, while the classifier contradicts what the method assumes.

        Most rows are inliers (the paper's section 3). With few labels a fit now and then takes a whole group of
        inliers for outliers instead. No label and no truth is needed to notice that.
        """
        place = None if checkpoint is None else Path(checkpoint)
        fingerprints = [f"{fingerprint}-{fits}" for fits in range(1, recipe.fits + 1)]
        found = None if place is None or not place.exists() else read_fingerprint(place)
        fits = fingerprints.index(found) + 1 if found in fingerprints else 1
        message = ""
        while True:
            seed = int(self.seed) + ANOTHER * (fits - 1)
            model = new_model(seed)
            steps = train(
                model,
                x,
                torch.from_numpy(y).to(x.device),
                recipe,
                seed=seed,
                checkpoint=place,
                fingerprint=fingerprints[fits - 1],
                phase="fit" if fits == 1 else f"fit {fits}",
                message=message,
            )
            diverged = None
            try:
                curve = yield from steps
            except Diverged as error:
                diverged, curve = error, error.curve  # what was learnt before is kept: it can be used and saved
            logit = _in_parts(model.inlier_logit, x)
            outliers = float((logit < 0).mean())
            if diverged or fits == recipe.fits or not model.has_classifier or outliers <= 0.5:
                return _Fitted(model, logit, curve, fits, diverged)
            message = f"{outliers:.0%} of the rows look like outliers, but most should be inliers: fitting again"
            fits += 1
            if place is not None:
                place.unlink(missing_ok=True)

    # using what was fitted

    def clean(self, X: Any) -> Report:
        """Scores, flags and repairs of these rows."""
        return Report.joined(check_rows(X), list(self.cleaning(X)))

    def cleaning(self, X: Any) -> Generator[Report, None, None]:
        """`clean` a part at a time, in order: for more rows than fit into memory, such as those of a mapped file."""
        rows = self._fitted_rows(X)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            x = self._encoded(part)
            logit = _in_parts(self.model_.inlier_logit, x)
            if self.catalogue_ is None:
                yield Report(part, self._repair(x), self._score(logit), self.threshold_)
            else:
                found = self._examined(x[:], logit)
                yield Report(
                    part,
                    self._surgical(part, found, self.schema_.decode_rounded),
                    found.score,
                    self.threshold_,
                    probability=found.probability,
                    mask=found.mask.reshape(part.shape),
                    uncertainty=self._in_raw_units(found.deviation).reshape(part.shape),
                )

    def outlier_score(self, X: Any) -> NDArray[np.float64]:
        """(N,) in [0, 1], higher is worse."""
        x = self._encoded(self._fitted_rows(X))
        logit = _in_parts(self.model_.inlier_logit, x)
        if self.catalogue_ is None:
            return self._score(logit)
        parts = range(0, len(x), ROWS_AT_ONCE)
        at = [slice(start, start + ROWS_AT_ONCE) for start in parts]
        return np.concatenate([self._examined(x[part], logit[part], repair=False).score for part in at])

    def predict(self, X: Any) -> NDArray[np.int64]:
        """(N,): 1 inlier, 0 outlier."""
        return np.where(self.outlier_score(X) >= self.threshold_, OUTLIER, INLIER)

    def repair(self, X: Any, *, unrounded: bool = False) -> Array:
        """The repair of every row as X's dtype, flagged or not; with patterns, only of cells that show an error.

        unrounded: the expected values instead, as float64: probabilities between the two values of binary data.
        """
        rows = self._fitted_rows(X)
        if self.catalogue_ is None:
            return self._repair(self._encoded(rows), self.schema_.decode if unrounded else None)
        decode = self.schema_.decode if unrounded else self.schema_.decode_rounded
        repaired = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            x = self._encoded(part)
            found = self._examined(x[:], _in_parts(self.model_.inlier_logit, x))
            repaired.append(self._surgical(part.astype(np.float64) if unrounded else part, found, decode))
        return np.concatenate(repaired)

    def transform(self, X: Any) -> Any:
        """X with the rows that are flagged repaired; all others are X's, bit for bit."""
        return like(X, self.clean(X).repaired)

    # patterns

    @property
    def patterns_(self) -> tuple[Pattern, ...]:
        """The errors that repeat, the most frequent first: in the data's own values."""
        check_is_fitted(self)
        if self.catalogue_ is None:
            return ()
        return tuple(pattern.in_values_of(self.schema_) for pattern in self.catalogue_.patterns)

    def without_pattern(self, number: int) -> Cleaner:
        """A cleaner to which this pattern is no error. It shares the model: nothing is fitted again."""
        check_is_fitted(self)
        check_whole("number", number, least=0)
        if number >= len(self.patterns_):
            raise BadInput(f"number is {number}, but the patterns are numbered from 0 to {len(self.patterns_) - 1}")
        other = copy(self)
        assert self.catalogue_ is not None
        other.catalogue_ = self.catalogue_.without(int(number))
        return other

    def without_patterns(self) -> Cleaner:
        """A cleaner that scores and repairs as the paper does, by the same model."""
        other = copy(self)
        other.catalogue_ = None
        return other

    def _examined(self, x: torch.Tensor, logit: NDArray[np.float64], *, repair: bool = True) -> Examination:
        """What the patterns, and for the rest the model, say of some rows."""
        assert self.catalogue_ is not None
        assert isinstance(self.model_, Clsvae)
        return examine(self.catalogue_, self.model_, x, logit, self.threshold_, repair=repair)

    def _surgical(self, rows: Array, found: Examination, decode: Callable[[Array], Array]) -> Array:
        """The rows with those cells replaced that show an error; all others are theirs bit for bit."""
        touched = np.flatnonzero(found.mask.any(1))
        repaired = np.array(rows)
        if len(touched):
            mask = found.mask[touched].reshape(len(touched), *rows.shape[1:])
            repaired[touched] = np.where(mask, decode(found.values[touched]), rows[touched])
        return repaired

    def _in_raw_units(self, deviation: NDArray[np.float32]) -> NDArray[np.float32]:
        return (deviation * np.array(self.schema_.scale)).astype(np.float32)

    # parts of the above

    def check_parameters(self) -> None:
        """Refuse settings that no data could be fitted with."""
        if self.model not in presets.NAMES:
            raise BadInput(f"model is {shown(self.model)}; choose one of {', '.join(presets.NAMES)}")
        if isinstance(self.preset, Preset):
            if type(self.preset.config) is not type(presets.PAPER["shapes"][self.model].config):
                kind = type(self.preset.config).__name__
                raise BadInput(f"preset holds a {kind}, which is not for {self.model}; choose another model or preset")
        elif self.preset is not None and self.preset not in presets.PAPER:
            raise BadInput(f"preset is {shown(self.preset)}; choose {', '.join(presets.PAPER)}, or None")
        if self.recipe not in presets.RECIPES:
            raise BadInput(f"recipe is {shown(self.recipe)}; choose {' or '.join(presets.RECIPES)}")
        if self.torso not in ("mlp", "conv"):
            raise BadInput(f"torso is {shown(self.torso)}; choose 'mlp' or 'conv'")
        if self.epochs is not None:
            check_whole("epochs", self.epochs, least=1)
        if self.threshold is not None:
            check_share("threshold", self.threshold)
        check_whole("folds", self.folds, least=0)
        if not isinstance(self.patterns, bool | np.bool_):
            raise BadInput(f"patterns is {shown(self.patterns)}; give True or False")
        if self.folds == 1:
            raise BadInput("folds is 1; give 2 or more, or 0 for no cross-validation")
        check_whole("seed", self.seed, least=0)

    def _choose_preset(self, schema: Schema, y: Labels) -> Preset:
        if isinstance(self.preset, Preset):
            preset = self.preset
        else:
            if self.preset is None:
                preset = presets.default(self.model, schema, len(y), int((y != UNLABELLED).sum()))
            else:
                preset = presets.PAPER[self.preset][self.model]
            if self.recipe == "fast":
                preset = presets.fast(preset, len(y))
        if self.epochs is not None:
            preset = replace(preset, recipe=preset.recipe.over(int(self.epochs)))
        return replace(preset, config=presets.with_imbalance(preset.config, y))

    def _choose_threshold(self, score: NDArray[np.float64], y: Labels) -> float:
        if self.threshold is not None:
            return float(self.threshold)
        if self.model_.has_classifier:
            return 0.5
        best = best_threshold(score, y)
        return PRIOR_SHARE_OF_INLIERS if best is None else best

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
            torch.zeros(1, device=device).cpu()
        except (RuntimeError, AssertionError, TypeError) as error:
            raise BadInput(
                f"device is {shown(self.device)}, which is not to be had here; use 'auto' or 'cpu'"
            ) from error
        return device

    def _check_columns(self, X: Any, *, reset: bool) -> None:
        """scikit-learn's own check of the number of columns and their names."""
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)
        except (ValueError, TypeError) as error:
            reason = " ".join(str(error).split())[:250].rstrip(".")
            raise BadInput(f"{reason}; give X with the columns that the model was fitted on, in their order") from error

    def _fitted_rows(self, X: Any) -> Array:
        check_is_fitted(self)
        rows = check_rows(X)
        if rows.ndim == 2 and len(self.schema_.shape) == 1:
            self._check_columns(X, reset=False)
        self.schema_.check(rows)
        return rows

    def _encoded(self, rows: Array) -> Rows:
        return Rows(rows, self.schema_, next(self.model_.parameters()).device, often=False)

    def _repair(self, x: Rows, decode: Callable[[Array], Array] | None = None) -> Array:
        decode = decode or self.schema_.decode_rounded
        with torch.no_grad():
            expected = (self.model_.likelihood.mean(self.model_.repair(part)).cpu().numpy() for part in _parts(x))
            return np.concatenate([decode(part) for part in expected])

    def _score(self, logit: NDArray[np.float64]) -> NDArray[np.float64]:
        """1 - q(y=1|x), or the rank of a likelihood among the fitted rows."""
        return expit(-logit) if self.knots_ is None else rank_scores(logit, self.knots_)

    # keeping

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the fitted model to a folder: weights as safetensors, all else as JSON."""
        check_is_fitted(self)
        storage.save(self, Path(folder), force=force)

    @classmethod
    def load(cls, folder: str | Path) -> Cleaner:
        """The fitted model that `save` wrote, giving the same outputs."""
        return storage.load(cls, Path(folder))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "threshold_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = presets.labels_needed(self.model) is not LabelsNeeded.NONE
        tags.input_tags.three_d_array = True
        return tags


@dataclass(frozen=True)
class _Fitted:
    model: Model
    logit: NDArray[np.float64]  # (N,) of the fitted rows
    curve: list[dict[str, float]]
    fits: int  # how many it took
    diverged: Diverged | None


def _new_model(preset: Preset, schema: Schema, torso: str, device: torch.device, seed: int) -> Model:
    """An untrained model, its weights drawn from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return presets.build(preset.config, schema, torso).to(device)


def _parts(x: Rows) -> Iterator[torch.Tensor]:
    return (x[start : start + ROWS_AT_ONCE] for start in range(0, len(x), ROWS_AT_ONCE))


def _in_parts(function: Callable[[torch.Tensor], torch.Tensor], x: Rows) -> NDArray[np.float64]:
    with torch.no_grad():
        return np.concatenate([function(part).double().cpu().numpy() for part in _parts(x)])


def _fingerprint(rows: Array, y: Labels, preset: Preset, torso: str, seed: int) -> str:
    """What a checkpoint belongs to."""
    digest = hashlib.sha256(repr((preset, torso, seed, torch.__version__, rows.shape, rows.dtype)).encode())
    for _, part in parts(rows):
        digest.update(part.tobytes())
    digest.update(y.tobytes())
    return digest.hexdigest()

"""River models as state (extra ``river``).

River has no format of its own for models. For linear models trained by plain SGD this module stores
the weights, the intercept and the step as MessagePack: bytes that no reader can be made to execute.
All other models can only be pickled, which must be asked for.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.errors import BadValueError
from tether.state.divergence import sum_up
from tether.state.intake import Intake

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Image(msgspec.Struct, array_like=True):
    """A linear model: all that learning changes."""

    weights: list[tuple[str, float]]
    intercept: float
    steps: int


def river_model(model: Any, *, allow_pickle: bool = False) -> LinearModel | PickledModel:
    """A River model in the form that ``SlotState.object`` takes.

    Its divergence is the l1 distance of weights and intercept for linear models with plain SGD, so
    a bound on it is a bound on what a loss takes from the model (AF-Stream 2019, §4); whether learning
    then makes that smaller or larger is up to the model and its data. For all others it is the number
    of updates since the backup.

    Args:
        model: The model, new.
        allow_pickle: Whether a model that is not linear may be stored by pickle. Anybody who can write
            the backup directory or the arena can then run code in your executors.

    Raises:
        BadValueError: River is not installed, or the model needs pickle and that is not allowed.

    Example:
        >>> from river import linear_model
        >>> from tether.state import SlotState
        >>> state = SlotState.heap()
        >>> handle = state.object("model", river_model(linear_model.LinearRegression()))
        >>> state.begin(0)
        >>> handle.value.learn_one({"x": 1.0}, 2.0)
        >>> 0 < handle.divergence() < 1
        True
    """
    if is_plain_linear(model):
        return LinearModel(model)
    if not allow_pickle:
        raise BadValueError(
            f"A River model of type {type(model).__name__} cannot be stored as plain data.",
            why="Only linear models with plain SGD and without an l1 penalty can; others need pickle, "
            "which runs code when it is read.",
            do="Use such a model, or pass allow_pickle=True if nobody else can write your backups.",
        )
    return PickledModel(model)


def is_plain_linear(model: Any) -> bool:
    """Whether weights, intercept and step are all that learning changes in a model.

    Raises:
        BadValueError: River is not installed.
    """
    try:
        from river import optim  # noqa: PLC0415 - an optional extra
        from river.linear_model.base import GLM  # noqa: PLC0415
    except ImportError as error:
        raise BadValueError(
            "River models cannot be used here.",
            why="River is not installed.",
            do="Install tether with the extra river, on the executors too.",
        ) from error
    return isinstance(model, GLM) and type(model.optimizer) is optim.SGD and not model.l1


class LinearModel:
    """A linear model of River, with its weights as the state.

    Feature names are texts. ``learn_one``, ``predict_one`` and so on are the model's own.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.state_type = f"river.{type(model).__name__}"
        self._last: tuple[bytes, _Image, dict[str, float]] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "model":  # none yet while this object is copied
            raise AttributeError(name)
        return getattr(self.model, name)

    def state_divergence(self, backup: bytes) -> float:
        """Sum of the absolute differences of all weights and the intercept."""
        if self._last is None or self._last[0] != backup:
            image = msgspec.msgpack.decode(backup, type=_Image)
            self._last = (backup, image, dict(image.weights))
        _, image, theirs = self._last
        mine: Mapping[str, float] = self.model.weights
        terms = [abs(value - theirs.get(name, 0.0)) for name, value in mine.items()]
        terms += [abs(value) for name, value in theirs.items() if name not in mine]
        return sum_up([*terms, abs(float(self.model.intercept) - image.intercept)])

    def backup_state(self) -> bytes:
        """Weights by name, intercept and step."""
        weights = sorted((str(name), float(w)) for name, w in self.model.weights.items())
        image = _Image(weights, float(self.model.intercept), int(self.model.optimizer.n_iterations))
        return msgspec.msgpack.encode(image)

    def recover_state(self, image: bytes) -> None:
        """The model with the weights of an image."""
        from river.utils import VectorDict  # noqa: PLC0415

        stored = msgspec.msgpack.decode(image, type=_Image)
        self.model._weights = VectorDict(dict(stored.weights))
        self.model.intercept = stored.intercept
        self.model.optimizer.n_iterations = stored.steps


class PickledModel:
    """Any model of River, stored by pickle; its divergence counts updates.

    Call ``learn_one`` and ``learn_many`` on this object, not on the model within: they are counted.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._replaced = 0
        self.updates = 0
        """What the model has learned from."""
        self.state_type = f"river.{type(model).__name__}"

    @property
    def model(self) -> Any:
        """The model within.

        Another one that is put in its place shares nothing with the one before, and is one update.
        """
        return self._model

    @model.setter
    def model(self, other: Any) -> None:
        self._model = other
        self._replaced += 1
        self.updates = 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is being copied there is no model yet
            raise AttributeError(name)
        return getattr(self._model, name)

    def learn_one(self, *arguments: Any, **options: Any) -> None:
        """Learn from one example."""
        self.updates += 1
        self._model.learn_one(*arguments, **options)

    def learn_many(self, x: Any, *arguments: Any, **options: Any) -> None:
        """Learn from a batch, where the model can."""
        self.updates += len(x)
        self._model.learn_many(x, *arguments, **options)

    def state_divergence(self, backup: bytes) -> float:
        """Updates that only one of the two has had."""
        return self._intake().apart(Intake.split(backup)[0])

    def backup_state(self) -> bytes:
        """Number of updates, then the pickled model."""
        return self._intake().before(pickle.dumps(self._model))

    def recover_state(self, image: bytes) -> None:
        """The model of an image; executes what the image says, hence ``allow_pickle``."""
        intake, content = Intake.split(image)
        self._replaced, self.updates = intake.emptied, int(intake.items)
        self._model = pickle.loads(content)  # noqa: S301 - asked for by allow_pickle

    def _intake(self) -> Intake:
        return Intake(self._replaced, float(self.updates))

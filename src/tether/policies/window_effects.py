"""How the progress of the stream changes the failures that a policy counts in a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.core.windows import Decaying, Hopping
from tether.policies.memory import SlotPolicyState

if TYPE_CHECKING:
    from tether.core.windows import Window
    from tether.policies.events import EpochApplied, Recovered, WindowEnd


class WindowedState(SlotPolicyState, frozen=True, kw_only=True):
    """What an approximate policy remembers of a slot."""

    failed_at: tuple[float, ...] = ()
    """Positions of the losses, oldest first, in the window's unit: that of the newest row that may be
    affected. Kept only with a window; a loss whose position is not known yet has no entry."""


def after_epoch(window: Window | None, state: WindowedState, event: EpochApplied) -> WindowedState:
    """Count an epoch's rows, set positions of losses, and drop losses that a sliding window has left."""
    if window is None or isinstance(window, Decaying):
        return state
    if window.by == "items":
        state = replace(state, items=state.items + event.items)
    newest: float | None
    now: float | None
    if window.by == "seconds":
        # The query's newest event time never decreases, so no earlier loss is after it.
        newest, now = event.newest_event_time, event.watermark
    else:
        newest = now = event.epoch if window.by == "epochs" else state.items - 1
    state = _placed(state, newest)
    if isinstance(window, Hopping) or now is None:
        return state
    return _keeping(state, tuple(at for at in state.failed_at if window.remaining(at, now)))


def after_loss(window: Window | None, state: WindowedState, event: Recovered) -> WindowedState:
    """Count a failure, and note its position if it is known."""
    failed = replace(state, failures=state.failures + 1)
    if window is None or isinstance(window, Decaying):
        return failed
    if window.by == "seconds":
        return _placed(failed, event.newest_event_time)
    coming = event.epoch if window.by == "epochs" else state.items
    # Only rows before the next ones can be missing. But if a hopping window has just ended, the clearing
    # of its state may be undone too, which is an error in the next window.
    return _placed(failed, coming if isinstance(window, Hopping) else coming - 1)


def after_window(window: Window | None, state: WindowedState, event: WindowEnd) -> WindowedState:
    """At the end of a hopping window drop its losses; keep those that may be in the next one."""
    if not isinstance(window, Hopping):
        return state
    # A loss with an unknown position may be in the next window, and is dropped at its end.
    state = _placed(state, event.end)
    first = window.first_in_question(event.end)
    return _keeping(state, tuple(at for at in state.failed_at if at >= first))


def _placed(state: WindowedState, position: float | None) -> WindowedState:
    unplaced = state.failures - len(state.failed_at)
    if position is None or unplaced <= 0:
        return state
    # Sorted positions keep the sum over a window correct even if a caller's clock goes back.
    latest = max((float(position), *state.failed_at[-1:]))
    return replace(state, failed_at=state.failed_at + (latest,) * unplaced)


def _keeping(state: WindowedState, kept: tuple[float, ...]) -> WindowedState:
    gone = len(state.failed_at) - len(kept)
    return replace(state, failures=state.failures - gone, failed_at=kept) if gone else state

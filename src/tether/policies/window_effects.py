"""What the stream's progress does to the failures that a policy counts against a window."""

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
    """Where in the stream the losses were, elder first, in the window's unit: the newest thing that
    may be wrong. Kept only for a window; one whose place is not yet known has no entry."""


def after_epoch(window: Window | None, state: WindowedState, event: EpochApplied) -> WindowedState:
    """Count an epoch's rows, place losses, and let go those that a sliding window has left."""
    if window is None or isinstance(window, Decaying):
        return state
    if window.by == "items":
        state = replace(state, items=state.items + event.items)
    newest: float | None
    now: float | None
    if window.by == "seconds":
        # The query's newest event time never falls, so it is no earlier than anything lost before.
        newest, now = event.newest_event_time, event.watermark
    else:
        newest = now = event.epoch if window.by == "epochs" else state.items - 1
    state = _placed(state, newest)
    if isinstance(window, Hopping) or now is None:
        return state
    return _keeping(state, tuple(at for at in state.failed_at if window.remaining(at, now)))


def after_loss(window: Window | None, state: WindowedState, event: Recovered) -> WindowedState:
    """Count a failure, and note where it was as far as that is known."""
    failed = replace(state, failures=state.failures + 1)
    if window is None or isinstance(window, Decaying):
        return failed
    if window.by == "seconds":
        return _placed(failed, event.newest_event_time)
    coming = event.epoch if window.by == "epochs" else state.items
    # Of the rows, those before the coming ones are missing at most. But the clearing of a hopping
    # window that has just ended may be undone too, and that is an error in the coming window.
    return _placed(failed, coming if isinstance(window, Hopping) else coming - 1)


def after_window(window: Window | None, state: WindowedState, event: WindowEnd) -> WindowedState:
    """Let go what a hopping window's end makes past; keep what may be in the next window."""
    if not isinstance(window, Hopping):
        return state
    # A loss of unknown place may be in the next window: it goes with that one's end.
    state = _placed(state, event.end)
    return _keeping(state, tuple(at for at in state.failed_at if at >= event.end))


def _placed(state: WindowedState, position: float | None) -> WindowedState:
    unplaced = state.failures - len(state.failed_at)
    if position is None or unplaced <= 0:
        return state
    # Positions in order keep the sum over a window right even if a caller's clock fell back.
    latest = max((float(position), *state.failed_at[-1:]))
    return replace(state, failed_at=state.failed_at + (latest,) * unplaced)


def _keeping(state: WindowedState, kept: tuple[float, ...]) -> WindowedState:
    gone = len(state.failed_at) - len(kept)
    return replace(state, failures=state.failures - gone, failed_at=kept) if gone else state

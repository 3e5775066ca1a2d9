"""Which reported incidents cause a traffic jam: two streams joined (PPA 2016 §VI, query Q2).

Speeds of road segments come from users' locations, incidents from users' reports, of which there are
many for each. An incident is one that counts if traffic on its segment is slow after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.algorithms.panes import Panes, check_window, drop_dead_rows
from tether.core.errors import BadValueError
from tether.operator import DURABLE, Operator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from tether.output import Output
    from tether.state.slot import SlotState

_JOINED = "segment bigint, time bigint, incident bigint, speed double, users bigint"


class SegmentSpeeds(Operator):
    """First branch: locations in (``segment``, ``time``, ``speed``), sums per segment and second out.

    Keeps nothing between batches. Rows with a null or NaN are left out: they carry no speed.

    Example:
        >>> SegmentSpeeds().name
        'segment_speeds'
    """

    output = _JOINED

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Check the columns."""
        del key
        _check(schema, ("segment", "time", "speed"))

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Fold."""
        speed = batch["speed"].cast(pa.float64()).to_numpy(zero_copy_only=False)
        known = np.isfinite(speed)
        for name in ("segment", "time"):
            known &= batch[name].is_valid().to_numpy(zero_copy_only=False)
        rows = pa.table(batch.select(["segment", "time", "speed"]).filter(pa.array(known)))
        sums = rows.group_by(["segment", "time"]).aggregate([("speed", "sum"), ("speed", "count")])
        sums = sums.rename_columns(["segment", "time", "speed", "users"])
        out.emit(sums.append_column("incident", pa.nulls(len(sums), pa.int64())))


class DistinctIncidents(Operator):
    """Second branch: reports in (``segment``, ``time``, ``incident``), each incident out once.

    Apply it with ``key="incident"``; all reports of an incident name the same segment. An incident
    that was lost may come out twice; the next stage knows it by its number, so that changes nothing.

    Example:
        >>> DistinctIncidents().name
        'distinct_incidents'
    """

    output = _JOINED

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Check the columns."""
        del key
        _check(schema, ("segment", "time", "incident"))

    def setup(self, state: SlotState) -> None:
        """The incidents that came out."""
        self._known = state.table("known", {"incident": pa.int64()}, {"reports": "int64"})

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Pass on the first report of each new incident."""
        rows = batch.select(["segment", "time", "incident"]).drop_null()
        if not rows.num_rows:
            return
        keys = pa.record_batch({"incident": rows["incident"].cast(pa.int64())})
        new = ~self._known.get(keys).found
        self._known.add(keys, reports=1)
        _, first = np.unique(rows["incident"].to_numpy()[new], return_index=True)
        found = rows.take(pa.array(np.flatnonzero(new)[np.sort(first)]))
        columns = {name: found[name] for name in found.schema.names}
        zeros = np.zeros(found.num_rows)
        out.emit(pa.table({**columns, "speed": zeros, "users": zeros.astype(np.int64)}))


class JamDetector(Operator):
    """The join, keyed by segment: incidents whose segment is slow, each out once.

    Apply it to the union of both branches with ``key="segment"``. At every epoch's end an incident
    of the last ``window`` seconds comes out if the mean speed on its segment, since the incident
    and within the window, is below ``jam_speed``. Emits ``segment``, ``incident``, ``time`` and the
    mean ``speed``.

    Divergence: location records. Incidents themselves are never lost.

    Args:
        window: Length of the sliding window in seconds.
        slide: Seconds by which it slides; speeds are kept in steps of this length.
        jam_speed: Below which mean speed there is a jam, in the unit of the speeds.

    Example:
        >>> JamDetector().name
        'jam_detector'
    """

    output = "segment bigint, incident bigint, time bigint, speed double"
    joins = True

    def __init__(self, *, window: int = 300, slide: int = 10, jam_speed: float = 20.0) -> None:
        check_window(window // max(slide, 1), slide)
        self._steps, self._slide, self._jam_speed = window // slide, slide, jam_speed

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Insist on the segment as the key."""
        del schema
        if list(key) != ["segment"]:
            raise BadValueError(
                f"The jam detector was given the key {key}.",
                why="Speeds and incidents of a segment must meet in one slot.",
                do='Pass key="segment" to apply().',
            )

    def amplification_of_losses(self, before: Operator) -> float:
        """Nothing of what ``DistinctIncidents`` loses: 0.

        One that has forgotten an incident sends it once more, and never leaves one out. Here its number
        is known, and made durable when it first comes: the second changes nothing.
        """
        if isinstance(before, DistinctIncidents):
            return 0.0
        return super().amplification_of_losses(before)

    def parameters(self) -> Mapping[str, object]:
        """What gives the state its meaning."""
        return {"slide": self._slide, "steps": self._steps}

    def setup(self, state: SlotState) -> None:
        """Speeds per segment and step, and the incidents."""
        self._speeds = state.table(
            "speeds",
            {"segment": pa.int64(), "step": pa.int64()},
            {"at": "int64", "speed": "float64", "users": "int64"},
            weights={"at": 0.0, "speed": 0.0},
        )
        self._incidents = state.table(
            "incidents",
            {"incident": pa.int64(), "segment": pa.int64()},
            {"time": "int64", "open": "int64"},
            divergence="max",
            weights={"time": 0.0, "open": DURABLE},
        )
        self._window = Panes(state, self._steps)

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Add speeds; open incidents that are new."""
        del out
        is_incident = batch["incident"].is_valid()
        incidents = batch.filter(is_incident)
        if incidents.num_rows:
            keys = incidents.select(["incident", "segment"])
            new = pa.array(~self._incidents.get(keys).found)
            opened = incidents.filter(new)
            self._incidents.put(keys.filter(new), time=opened["time"], open=1)
        speeds = batch.filter(pc.invert(is_incident))
        if speeds.num_rows:
            steps = speeds["time"].to_numpy() // self._slide
            self._window.advance(int(steps.max()))
            keys = pa.record_batch({"segment": speeds["segment"], "step": pa.array(steps)})
            self._speeds.add(keys, speed=speeds["speed"], users=speeds["users"])
            self._speeds.put(keys, at=steps)

    def on_epoch_end(self, out: Output) -> None:
        """Emit open incidents with slow traffic; close what the window has left."""
        rows = np.flatnonzero(self._incidents.values("open"))
        if not len(rows):
            return
        open_now = self._incidents.rows_to_batch(rows)
        started = open_now["time"].to_numpy() // self._slide
        mean = self._mean_speeds(open_now["segment"].to_numpy(), started)
        jam = mean < self._jam_speed  # NaN, no speed known, is no jam
        out.emit(
            {
                "segment": open_now["segment"].filter(pa.array(jam)),
                "incident": open_now["incident"].filter(pa.array(jam)),
                "time": open_now["time"].filter(pa.array(jam)),
                "speed": mean[jam],
            }
        )
        over = pa.array(jam | ~self._window.in_window(started))
        closed = open_now.filter(over)
        if closed.num_rows:
            self._incidents.put(closed.select(["incident", "segment"]), open=0, unique=True)
        drop_dead_rows(self._speeds, self._window.in_window(self._speeds.values("at")))

    def _mean_speeds(self, segments: np.ndarray, since: np.ndarray) -> np.ndarray:
        """The mean speed on each segment over the window's steps, from a step of its own on."""
        # Incidents are few and steps in a window some thirty: look each pair up.
        newest = self._window.newest
        steps = np.arange(newest - self._steps + 1, newest + 1)
        keys = [pa.array(np.repeat(segments, len(steps))), pa.array(np.tile(steps, len(segments)))]
        known = self._speeds.get(keys).columns
        after = np.tile(steps, len(segments)) >= np.repeat(since, len(steps))
        shape = (len(segments), len(steps))
        speed = (known["speed"] * after).reshape(shape).sum(axis=1)
        users = (known["users"] * after).reshape(shape).sum(axis=1)
        with np.errstate(invalid="ignore"):
            result: np.ndarray = np.where(users > 0, speed / np.maximum(users, 1), np.nan)
        return result


class JamReport(Operator):
    """The last stage, in one slot: all jams so far, and how many on each segment.

    Emits for every new jam its row and ``jams``, the number on its segment so far.

    How many jams an error of the detector makes or hides is not known: one location record can bring the
    mean of a segment below the limit, and so all of its open incidents to light. So Θ bounds what this
    stage loses itself, and what the detector does; nothing is promised for both together.

    Example:
        >>> JamReport().name
        'jam_report'
    """

    output = "segment bigint, incident bigint, time bigint, speed double, jams bigint"

    def setup(self, state: SlotState) -> None:
        """Jams per segment."""
        self._jams = state.table("jams", {"segment": pa.int64()}, {"n": "int64"})

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Count, and pass on."""
        keys = batch.select(["segment"])
        self._jams.add(keys, n=1)
        counts = pa.array(self._jams.get(keys).columns["n"])
        out.emit(
            pa.RecordBatch.from_arrays(
                [*batch.columns, counts], names=[*batch.schema.names, "jams"]
            )
        )


def _check(schema: StructType, wanted: tuple[str, ...]) -> None:
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        raise BadValueError(
            f"The columns {missing} are not in the input.",
            why=f"The input has the columns {schema.names}.",
        )
    for name in wanted:
        kind = schema[name].dataType.simpleString()
        whole = ("tinyint", "smallint", "int", "bigint")
        if kind not in (*whole, "float", "double") or (name != "speed" and kind not in whole):
            raise BadValueError(
                f"The column {name!r} is of type {kind}.",
                why="Segments, incidents and times (in seconds) are whole numbers, speeds numbers.",
                do="Cast it first.",
            )

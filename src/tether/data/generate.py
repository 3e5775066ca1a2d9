"""Seeded streams in the shapes that the papers measure with, of any size, an Arrow table an epoch.

Each function gives an iterator, so that no more than an epoch is in memory; write them to disk with
``tether.testing.epochs.write_epochs``. The same arguments give the same rows, whatever the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_SYLLABLES = np.array(
    [
        "ba",
        "de",
        "fi",
        "go",
        "hu",
        "ka",
        "le",
        "mi",
        "no",
        "pu",
        "ra",
        "se",
        "ti",
        "vo",
        "wu",
        "za",
        "che",
        "sho",
        "thi",
        "quu",
    ]
)


def zipf_text(
    epochs: int, lines: int, *, words: int = 20_000, skew: float = 1.0, seed: int = 1
) -> Iterator[pa.Table]:
    """Lines of ten made-up words, the r-th most frequent word with probability ∝ r^-skew.

    Args:
        epochs: Number of tables.
        lines: Lines in each.
        words: Size of the vocabulary.
        skew: 0: all words alike; natural text is near 1.
        seed: Of everything random.

    Example:
        >>> first = next(zipf_text(1, 2, seed=3))
        >>> first.num_rows, first.schema.names
        (2, ['value'])
    """
    _check(epochs=epochs, lines=lines, words=words)
    vocabulary = pa.array(_made_up(words))
    ranks = _Zipf(words, skew)
    for epoch in range(epochs):
        picked = ranks.draw(np.random.default_rng([seed, epoch]), 10 * lines)
        offsets = pa.array(np.arange(0, 10 * lines + 1, 10, dtype=np.int32))
        listed = pa.ListArray.from_arrays(offsets, vocabulary.take(pa.array(picked)))
        yield pa.table({"value": pc.binary_join(listed, " ")})


def packets(
    epochs: int,
    rows: int,
    *,
    flows: int = 200_000,
    skew: float = 1.1,
    rate: float = 1e6,
    seed: int = 1,
) -> Iterator[pa.Table]:
    """Packet headers: ``time`` (seconds), ``src``, ``dst`` (IPv4 as numbers), ``bytes``.

    Flows are Zipf-distributed; sizes are those of small, middle and full packets, 40 to 1,500 bytes.

    Args:
        epochs: Number of tables.
        rows: Packets in each.
        flows: Number of (source, destination) pairs.
        skew: How unequal the flows are.
        rate: Packets per second.
        seed: Of everything random.

    Example:
        >>> first = next(packets(1, 1000))
        >>> int(first["bytes"].to_numpy().max()) <= 1500
        True
    """
    _check(epochs=epochs, rows=rows, flows=flows)
    addresses = np.random.default_rng([seed, 77]).integers(1 << 24, 1 << 32, (2, flows))
    ranks = _Zipf(flows, skew)
    for epoch in range(epochs):
        random = np.random.default_rng([seed, epoch])
        flow = ranks.draw(random, rows)
        size = random.choice(np.array([40, 576, 1500]), rows, p=[0.45, 0.2, 0.35])
        size = np.maximum(40, size - random.integers(0, 40, rows))
        yield pa.table(
            {
                "time": (epoch * rows + np.arange(rows)) / rate,
                "src": addresses[0][flow],
                "dst": addresses[1][flow],
                "bytes": size,
            }
        )


def requests(
    epochs: int,
    rows: int,
    *,
    items: int = 50_000,
    skew: float = 0.9,
    rate: float = 2_000.0,
    drift: int = 0,
    seed: int = 1,
) -> Iterator[pa.Table]:
    """Requests for items: ``time`` (seconds), ``key``; the popular ones change by ``drift`` an epoch."""
    _check(epochs=epochs, rows=rows, items=items)
    ranks = _Zipf(items, skew)
    for epoch in range(epochs):
        drawn = ranks.draw(np.random.default_rng([seed, epoch]), rows)
        time = (epoch * rows + np.arange(rows)) / rate
        yield pa.table({"time": time, "key": (drawn + epoch * drift) % items})


def dense_examples(
    epochs: int, rows: int, *, features: int = 28, noise: float = 1.0, seed: int = 1
) -> Iterator[pa.Table]:
    """Labelled rows of a true logistic model: ``x0``, ``x1``… and ``label`` (0 or 1).

    Args:
        epochs: Number of tables.
        rows: Rows in each.
        features: Number of features.
        noise: 1: labels as the model's probabilities say; towards 0 they become certain.
        seed: Of everything random; the true weights depend on it too.

    Example:
        >>> next(dense_examples(1, 5, features=2)).schema.names
        ['x0', 'x1', 'label']
    """
    _check(epochs=epochs, rows=rows, features=features)
    truth = np.random.default_rng([seed, 77]).normal(size=features)
    for epoch in range(epochs):
        random = np.random.default_rng([seed, epoch])
        x = random.normal(size=(features, rows))
        logistic = random.logistic(size=rows)
        label = (truth @ x + noise * logistic > 0).astype(np.int32)
        yield pa.table({**{f"x{at}": x[at] for at in range(features)}, "label": label})


def click_log(
    epochs: int,
    rows: int,
    *,
    users: int = 500_000,
    ads: int = 20_000,
    sites: int = 2_000,
    clicks: float = 0.2,
    signal: float = 1.0,
    seed: int = 1,
) -> Iterator[pa.Table]:
    """Impressions: ``user``, ``ad`` (numbers), ``site`` (text), ``position``, ``label`` (clicked).

    Each value has a tendency of its own to be clicked on, so a model of hashed categories can learn
    it.

    Args:
        epochs: Number of tables.
        rows: Impressions in each.
        users: Number of users.
        ads: Number of advertisements.
        sites: Number of sites.
        clicks: About which part is clicked on.
        signal: How strong the tendencies are, against chance.
        seed: Of everything random.

    Example:
        >>> next(click_log(1, 5)).schema.names
        ['user', 'ad', 'site', 'position', 'label']
    """
    _check(epochs=epochs, rows=rows, users=users, ads=ads, sites=sites)
    fixed = np.random.default_rng([seed, 77])
    sizes = {"user": users, "ad": ads, "site": sites, "position": 4}
    spread = {"user": 0.5, "ad": 1.5, "site": 1.0, "position": 0.5}
    pulls = {
        name: fixed.normal(scale=signal * spread[name], size=size) for name, size in sizes.items()
    }
    ranks = {name: _Zipf(size, 0.8) for name, size in sizes.items()}
    names = pa.array(_made_up(sites))
    base = np.log(clicks / (1 - clicks)) * 1.3
    for epoch in range(epochs):
        random = np.random.default_rng([seed, epoch])
        drawn = {name: ranks[name].draw(random, rows) for name in sizes}
        margin = base + sum(pulls[name][drawn[name]] for name in sizes)
        label = (margin + random.logistic(size=rows) > 0).astype(np.int32)
        yield pa.table(
            {**drawn, "site": names.take(pa.array(drawn["site"])), "label": label}
        ).select(["user", "ad", "site", "position", "label"])


def locations(
    epochs: int,
    *,
    seconds: int = 10,
    users: int = 100_000,
    segments: int = 1_000,
    rate: int = 20_000,
    every: int = 2,
    seed: int = 1,
) -> Iterator[pa.Table]:
    """Users' locations: ``segment``, ``time`` (whole seconds), ``user``, ``speed`` (km/h).

    As PPA 2016 §VI has them: users on road segments by a Zipf distribution with s = 0.5. Half of all
    incidents (see ``incident_reports`` with the same seed) slow their segment down for a while.

    Args:
        epochs: Number of tables.
        seconds: Seconds in each.
        users: Number of users.
        segments: Number of road segments.
        rate: Records per second.
        every: Seconds between incidents.
        seed: Of everything random.
    """
    _check(epochs=epochs, seconds=seconds, users=users, segments=segments, rate=rate, every=every)
    world = _Roads(users, segments, every, seed)
    for epoch in range(epochs):
        random = np.random.default_rng([seed, epoch])
        time = epoch * seconds + np.repeat(np.arange(seconds), rate)
        user = random.integers(0, users, len(time))
        segment = world.home[user]
        slow = world.slowed(time, segment)
        speed = np.where(slow, 8.0, 60.0) + random.normal(scale=5.0, size=len(time))
        yield pa.table({"segment": segment, "time": time, "user": user, "speed": speed})


def incident_reports(
    epochs: int,
    *,
    seconds: int = 10,
    users: int = 100_000,
    segments: int = 1_000,
    every: int = 2,
    seed: int = 1,
) -> Iterator[pa.Table]:
    """Reports: ``segment``, ``time``, ``user``, ``incident``; all users on a segment report it.

    Args:
        epochs: Number of tables.
        seconds: Seconds in each.
        users: As for ``locations``.
        segments: As for ``locations``.
        every: As for ``locations``.
        seed: As for ``locations``.
    """
    _check(epochs=epochs, seconds=seconds, users=users, segments=segments, every=every)
    world = _Roads(users, segments, every, seed)
    for epoch in range(epochs):
        starts = np.arange(epoch * seconds, (epoch + 1) * seconds)
        starts = starts[starts % every == 0]
        parts = [world.reports(int(start)) for start in starts]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else []
        names = ("segment", "time", "user", "incident")
        empty = [np.zeros(0, np.int64)] * 4
        yield pa.table(dict(zip(names, columns or empty, strict=True)))


class _Zipf:
    """Draws ranks from 0 on, the r-th with probability ∝ (r+1)^-skew."""

    def __init__(self, size: int, skew: float) -> None:
        weights = np.arange(1, size + 1) ** -float(skew)
        self._edges = np.cumsum(weights) / weights.sum()

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        return np.minimum(
            np.searchsorted(self._edges, random.random(count)), len(self._edges) - 1
        ).astype(np.int64)


class _Roads:
    """Who is where, and which incidents there are: shared by both streams of one seed."""

    _SLOW_SECONDS = 120

    def __init__(self, users: int, segments: int, every: int, seed: int) -> None:
        self.home = _Zipf(segments, 0.5).draw(np.random.default_rng([seed, 78]), users)
        self._seed, self._users, self._every = seed, users, every

    def incident_at(self, incident: int) -> tuple[int, bool]:
        """Its segment, by the number of users there, and whether it slows traffic down."""
        random = np.random.default_rng([self._seed, 79, incident])
        return int(self.home[random.integers(0, self._users)]), bool(random.random() < 0.5)

    def slowed(self, time: NDArray[np.int64], segment: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which records are of a segment that an incident slows down at that time."""
        result = np.zeros(len(time), np.bool_)
        first = max(0, (int(time.min()) - self._SLOW_SECONDS) // self._every)
        for incident in range(first, int(time.max()) // self._every + 1):
            where, slows = self.incident_at(incident)
            start = incident * self._every
            if slows:
                near = (time >= start) & (time < start + self._SLOW_SECONDS)
                result |= near & (segment == where)
        return result

    def reports(self, time: int) -> tuple[NDArray[np.int64], ...]:
        """The reports of the incident at a time: one by every user on its segment."""
        incident = time // self._every
        segment, _ = self.incident_at(incident)
        user = np.flatnonzero(self.home == segment)
        return (
            np.full(len(user), segment),
            np.full(len(user), time),
            user,
            np.full(len(user), incident),
        )


def _made_up(count: int) -> list[str]:
    """Distinct words out of syllables; frequent ones are short, as in a language."""
    words = []
    for number in range(count):
        word, rest = "", number
        while rest or not word:
            rest, digit = divmod(rest, len(_SYLLABLES))
            word += str(_SYLLABLES[digit])
        words.append(word)
    return words


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise BadValueError(f"{name}={count} is too few.", do="Give at least 1.")

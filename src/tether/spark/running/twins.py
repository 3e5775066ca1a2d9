"""The twins of a query, one after the other, on separate threads; removes what they leave."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from tether.core.ids import NEVER, Epoch
from tether.engine.recovery.lost import is_loss, what_was_lost
from tether.protocols import take_over as to
from tether.spark.running.remains import Arenas, arenas_file
from tether.spark.running.twin import Twin

if TYPE_CHECKING:
    from tether.engine.deadline import Deadline
    from tether.engine.query.runner import Runner
    from tether.observe.story import Story
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.running.taking_over import TakingOver
    from tether.spark.tasks.cluster import SparkCluster

TWINS_THAT_FAIL = 3
"""Number of twins in a row that may fail for other reasons than a loss, without progress."""


class Twins:
    """The current twin, if any, and what earlier ones have left.

    Args:
        over: The take-over that they follow.
        query: The query.
        checkpoint: Spark's checkpoint directory.
        story: The query's account of itself.
    """

    def __init__(
        self, over: TakingOver, query: PreparedQuery, checkpoint: str, story: Story
    ) -> None:
        self._over, self._query, self._checkpoint, self._story = over, query, checkpoint, story
        self._arenas = arenas_file(checkpoint)
        self._threads: list[threading.Thread] = []
        self._failed, self._farthest = 0, -1
        self._twin: Twin | None = None
        self._hopeless = False

    @property
    def running(self) -> Runner[SparkCluster]:
        """The run of the current twin, once that has opened it."""
        runner = self.current.runner
        assert runner is not None
        return runner

    @property
    def twin(self) -> Twin | None:
        """The current twin, if there is one."""
        return self._twin

    @property
    def current(self) -> Twin:
        """The current twin, while one follows main."""
        assert self._twin is not None
        return self._twin

    @property
    def hopeless(self) -> bool:
        """Whether a query within its bound continues without a twin, because twins keep failing."""
        return self._hopeless

    def try_again(self) -> None:
        """Start twins again although they kept failing: the user has asked for one."""
        self._hopeless = False

    @property
    def epochs(self) -> int:
        """Number of epochs that it has run."""
        return 0 if self._twin is None else self._twin.epochs

    @property
    def left(self) -> bool:
        """Whether twins may have left resident state that nobody uses."""
        known = self._arenas.read()
        return known is not None and bool(known.twins)

    def forget_failures(self) -> None:
        """After another loss, do not count earlier failures of twins."""
        self._failed, self._farthest, self._hopeless = 0, -1, False

    def came_to(self, epoch: Epoch) -> None:
        """The twin has finished an epoch."""
        if epoch > self._farthest:
            self._farthest, self._failed = epoch, 0

    def start(self, number: int, snapshot: Epoch) -> None:
        """Start a twin from a snapshot."""
        over = self._over
        graph, plan, main = over.running
        twin = self._twin = Twin(
            number=number,
            snapshot=snapshot,
            query=self._query,
            lane=(replace(graph, sinks=list(self._query.sinks)), plan),
            main=main,
            lead=over,
            story=self._story,
            checkpoint=self._checkpoint,
        )
        known = self._arenas.read() or Arenas()
        self._arenas.write(Arenas(known.current, (*known.twins, twin.arena)))
        over.outstanding.begin_twin()
        # Not one of Spark's threads, which would inherit the job group of main's stream.
        thread = threading.Thread(
            target=self._follow, args=(twin,), name="tether-twin", daemon=True
        )
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _follow(self, twin: Twin) -> None:
        over = self._over
        try:
            twin.await_its_turn()
            if not twin.ended:
                self._story.add(
                    "twin", "it starts from a snapshot", twin.snapshot, number=twin.number
                )
            twin.follow()
        except Exception as error:
            with over.changed:
                if twin.ended or over.is_ending():
                    return
                self._failed += not is_loss(error)
                told = what_was_lost(error) if is_loss(error) else str(error).split("\n")[0]
                if self._failed >= TWINS_THAT_FAIL and over.state.tentative:
                    over.give_up(error)
                    return
                if self._failed >= TWINS_THAT_FAIL:
                    self._hopeless = True
                    came_to = over.state.twin or NEVER
                    over.tell(to.Hopeless(twin=twin.number))
                    # Noted last, so that nothing is being healed any more when it can be read.
                    self._story.add("no-twin", told, came_to, number=twin.number)
                    return
                self._story.add("twin-lost", told, over.state.twin or NEVER, number=twin.number)
                over.tell(to.TwinLost(twin=twin.number))

    def end(self) -> None:
        """Stop the current twin, and remove what is left of it."""
        twin, self._twin = self._twin, None
        if twin is not None:
            twin.end()
            twin.remove()

    def replace(self, old: Runner[SparkCluster]) -> None:
        """The twin is main now: remove what is left of the old slots, and the twin's stream."""
        twin, self._twin = self.current, None
        self._arenas.write(Arenas(twin.arena, (old.books.aside.arena,)))
        thread = threading.Thread(target=self._clear, args=(twin, old), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _clear(self, twin: Twin, old: Runner[SparkCluster]) -> None:
        twin.end()
        old.clean()
        old.release()
        twin.remove_checkpoint()

    def clean_arenas(self, runner: Runner[SparkCluster]) -> None:
        """Find the state that an earlier take-over left; remove that of twins that did not take over."""
        known = self._arenas.read()
        if known is None:
            return
        for name in known.twins:
            if name != known.current:
                runner.books.aside.use_arena(name)
                runner.clean()
        runner.books.aside.use_arena(known.current)
        self._arenas.write(Arenas(known.current))

    def stop(self, deadline: Deadline) -> None:
        """The query is being stopped: stop the twin."""
        with self._over.changed:  # not while it takes over
            twin, self._twin = self._twin, None
        if twin is not None:
            twin.end()
            twin.remove()
        for thread in self._threads:
            thread.join(deadline.left)

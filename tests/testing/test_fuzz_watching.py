"""A driver that hangs is told from one that a busy machine lets wait."""

from __future__ import annotations

import os
import signal
import time

from tether.testing.fuzz.watching import Patience, waited


def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(3)
    return pid


def spin(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_who_ends_by_itself_has_its_own_status():
    assert waited(child(lambda: None)) == 3
    assert waited(child(lambda: os.kill(os.getpid(), signal.SIGKILL))) == -signal.SIGKILL


def test_who_sleeps_for_ever_hangs():
    quick = Patience(look_seconds=0.01, idle_looks=5)
    assert waited(child(signal.pause), quick) == -signal.SIGALRM


def test_who_waits_for_a_child_that_sleeps_hangs_too():
    quick = Patience(look_seconds=0.01, idle_looks=5)
    read, write = os.pipe()

    def parent():
        os.close(write)
        grandchild = child(lambda: os.read(read, 1))
        os.waitpid(grandchild, 0)

    pid = child(parent)
    assert waited(pid, quick) == -signal.SIGALRM
    os.close(write)


def test_who_works_too_long_hangs():
    quick = Patience(look_seconds=0.01, cpu_seconds=0.1)
    assert waited(child(lambda: spin(60)), quick) == -signal.SIGALRM


def test_who_works_below_does_not_hang():
    """The child waits, but the one that it waits for gets on: many looks, none of them idle."""
    quick = Patience(look_seconds=0.005, idle_looks=5)
    pid = child(lambda: os.waitpid(child(lambda: spin(0.15)), 0))
    assert waited(pid, quick) == 3

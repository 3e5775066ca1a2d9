"""Which executor a Python worker serves, with real processes in the places of Spark's."""

import os
import signal
import subprocess
import sys

import pytest

from tether.core.errors import ArenaError
from tether.state import executor
from tether.state.executor import own_executor
from tether.state.identity import Owner

DAEMON = """
import os, sys
from tether.state.executor import own_executor
if os.fork() == 0:  # a worker
    for line in sys.stdin:
        try:
            owner = own_executor()
            print(owner.pid, owner.started, os.getppid(), flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
    os._exit(0)
print(os.getpid(), flush=True)
os.wait()
"""


class Daemon:
    """A process in the place of Spark's Python daemon, with one worker; we are its executor."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", DAEMON],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert int(self.process.stdout.readline()) == self.process.pid

    def kill(self):
        """Kill the daemon; its worker lives on."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self):
        """What the worker thinks its executor is, and who its parent is."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()


@pytest.fixture
def daemon():
    found = Daemon()
    yield found
    found.process.stdin.close()  # ends the worker
    found.process.stdout.close()
    found.process.wait()


def test_the_executor_is_the_daemons_parent(daemon):
    us = Owner.of(os.getpid())
    assert daemon.ask() == [str(us.pid), us.started, str(daemon.process.pid)]


def test_a_worker_serves_its_executor_when_the_daemon_has_died(daemon):
    """Spark goes on with idle workers. With another executor they would find no state."""
    before = daemon.ask()
    daemon.kill()
    after = daemon.ask()
    assert after[:2] == before[:2]
    assert after[2] != before[2]  # it has another parent now


def test_a_worker_that_never_knew_its_executor_says_so(monkeypatch):
    monkeypatch.setattr(executor, "parent_of", lambda _: 0)
    monkeypatch.setattr(executor, "stand_in", None)
    monkeypatch.setattr(executor, "_known", {})
    with pytest.raises(ArenaError, match="does not know its executor"):
        own_executor()


@pytest.mark.parametrize("pid", [0, -1])
def test_no_process_is_not_alive(pid):
    """Signals to such numbers go to groups of processes, which are there."""
    assert not Owner(pid, "").alive()

"""The drill as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tether.testing.epochs import write_epochs

from .counting import skewed_keys

pytestmark = [pytest.mark.chaos, pytest.mark.long]


def drill(work, fault, epoch, policy):
    """What a drill with such a policy reports."""
    command = [sys.executable, "-c", "from tether.cli.app import main; main()", "drill", "run"]
    command += ["--fault", fault, "--epoch", str(epoch), "--json", "counts", "--key", "k"]
    command += ["--slots", "2", "--input", str(work / "in"), "--policy", policy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        ("barrier:interval=4epochs,mode=sync,meanwhile=stale", "tentative"),
        ("approximate:max_state_error=20000,heal=4epochs", "healing"),
    ],
)
def test_a_drill_tells_how_long_it_took_to_be_exact_again(tmp_path, policy, first):
    write_epochs(tmp_path / "in", skewed_keys(epochs=14, rows=2000, keys=100, seed=2))
    report = drill(tmp_path, "state", 8, policy)
    assert report["struck"]
    assert [one["what"] for one in report["healing"]] == [first, "twin", "taken-over"]
    seconds = [one["seconds"] for one in report["healing"]]
    assert seconds == sorted(seconds)
    assert seconds[0] == 0 < seconds[-1]
    assert report["error"] == 0, report


@pytest.mark.parametrize("fault", ["state", "worker", "driver", "executor", "hang"])
def test_a_drill_reports_the_loss_within_its_bound(tmp_path, fault):
    write_epochs(tmp_path / "in", skewed_keys(epochs=8, rows=2000, keys=100, seed=2))
    report = drill(tmp_path, fault, 3, "approximate:max_state_error=2000")
    assert report["struck"]
    assert report["within_bound"], report
    if fault == "state":
        assert report["recoveries"]
        assert set(report["recoveries"][0]["seconds"]) >= {"find", "read", "apply"}
    if fault in ("worker", "hang"):
        assert report["error"] == 0  # the arena survives it
    # In local mode the executor's JVM is the driver's.
    assert report["restarts"] == (fault in ("driver", "executor"))

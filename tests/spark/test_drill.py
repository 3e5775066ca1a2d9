"""The drill as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tether.testing.epochs import write_epochs

from .counting import skewed_keys

pytestmark = [pytest.mark.chaos, pytest.mark.long]


@pytest.mark.parametrize("fault", ["state", "worker", "driver", "executor", "hang"])
def test_a_drill_reports_the_loss_within_its_bound(tmp_path, fault):
    write_epochs(tmp_path / "in", skewed_keys(epochs=8, rows=2000, keys=100, seed=2))
    command = [sys.executable, "-c", "from tether.cli.app import main; main()", "drill", "run"]
    command += ["--fault", fault, "--epoch", "3", "--json", "counts", "--key", "k", "--slots", "2"]
    command += ["--input", str(tmp_path / "in"), "--policy", "approximate:max_state_error=2000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["struck"]
    assert report["within_bound"], report
    if fault == "state":
        assert report["recoveries"]
        assert set(report["recoveries"][0]["seconds"]) >= {"find", "read", "apply"}
    if fault in ("worker", "hang"):
        assert report["error"] == 0  # the arena survives it
    # In local mode the executor's JVM is the driver's.
    assert report["restarts"] == (fault in ("driver", "executor"))

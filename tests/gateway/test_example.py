"""The example of the whole bound says what is true."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_whole_bound_holds_with_everything_killed() -> None:
    done = subprocess.run(
        [sys.executable, "examples/gateway_bound.py", "--rounds", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["state_wrong_by"] <= found["state_bound_now"] <= found["state_promise"]
    assert found["outputs_missing"] <= found["outputs_bound_now"] <= found["outputs_promise"]
    assert found["slots_lost"] >= 1

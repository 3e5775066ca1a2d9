"""The network to some inputs is really cut, in a network namespace where the machine allows one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNSHARE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]


def namespaces() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    command = [*UNSHARE, "ip", "link", "set", "lo", "up"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.long
def test_inputs_behind_a_link_that_is_cut(tmp_path: Path) -> None:
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    if not namespaces():
        pytest.skip("this machine allows no network namespaces")
    root = Path(__file__).parents[2]
    command = [*UNSHARE, sys.executable, "-m", "tests.sources.cut_link", str(tmp_path)]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""The page docs/spark-submit.md, tried: spark-submit on a cluster, with the wheel as --py-files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tether.testing.cluster import standalone_cluster

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_wheel_as_py_files_on_a_standalone_cluster(tmp_path):
    wheels, work = tmp_path / "wheels", tmp_path / "work"
    build = ["uv", "build", "--wheel", "--no-build-isolation", "--offline", "-o", str(wheels)]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(build, cwd=ROOT, check=True, env=environment)
    (wheel,) = wheels.glob("*.whl")
    (work / "in").mkdir(parents=True)
    for number in range(3):
        (work / "in" / f"{number}.json").write_text('{"word": "a"}\n{"word": "b"}\n' * 50)
    with standalone_cluster(tmp_path / "cluster", workers=2) as cluster:
        submit = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", cluster.url, "--py-files", str(wheel)),
            *("--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.locality.wait=60s"),
            *("--conf", "spark.shuffle.reduceLocality.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            str(ROOT / "tests" / "spark" / "submit_app.py"),
            str(work),
        ]
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            submit, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:] + cluster.logs()
    told = json.loads((work / "told.json").read_text())
    assert told["answers"] == {"a": 150, "b": 150}
    # Not the checkout that the tests run in: driver and workers have it from the wheel.
    assert wheel.name in told["driver"]
    assert told["workers"]
    assert all(wheel.name in place for place in told["workers"])
    assert told["executors"] == 2

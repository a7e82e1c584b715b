"""What a session is made with, by itself and under spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import loadtrim_spark
from loadtrim_spark.errors import explained
from loadtrim_spark.session import _name_files_in_utf8, jars, own_settings

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
APPLICATION = Path(loadtrim_spark.__file__).parent / "__main__.py"
JVM_SECONDS = 240


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]"])
def test_a_local_driver_listens_to_this_machine_alone(master: str) -> None:
    settings = own_settings(master, "2g", [Path("/jars/a.jar"), Path("/jars/b.jar")])
    assert (settings["spark.master"], settings["spark.driver.memory"]) == (master, "2g")
    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.jars"] == "/jars/a.jar,/jars/b.jar"


@pytest.mark.parametrize("master", ["yarn", "k8s://https://cluster:6443", "spark://cluster:7077"])
def test_executors_elsewhere_can_reach_the_driver(master: str) -> None:
    settings = own_settings(master, "1g", [])
    assert settings["spark.master"] == master
    assert not {"spark.driver.bindAddress", "spark.driver.host"} & set(settings)


@pytest.mark.parametrize(("locale", "then"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE.UTF-8", "de_DE.UTF-8")])
def test_java_writes_names_of_files_in_utf8(locale: str, then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With LC_ALL=C a group whose id is not ASCII had no directory, and ingest ended for all groups."""
    monkeypatch.setenv("LC_ALL", locale)
    _name_files_in_utf8()
    assert os.environ["LC_ALL"] == then


@pytest.mark.parametrize(
    "said",
    [
        "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.",
        "[INVALID_DRIVER_MEMORY] System memory 100 must be at least 471859200.",
    ],
)
def test_spark_that_does_not_start_says_where_to_look(said: str) -> None:
    """It was said that Spark gave up, and to start it again."""
    told = str(explained(RuntimeError(said), "/state", "kafka:9092"))
    assert told.startswith(f"Spark could not be started: {said}\n")
    assert all(name in told for name in ("Java 17", "JAVA_HOME", "--memory", "--master"))


def test_spark_submit_runs_the_package_itself(tmp_path: Path) -> None:
    """What docs/spark.md says: no launcher of one's own is needed."""
    state = tmp_path / "state"
    done = subprocess.run(
        [
            SUBMIT, "--master", "local[1]", "--driver-memory", "600m", "--conf", "spark.ui.enabled=false",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
            "--jars", ",".join(map(str, jars())), APPLICATION, "compact", "--state", state,
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable}, cwd=tmp_path, capture_output=True, text=True,
        timeout=JVM_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 files put together\n"
    assert not state.exists()

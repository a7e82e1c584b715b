"""The container of the example: its steps are taken one by one, and its process runs against a real Kafka."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import urllib.error
import urllib.request
import uuid
import venv
from pathlib import Path

import pytest

from integration.harness import eventually
from integration.image import Image, build
from loadtrim.testing import Cluster
from loadtrim.testing.ports import free_ports

DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"
END_SECONDS = 30.0
"""The grace period of the example's Deployment."""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image, of which every step has been taken."""
    directory = tmp_path_factory.mktemp("image")
    base = directory / "base"
    venv.create(base, with_pip=True)
    return build(DOCKERFILE, base, directory)


def ask(port: int, path: str) -> int:
    """Return the status of a page; 0: nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5.0) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def healthy(image: Image, environment: dict[str, str]) -> bool:
    command = subprocess.run(image.healthcheck, env=environment, cwd=image.stage.here, capture_output=True, check=False)
    return command.returncode == 0


def files(image: Image) -> dict[str, float]:
    """Return each file of the image with the time of its last change."""
    return {str(path): path.lstat().st_mtime for path in image.stage.root.rglob("*")}


@pytest.mark.slow
@pytest.mark.kafka
def test_the_container_s_process_consumes_writes_nothing_and_leaves_at_sigterm(
    kafka: Cluster, image: Image, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    (port,) = free_ports(1)
    environment = image.stage.environment | {
        "PAYMENTS_BOOTSTRAP": kafka.bootstrap,
        "PAYMENTS_TOPIC": topic,
        "PAYMENTS_GROUP": f"container-{uuid.uuid4().hex[:8]}",
        "LOADTRIM_HTTP": f"127.0.0.1:{port}",
    }
    assert not healthy(image, environment), "nobody answers yet"
    before = files(image)
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            image.entrypoint, env=environment, cwd=image.stage.here, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        asyncio.run(eventually(lambda: ask(port, "/readyz") == 200, "ready", END_SECONDS))
        assert healthy(image, environment)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_SECONDS) == 0, (tmp_path / "output").read_text()
    finally:
        process.kill()
    assert "SIGTERM: handing over and leaving" in (tmp_path / "output").read_text()
    assert files(image) == before, "its root may be read-only"


@pytest.mark.slow
def test_the_container_has_what_the_deployment_asks_for_and_nothing_that_builds(image: Image) -> None:
    """The example's Deployment sets ``LOADTRIM_SCALER=kubernetes``."""
    script = """
import importlib.util as u
print([n for n in ("loadtrim", "loadtrim_agent", "kubernetes_asyncio", "pip", "hatchling") if u.find_spec(n)])
"""
    python = image.stage.root / "opt/loadtrim/bin/python"
    ran = subprocess.run(
        [python, "-c", script], env=image.stage.environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "['loadtrim', 'loadtrim_agent', 'kubernetes_asyncio']"
    assert int(image.user.partition(":")[0]) >= 1000
    compiled = image.stage.root / "app/payments/__pycache__"
    assert list(compiled.glob("service.*.pyc"))

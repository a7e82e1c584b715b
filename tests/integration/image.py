"""A Dockerfile's steps without Docker: a stage is a directory, and its steps are taken there with a Python of its own.

What a daemon adds is not here: users, a read-only root, and a file system that has only the image's files. Paths of the
image stand in its instructions; here they are put below the stage's directory.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Image", "Stage", "build", "instructions"]

STEP_SECONDS = 300.0
_PATH = re.compile(r"(?<![\w.}/-])/(?=(?:opt|app|build)\b)")
"""Beginnings of the image's own paths."""
_KEPT = ("PIP_", "SSL_", "REQUESTS_", "HTTP_", "HTTPS_", "NO_PROXY", "https_", "http_", "no_proxy")
"""Ways to a registry are the machine's, not the image's."""


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with what follows them, in their order."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


@dataclass
class Stage:
    """One stage: the directory that is its root, and what has been set in it."""

    root: Path
    environment: dict[str, str]
    directory: str = "/"

    def local(self, text: str) -> str:
        """Return a text with the image's paths below the stage's root."""
        return _PATH.sub(f"{self.root}/", text)

    @property
    def here(self) -> Path:
        return self.root / self.directory.lstrip("/")

    def run(self, command: str) -> None:
        """Take one RUN step.

        Raises:
            AssertionError: it failed; the text is what it printed.
        """
        ran = subprocess.run(
            ["sh", "-c", self.local(command)],
            cwd=self.here,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"

    def copy(self, root: Path, sources: list[str], to: str) -> None:
        """Take one COPY step: the contents of a directory, files into one."""
        target = self.root / to.lstrip("/") if to.startswith("/") else self.here / to
        for name in sources:
            source = root / name.lstrip("/")
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__") if not name.startswith("/") else None
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=ignored)
            else:
                into = target / source.name if len(sources) > 1 or to.endswith("/") else target
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, into)


@dataclass
class Image:
    """What has been built: its last stage, and what it says about its process."""

    stage: Stage
    entrypoint: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)
    user: str = ""


def build(dockerfile: Path, base: Path, directory: Path) -> Image:
    """Take all steps.

    Args:
        dockerfile: the file; its directory is the context.
        base: directory of the Python that stands for the base image, which has nothing but pip.
        directory: stages are made below it.
    """
    context = dockerfile.parent
    stages: dict[str, Stage] = {}
    image: Image | None = None
    for word, rest in instructions(dockerfile.read_text()):
        if word == "FROM":
            name = rest.partition(" AS ")[2] or "final"
            stages[name] = Stage(directory / name, _clean(base))
            image = Image(stages[name])
        elif word != "ARG":
            assert image is not None, "the first instruction is FROM"
            _take(image, word, rest, context, stages)
    assert image is not None
    return image


def _take(image: Image, word: str, rest: str, context: Path, stages: Mapping[str, Stage]) -> None:
    stage = image.stage
    if word == "RUN":
        stage.run(rest)
    elif word == "COPY":
        *sources, to = rest.split()
        root = context
        if sources[0].startswith("--from="):
            root = stages[sources.pop(0).removeprefix("--from=")].root
        stage.copy(root, sources, to)
    elif word == "WORKDIR":
        stage.directory = rest
        stage.here.mkdir(parents=True, exist_ok=True)
    elif word == "ENV":
        for pair in shlex.split(rest):
            name, _, value = pair.partition("=")
            stage.environment[name] = stage.local(value).replace("${PATH}", stage.environment["PATH"])
    elif word == "HEALTHCHECK":
        image.healthcheck = json.loads(rest[rest.index("CMD ") + 4 :])
    elif word == "ENTRYPOINT":
        image.entrypoint = json.loads(rest)
    elif word == "USER":
        image.user = rest
    else:
        assert word == "EXPOSE", f"{word}: not known here"


def _clean(base: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT) and name != "PIP_CONSTRAINT"}
    return kept | {"PATH": f"{base / 'bin'}:/usr/bin:/bin", "HOME": str(base)}

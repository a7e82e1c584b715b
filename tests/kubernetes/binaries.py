"""The API server and the controllers of Kubernetes, built from their Go module once and kept in the user's cache.

What is built stands in ``control_plane/go.mod``. It takes five minutes of two cores, some 2 GB of memory, and 150 MB.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from loadtrim.testing.distribution import cache_directory, locked

__all__ = ["COMMANDS", "Missing", "binaries", "helm", "kustomize"]

COMMANDS = ("kube-apiserver", "kube-controller-manager")
MODULE = Path(__file__).parent / "control_plane"
BUILD_SECONDS = 3600.0
KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.0"


class Missing(Exception):
    """A tool that the control plane needs is not on this machine; the text says what installs it."""


def binaries() -> dict[str, Path]:
    """Return name -> program, of the control plane and of etcd; build what is not in the cache yet.

    Raises:
        Missing: there is no Go, or no etcd.
        subprocess.CalledProcessError: the build failed; what it printed has been printed.
    """
    etcd = shutil.which("etcd")
    if etcd is None:
        raise Missing("there is no etcd: install Debian's etcd-server")
    kept = cache_directory() / "kubernetes" / _version()
    if not all((kept / command).exists() for command in COMMANDS):
        _build(kept)
    return {"etcd": Path(etcd), **{command: kept / command for command in COMMANDS}}


def kustomize() -> Path:
    """Return the program that ``kubectl kustomize`` is, built where it is not in the cache yet.

    Raises:
        Missing: there is no Go.
        subprocess.CalledProcessError: the build failed.
    """
    return _installed(KUSTOMIZE, "kustomize")


def helm() -> Path:
    """Return the program ``helm``, built where it is not in the cache yet: two minutes, once.

    Raises:
        Missing: there is no Go.
        subprocess.CalledProcessError: the build failed.
    """
    return _installed(HELM, "helm")


def _installed(module: str, command: str) -> Path:
    kept = cache_directory() / "kubernetes" / module.replace("/", "_")
    if not (kept / command).exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with locked(cache_directory() / "kubernetes" / "lock"):
            environment = os.environ | {"GOBIN": str(kept), "GOFLAGS": "-mod=mod"}
            subprocess.run([_go(), "install", module], env=environment, check=True, timeout=BUILD_SECONDS)
    return kept / command


def _version() -> str:
    text = (MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes()
    return hashlib.sha256(text).hexdigest()[:16]


def _go() -> str:
    go = shutil.which("go")
    if go is None:
        raise Missing("there is no Go (1.24 or newer), which builds Kubernetes' API server and controllers")
    return go


def _build(kept: Path) -> None:
    go = _go()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with locked(kept.parent / "lock"):
        if kept.exists():
            return
        making = kept.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        for command in COMMANDS:
            print(f"building {command} of Kubernetes (minutes, once)", flush=True)
            package = f"k8s.io/kubernetes/cmd/{command}"
            build = [go, "build", "-mod=readonly", "-ldflags=-s -w", "-o", f"{making}/{command}", package]
            subprocess.run(build, cwd=MODULE, check=True, timeout=BUILD_SECONDS)
        making.rename(kept)


def main() -> None:
    """Build all of them, which takes longer than a test may. A tool that is missing is the tests' to tell."""
    for build in (binaries, kustomize, helm):
        with suppress(Missing):
            build()


if __name__ == "__main__":
    main()

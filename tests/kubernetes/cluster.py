"""A real control plane on loopback: etcd, API server, and the controllers that choose which pod goes.

There is no kubelet: :mod:`kubernetes.node` plays it. Everything ends with this process.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from loadtrim.testing.guard import ProcessGuard
from loadtrim.testing.ports import free_ports

from .binaries import binaries
from .lag import LaggingWay

__all__ = ["ADMIN_TOKEN", "ControlPlane", "kubeconfig_of"]

ADMIN_TOKEN: Final = "admin-of-the-tests"
START_SECONDS = 60.0
LOOK_SECONDS = 0.1
GATES: Final = "HPAConfigurableTolerance=true"
"""What is on by default in releases after this one, and the examples use."""
AUTOSCALER_SECONDS: Final = 1.0
"""Between two looks of a HorizontalPodAutoscaler; 15 s unless set."""
AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
"""What pods ask is written down; the tests and the controllers ask as the administrator."""
CONTROLLERS = (
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
)


class ControlPlane:
    """Start it with ``with``. Blocks for some seconds, the first time for minutes (:mod:`kubernetes.binaries`)."""

    def __init__(self) -> None:
        self._programs = binaries()
        self._temporary = tempfile.TemporaryDirectory(prefix="loadtrim-kubernetes-")
        self.directory = Path(self._temporary.name)
        self._etcd, self._etcd_peer, self.port, late = free_ports(4)
        self.controllers_way = LaggingWay(self.port, late)
        """The controllers' way to the API server."""
        self._guard = ProcessGuard([self.directory])
        self._way = contextlib.ExitStack()

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def authorities(self) -> Path:
        """File of the certificates that the API server is known by."""
        return self.directory / "certificates" / "apiserver.crt"

    def __enter__(self) -> Self:
        try:
            self._way.enter_context(self.controllers_way)
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, and remove their data."""
        self._guard.close()
        self._way.close()
        self._temporary.cleanup()

    def call(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """Make one request as the administrator; return the JSON of the answer.

        Raises:
            urllib.error.HTTPError: it was refused.
        """
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type},
        )
        context = ssl.create_default_context(cafile=str(self.authorities))
        with urllib.request.urlopen(request, timeout=10.0, context=context) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Make a merge patch as the administrator."""
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def token(self, namespace: str, account: str) -> str:
        """Return a token of a ServiceAccount, as a pod of it is given."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str(self.call("POST", path, body)["status"]["token"])

    def requests_of(self, namespace: str) -> list[tuple[float, str]]:
        """Return what pods of a namespace have asked so far, with the time: ``get deployments``, say.

        A watch is in it twice: when it begins, and when it ends.
        """
        pods, found = f"system:serviceaccount:{namespace}:", []
        for line in (self.directory / "audit.log").read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"].startswith(pods):
                resource = "/".join(
                    filter(None, (event["objectRef"].get(part) for part in ("resource", "subresource")))
                )
                at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
                found.append((at, f"{event['verb']} {resource}"))
        return found

    # -- start ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        key = self.directory / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        policy = self.directory / "audit.json"
        policy.write_text(json.dumps(AUDIT))
        (self.directory / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,1,"system:masters"\n')
        self._run(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{self._etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{self._etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{self._etcd_peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{self._etcd_peer}",
            f"--initial-cluster=default=http://127.0.0.1:{self._etcd_peer}",
            "--log-level=error",
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.directory / 'certificates'}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.directory / 'audit.log'}",
            f"--feature-gates={GATES}",
            "-v=0",
        )
        self._wait("the API server", lambda: self.authorities.exists() and self.call("GET", "/readyz") == "ok")
        self._run_controllers(f"https://{self.host}:{self.controllers_way.port}", key)
        self._wait("the controllers", self._accounts_are_made)

    def _run_controllers(self, server: str, key: Path) -> None:
        config = self.directory / "controllers.json"
        config.write_text(json.dumps(kubeconfig_of(server)))
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false",
            f"--feature-gates={GATES}",
            f"--horizontal-pod-autoscaler-sync-period={AUTOSCALER_SECONDS:g}s",
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={self.authorities}",
            "--secure-port=0",
            "-v=0",
        )

    def _accounts_are_made(self) -> bool:
        return bool(self.call("GET", "/api/v1/namespaces/default/serviceaccounts")["items"])

    def _run(self, name: str, *options: str) -> None:
        output = self.directory / f"{name}.log"
        self._guard.start(name, [str(self._programs[name]), *options], output, self.directory)

    def _wait(self, what: str, there: Any) -> None:
        ends = time.monotonic() + START_SECONDS
        while True:
            try:
                if there():
                    return
            except (OSError, urllib.error.URLError):
                pass
            for name in ("etcd", *self._programs):
                log = self.directory / f"{name}.log"
                if log.exists() and self._guard.exit_code(name) is not None:
                    raise RuntimeError(f"{name} has ended: {log.read_text()[-2000:]}")
            if time.monotonic() >= ends:
                raise TimeoutError(f"{what} did not answer within {START_SECONDS:g} s; logs in {self.directory}")
            time.sleep(LOOK_SECONDS)


def kubeconfig_of(server: str) -> dict[str, Any]:
    """Return the kubeconfig of the administrator."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": ADMIN_TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }

"""An adapter for the API ``external.metrics.k8s.io``, as Prometheus' or KEDA's, which the autoscaler's controller asks.

It serves one number for each namespace, as a test says.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import threading
import time
import urllib.error
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from .cluster import ControlPlane

__all__ = ["METRIC", "ExternalMetrics"]

METRIC = "loadtrim_replicas_requested"
API = "/apis/external.metrics.k8s.io/v1beta1"
AVAILABLE_SECONDS = 60.0
LOOK_SECONDS = 0.1


class ExternalMetrics:
    """Use it in ``with``; after that the API server knows of it.

    Args:
        plane: the control plane.
        directory: for the certificate.
    """

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self._plane = plane
        self._directory = directory
        self.read: dict[str, Callable[[], int | None]] = {}
        """Namespace -> its number; None: there is none, as where no series is found."""
        self.asked: dict[str, list[str]] = {}
        """Namespace -> what was asked of it, with the selector."""

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = self._tls().wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="external-metrics", daemon=True)
        self._thread.start()
        # The API server may not be sent to an address of loopback, but to a name for it.
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "external-metrics"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        self._plane.call("POST", "/api/v1/namespaces/default/services", service)
        self._plane.call("POST", "/apis/apiregistration.k8s.io/v1/apiservices", self._registration())
        self._wait()
        return self

    def __exit__(self, *error: object) -> None:
        name = "v1beta1.external.metrics.k8s.io"
        self._plane.call("DELETE", f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")
        self._plane.call("DELETE", "/api/v1/namespaces/default/services/external-metrics")
        self._server.shutdown()
        self._server.server_close()

    def _registration(self) -> dict[str, Any]:
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"namespace": "default", "name": "external-metrics", "port": self._server.server_port},
            },
        }

    def _wait(self) -> None:
        ends = time.monotonic() + AVAILABLE_SECONDS
        while True:
            try:
                self._plane.call("GET", API)
                return
            except urllib.error.HTTPError as error:
                if time.monotonic() >= ends:
                    raise TimeoutError(f"the API server does not reach the metrics: {error.read().decode()}") from error
            time.sleep(LOOK_SECONDS)

    def _tls(self) -> ssl.SSLContext:
        key, certificate = self._directory / "metrics.key", self._directory / "metrics.crt"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
        command += ["-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(metrics.answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def answer(self, target: str) -> dict[str, Any]:
        """Return what the API says of a path: its list of metrics, or the values of one."""
        path, _, query = target.partition("?")
        asked = re.fullmatch(rf"{API}/namespaces/(?P<namespace>[^/]+)/(?P<metric>[^/]+)", path)
        if asked is None:
            resource = {"name": METRIC, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList"}
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": "external.metrics.k8s.io/v1beta1",
                "resources": [resource | {"verbs": ["get"]}],
            }
        self.asked.setdefault(asked["namespace"], []).append(query)
        read = self.read.get(asked["namespace"])
        value = read() if read is not None and asked["metric"] == METRIC else None
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        item = {"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": str(value)}
        return {
            "kind": "ExternalMetricValueList",
            "apiVersion": "external.metrics.k8s.io/v1beta1",
            "metadata": {},
            "items": [] if value is None else [item],
        }

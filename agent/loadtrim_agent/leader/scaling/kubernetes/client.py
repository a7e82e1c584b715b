"""The API server through ``kubernetes_asyncio``, which costs 38 MB and is imported at the first request of a leader.

A client lives for one conversation. So token and certificates are read anew for each, off the loop: a rotation
of either needs no word here. Requests go straight to the API server, whatever proxy the
environment names, and each has a time-out: the library has neither by default.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from loadtrim_agent.common.daemon_call import call_in_daemon

from ..port import retry_after
from .api import ApiError, Conversation
from .lease import WorkloadLease
from .target import Target
from .workload import Workload

__all__ = ["REQUEST_SECONDS", "Account", "ClusterApi", "ClusterConversation", "library", "pod_namespace"]

REQUEST_SECONDS: Final = 5.0
"""A request that is not answered within this time has failed. Chosen: as the webhook's."""
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MERGE_PATCH = "application/merge-patch+json"
"""Custom resources know no other patch that names fields."""


def pod_namespace(account: Path) -> str:
    """Return the namespace of this pod; empty where it is none, or has no ServiceAccount's token."""
    try:
        return (account / "namespace").read_text().strip()
    except OSError:
        return ""


class Account(msgspec.Struct, frozen=True):
    """The parts by which a pod talks to its API server."""

    host: str
    token: str
    certificates: Path
    """File of the API server's authorities."""

    @classmethod
    def read(cls, account: Path) -> Account:
        """Read it from the pod's files and environment. Blocks.

        Raises:
            ApiError: a part is missing.
        """
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise ApiError(0, "KUBERNETES_SERVICE_HOST is not set: the API server is asked from a pod only")
        certificates = account / "ca.crt"
        try:
            token, authorities = (account / "token").read_text().strip(), certificates.read_text()
        except OSError as error:
            raise ApiError(
                0,
                f"The pod has no ServiceAccount's token ({error}): set automountServiceAccountToken: true in its spec",
            ) from None
        if not token or not authorities.strip():
            raise ApiError(0, "The ServiceAccount's token or ca.crt is empty, as for a moment in a rotation")
        return cls(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", token, certificates)


class ClusterApi:
    """The API server of the pod's own cluster.

    Args:
        namespace: of the workload; empty: the pod's.
        account: directory of the ServiceAccount's files; None: where Kubernetes puts them.
    """

    def __init__(self, namespace: str = "", account: Path | None = None) -> None:
        self._account = account or ACCOUNT
        self.namespace = namespace or pod_namespace(self._account)

    @contextlib.asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        """Open a client with the token and the certificates of now."""
        # The one reads files, the other compiles for a third of a second.
        account = await call_in_daemon(lambda: Account.read(self._account), "account")
        module = await call_in_daemon(library, "kubernetes")
        try:
            client = _make_client(module, account)
        except OSError as error:  # ssl.SSLError is one.
            raise ApiError(0, f"ca.crt cannot be used, as for a moment in a rotation: {error}") from None
        try:
            yield ClusterConversation(module, client, self.namespace)
        finally:
            await client.close()


def library() -> ModuleType:
    """Import the library. Blocks.

    Raises:
        ApiError: it is not installed.
    """
    try:
        import kubernetes_asyncio.client
    except ImportError as error:
        raise ApiError(
            0, f"The API server is asked by a library of its own: pip install 'loadtrim[kubernetes]' ({error})"
        ) from None
    return kubernetes_asyncio.client


def _make_client(module: ModuleType, account: Account) -> Any:
    import aiohttp

    configuration = module.Configuration()
    configuration.host = account.host
    configuration.ssl_ca_cert = str(account.certificates)
    configuration.api_key["BearerToken"] = f"Bearer {account.token}"
    client = module.ApiClient(configuration)
    # The library's session asks the environment for a proxy. Ours has the same connections and asks nobody.
    theirs = client.rest_client.pool_manager
    client.rest_client.pool_manager = aiohttp.ClientSession(connector=theirs.connector)
    theirs.detach()
    return client


class ClusterConversation:
    """Requests of one client of the library. See :class:`.api.Conversation`."""

    def __init__(self, module: ModuleType, client: Any, namespace: str) -> None:
        import aiohttp

        self._library = module
        # A connection that is closed in the midst of an answer is no error of the operating system.
        self._broken = (OSError, aiohttp.ClientError)
        self._client = client
        self._calls = module.CustomObjectsApi(client)
        self._namespace = namespace

    async def workload(self, target: Target) -> Workload:
        answer = await self._answered(
            self._calls.get_namespaced_custom_object(**self._path(target), _request_timeout=REQUEST_SECONDS)
        )
        try:
            return Workload.read(answer)
        except msgspec.ValidationError as error:
            raise ApiError(0, f"{target} is no workload that has replicas: {error}") from None

    async def set_replicas(self, target: Target, replicas: int, version: str, manager: str) -> None:
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        await self._answered(
            self._calls.patch_namespaced_custom_object_scale(
                **self._path(target),
                body=body,
                field_manager=manager,
                _content_type=_MERGE_PATCH,
                _request_timeout=REQUEST_SECONDS,
            )
        )

    async def lease(self, name: str) -> WorkloadLease:
        return _lease_of(
            await self._answered(
                self._calls.get_namespaced_custom_object(**self._lease_path(name), _request_timeout=REQUEST_SECONDS)
            )
        )

    async def put_lease(self, name: str, document: Mapping[str, Any]) -> WorkloadLease:
        return _lease_of(
            await self._answered(
                self._calls.replace_namespaced_custom_object(
                    **self._lease_path(name), body=dict(document), _request_timeout=REQUEST_SECONDS
                )
            )
        )

    async def permits(self, target: Target, verb: str, part: str = "") -> bool:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer: Any = await self._answered(
            self._library.AuthorizationV1Api(self._client).create_self_subject_access_review(
                body | {"spec": {"resourceAttributes": self.attributes(target, verb, part)}},
                _request_timeout=REQUEST_SECONDS,
            )
        )
        return bool(answer.status.allowed)

    def attributes(self, target: Target, verb: str, part: str) -> dict[str, str]:
        """Return what an access review asks about."""
        return {
            "namespace": self._namespace,
            "verb": verb,
            "group": target.group,
            "resource": target.resource,
            "subresource": part,
            "name": target.name,
        }

    async def autoscalers(self, target: Target) -> tuple[str, ...]:
        answer: Any = await self._answered(
            self._calls.list_namespaced_custom_object(
                "autoscaling", "v2", self._namespace, "horizontalpodautoscalers", _request_timeout=REQUEST_SECONDS
            )
        )
        return tuple(item.metadata.name for item in msgspec.convert(answer, _Autoscalers).items if item.scales(target))

    def _lease_path(self, name: str) -> dict[str, str]:
        return self._path(Target("coordination.k8s.io", "v1", "leases", name))

    def _path(self, target: Target) -> dict[str, str]:
        return {
            "group": target.group,
            "version": target.version,
            "namespace": self._namespace,
            "plural": target.resource,
            "name": target.name,
        }

    async def _answered(self, call: Awaitable[object]) -> object:
        try:
            return await call
        except self._library.ApiException as error:
            seconds = retry_after((error.headers or {}).get("Retry-After"))
            raise ApiError(error.status or 0, _message(error), seconds) from None
        except TimeoutError:
            raise ApiError(0, f"the API server gave no answer within {REQUEST_SECONDS:g} s") from None
        except self._broken as error:
            raise ApiError(0, f"the API server cannot be talked to: {error or type(error).__name__}") from None


def _lease_of(answer: Any) -> WorkloadLease:
    try:
        return WorkloadLease.read(answer)
    except msgspec.ValidationError as error:
        raise ApiError(0, f"The Lease cannot be read: {error}") from None


class _Named(msgspec.Struct, frozen=True):
    name: str
    kind: str = ""


class _Scales(msgspec.Struct, frozen=True, rename="camel"):
    scale_target_ref: _Named


class _Autoscaler(msgspec.Struct, frozen=True):
    metadata: _Named
    spec: _Scales

    def scales(self, target: Target) -> bool:
        scaled = self.spec.scale_target_ref
        return scaled.name == target.name and f"{scaled.kind.lower()}s" == target.resource


class _Autoscalers(msgspec.Struct, frozen=True):
    items: tuple[_Autoscaler, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    """The body of a refusal."""

    message: str = ""


def _message(error: Any) -> str:
    """Return what the API server says, which names no secret; else the reason of the status line."""
    with contextlib.suppress(msgspec.MsgspecError, TypeError):
        return msgspec.json.decode(error.body or b"", type=_Status).message
    return str(error.reason or "no reason given")

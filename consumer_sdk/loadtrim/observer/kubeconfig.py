"""The API server of a kubeconfig, as kubectl would talk to it, asked what the pods' ServiceAccount may do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

from loadtrim_agent.common.daemon_call import call_in_daemon
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError, Conversation
from loadtrim_agent.leader.scaling.kubernetes.client import REQUEST_SECONDS, ClusterConversation, library
from loadtrim_agent.leader.scaling.kubernetes.target import Target

__all__ = ["KubeconfigApi"]


class KubeconfigApi:
    """A cluster from elsewhere than its pods.

    Args:
        file: the kubeconfig; empty: ``KUBECONFIG``, or ``~/.kube/config``.
        context: its context; empty: the current one.
        namespace: of the workload; empty: the context's.
        service_account: of the pods. Rights are asked for this account, which takes the right to create a
            SubjectAccessReview.
    """

    def __init__(
        self, file: str = "", context: str = "", namespace: str = "", service_account: str = "default"
    ) -> None:
        self._file, self._context = os.path.expanduser(file), context
        self._service_account = service_account
        self.namespace = namespace

    @contextlib.asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        """Open a client as the file tells.

        Raises:
            ApiError: there is no such file, context or library.
        """
        module = await call_in_daemon(library, "kubernetes")
        configuration = module.Configuration()
        loader = await self._loaded(configuration)
        self.namespace = self.namespace or loader.current_context["context"].get("namespace") or "default"
        client = module.ApiClient(configuration)
        try:
            yield _OfServiceAccount(module, client, self.namespace, self._service_account)
        finally:
            await client.close()

    async def _loaded(self, configuration: Any) -> Any:
        from kubernetes_asyncio.config import ConfigException, load_kube_config
        from yaml import YAMLError  # type: ignore[import-untyped]

        try:
            return await load_kube_config(
                config_file=self._file or None,
                context=self._context or None,
                client_configuration=configuration,
                persist_config=False,
            )
        except (ConfigException, YAMLError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
            named = self._file or os.environ.get("KUBECONFIG") or "~/.kube/config"
            raise ApiError(0, f"The kubeconfig {named} cannot be used: {error}") from None


class _OfServiceAccount(ClusterConversation):
    """A conversation that asks for the pods' rights; what pods need not do (``list``) the user of the file does."""

    def __init__(self, module: ModuleType, client: Any, namespace: str, service_account: str) -> None:
        super().__init__(module, client, namespace)
        self._service_account = service_account

    async def permits(self, target: Target, verb: str, part: str = "") -> bool:
        if verb == "list":
            return await super().permits(target, verb, part)
        namespace = self._namespace
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace}:{self._service_account}",
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
                "resourceAttributes": self.attributes(target, verb, part),
            },
        }
        answer: Any = await self._answered(
            self._library.AuthorizationV1Api(self._client).create_subject_access_review(
                body, _request_timeout=REQUEST_SECONDS
            )
        )
        return bool(answer.status.allowed)

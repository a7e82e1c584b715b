"""The port to the API server: its requests, and how they fail."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, Protocol

from .lease import WorkloadLease
from .target import Target
from .workload import Workload

__all__ = ["ApiError", "Conversation", "WorkloadApi"]


class ApiError(Exception):
    """The API server did not do it.

    Attributes:
        status: HTTP status; 0: there was no answer.
        message: what the API server says, or what went wrong; one line without secrets.
        retry_after_seconds: as the answer asks for; None: it does not.
    """

    def __init__(self, status: int, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_seconds = retry_after_seconds

    @property
    def lacks_right(self) -> bool:
        """Return whether a right is missing. Webhooks and proxies answer 403 as well, and no Role helps there."""
        return self.status == HTTPStatus.FORBIDDEN and _NO_RIGHT.search(self.message) is not None


_NO_RIGHT = re.compile(r"\bcannot \S+ resource\b")
"""Source: ``forbiddenMessage`` of ``k8s.io/apiserver``, for all of its authorizers."""


class Conversation(Protocol):
    """Some requests with one token and one set of certificates. Each raises ApiError, and ends in bounded time."""

    async def workload(self, target: Target) -> Workload:
        """Read the workload: its wishes, its version, its counts."""

    async def set_replicas(self, target: Target, replicas: int, version: str, manager: str) -> None:
        """Change the replicas of the workload as it was at ``version``. ApiError 409: it is another one by now.

        ``manager`` is the name of the change in its ``managedFields``.
        """

    async def lease(self, name: str) -> WorkloadLease:
        """Read a Lease of the namespace. ApiError 404: there is none of this name."""

    async def put_lease(self, name: str, document: Mapping[str, Any]) -> WorkloadLease:
        """Write a Lease as it was at the version that is in it. ApiError 409: it is another one by now.

        Without a version it is made, where that is permitted.
        """

    async def permits(self, target: Target, verb: str, part: str = "") -> bool:
        """Return whether the API server lets this token do it, to the target's subresource ``part`` if one is named."""

    async def autoscalers(self, target: Target) -> tuple[str, ...]:
        """Return the names of the HorizontalPodAutoscalers of the target. Needs the right to list them."""


class WorkloadApi(Protocol):
    """An API server and the namespace of the pod."""

    @property
    def namespace(self) -> str:
        """The pod's, for messages."""

    def conversation(self) -> AbstractAsyncContextManager[Conversation]:
        """Open a conversation. ApiError, also while it opens: there is no token, no certificate, no library."""

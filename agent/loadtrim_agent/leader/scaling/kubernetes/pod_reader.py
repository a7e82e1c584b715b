"""A pod is read from the API server with the standard library alone.

Any member may have to look, and in a hurry: the library of the scaler takes 38 MB and seconds of a busy machine to
import, which is fine for a leader's first request.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from . import client
from .api import ApiError
from .client import Account, pod_namespace
from .pod import Pod

__all__ = ["PodReader"]

REQUEST_SECONDS: Final = 2.0
"""Each wait for the API server is given up after this time. Chosen: it answers in milliseconds, and is asked again."""
ANSWER_BYTES_MAX: Final = 4_000_000
"""Longest answer that is read. Chosen: more than the API server stores of one object."""


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""


class PodReader:
    """The pods of this pod's namespace.

    Args:
        account: directory of the ServiceAccount's files; None: where Kubernetes puts them.
    """

    def __init__(self, account: Path | None = None) -> None:
        self._account = account or client.ACCOUNT
        self._namespace = pod_namespace(self._account)

    async def pod(self, name: str) -> Pod:
        """Read a pod, in a thread: token and authorities are files.

        Raises:
            ApiError: it was refused, there is none, or there was no answer.
        """
        return await asyncio.to_thread(self._read, name)

    def _read(self, name: str) -> Pod:
        try:
            account = Account.read(self._account)
            connection = self._connection(account)
            try:
                path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}/pods/{quote(name, safe='')}"
                headers = {"Authorization": f"Bearer {account.token}", "Accept": "application/json"}
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                body = answer.read(ANSWER_BYTES_MAX)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(0, f"the API server cannot be talked to: {type(error).__name__}: {error}") from None
        if answer.status != HTTPStatus.OK:
            raise ApiError(answer.status, _message(body) or answer.reason)
        try:
            return msgspec.json.decode(body, type=Pod)
        except msgspec.MsgspecError as error:
            raise ApiError(0, f"pods/{name} cannot be read: {error}") from None

    @staticmethod
    def _connection(account: Account) -> http.client.HTTPSConnection:
        parts = urlsplit(account.host)
        context = ssl.create_default_context(cafile=str(account.certificates))
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=REQUEST_SECONDS, context=context)


def _message(body: bytes) -> str:
    """Return what the API server says, which names no secret; empty: nothing that can be read."""
    try:
        return msgspec.json.decode(body, type=_Refusal).message
    except msgspec.MsgspecError:
        return ""

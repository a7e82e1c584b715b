"""The scaling webhook: ``PUT <url>`` with the wanted state as JSON.

Theory of operation: ``http.client`` in a daemon thread per request (:mod:`~loadtrim_agent.common.daemon_call`). The
loop keeps the time of the whole request. When it is over, or at :meth:`WebhookScaler.close`, the connection is shut
down under the thread, which ends (:mod:`.breakable`).
"""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import logging
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from loadtrim_agent.common.daemon_call import DaemonCall
from loadtrim_agent.common.settings import HIDDEN, without_secrets

from .breakable import BreakableConnection
from .port import Answer, ScaleOutcome, ScaleRequest, WriteFence, one_line, retry_after

__all__ = ["ANSWER_BYTES_MAX", "TIMEOUT_SECONDS", "WebhookScaler", "check_webhook"]

log = logging.getLogger("loadtrim")

TIMEOUT_SECONDS: Final = 5.0
"""A request that is not answered within this time has failed."""
ANSWER_BYTES_MAX: Final = 1024
"""How much of an answer's text is read, to quote it; an accepting answer's text is not read at all."""
ABANDONED_MAX: Final = 4
"""Most threads that may still hang (in a name look-up, as a rule, which nothing can break off) before no
further request is made."""


class _Plan(msgspec.Struct, frozen=True):
    generation: int
    sequence: int


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request, as docs/webhook.md tells."""

    group: str
    replicas: int
    victims: tuple[str, ...]
    staying: tuple[str, ...]
    plan: _Plan
    reason: str


class WebhookScaler:
    """Tells a webhook.

    Proxies of the environment are not used and redirects are not followed: the token would go where nobody
    sent it.

    Args:
        url: ``http://`` or ``https://``, with host, without user and password.
        token: Sent as ``Authorization: Bearer``; None or empty: no such header.
        timeout: Seconds for a whole request, > 0.
        tls: For ``https``; None: the system's certificates, host name checked.
        fence: Whether the member may still act for its group; None: always.

    Raises:
        ValueError: url or token cannot be used; the text says what is allowed and does not hold the token.
    """

    name = "webhook"
    scales = True
    withdrawable = False
    """A webhook that has got a request goes on with it when the connection breaks off, and need not compare plans."""
    per_generation = False

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        *,
        tls: ssl.SSLContext | None = None,
        fence: WriteFence | None = None,
    ) -> None:
        self._fence = fence
        self._parts = _checked_url(url)
        self.url = self._parts._replace(query="").geturl()
        """Where requests go, without the query, which may hold a secret."""
        self._token = token or ""
        self._headers = {"Content-Type": "application/json", "User-Agent": "loadtrim"}
        if token:
            self._headers["Authorization"] = f"Bearer {_checked_token(token)}"
            if self._parts.scheme == "http" and not _is_loopback(self._parts.hostname or ""):
                log.warning(
                    "LOADTRIM_SCALER_TOKEN goes to %s unencrypted: whoever sees the traffic can scale the group. Use "
                    "https, or a network that only the two of them are on.",
                    self.url,
                )
        if not timeout > 0:
            raise ValueError(f"the webhook's time-out is {timeout!r} seconds; it must be above 0")
        self._timeout = timeout
        self._tls = tls
        self._exchanges: set[_Exchange] = set()
        self._abandoned: list[DaemonCall[_HttpAnswer]] = []
        self._closed = False

    async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
        """One PUT. 2xx: ACCEPTED; 4xx: REFUSED; anything else, and no answer in time: FAILED."""
        if self._closed:
            return ScaleOutcome(Answer.FAILED, "the webhook is closed")
        if self._fence is not None and not self._fence.holds():
            return ScaleOutcome(Answer.FAILED, "this member's lease in its group has run out: nothing was sent")
        self._abandoned = [call for call in self._abandoned if call.runs]
        if len(self._abandoned) >= ABANDONED_MAX:
            return self._failed(f"{len(self._abandoned)} earlier requests still hang; is the host's name known?")
        exchange = _Exchange(self._connect, self._path, _encoded(wanted), self._headers)
        self._exchanges.add(exchange)
        try:
            exchange.call.start()
            async with asyncio.timeout(self._timeout):
                return self._judged(await exchange.call.outcome)
        except TimeoutError:
            return self._failed(f"no answer within {self._timeout:g} s")
        except Exception as error:
            if self._closed:
                return ScaleOutcome(Answer.FAILED, "the webhook was closed")
            return self._failed(f"{type(error).__name__}: {error}")
        finally:
            self._exchanges.discard(exchange)
            exchange.break_off()
            self._abandoned.append(exchange.call)

    def withdraw(self) -> None:
        """Do nothing: what was carried out stays."""

    async def close(self) -> None:
        """Break off what is under way; those requests end as FAILED."""
        self._closed = True
        for exchange in tuple(self._exchanges):
            exchange.break_off()

    def _connect(self) -> http.client.HTTPConnection:
        plain = self._parts.scheme == "http"
        # Without a port http.client looks for one in the host, and takes the last group of an IPv6 address for it.
        default = http.client.HTTP_PORT if plain else http.client.HTTPS_PORT
        host, port = self._parts.hostname or "", self._parts.port or default
        if plain:
            return http.client.HTTPConnection(host, port, timeout=self._timeout)
        if self._tls is None:  # in the request's thread: reading the certificates takes tens of milliseconds
            self._tls = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._tls)

    @property
    def _path(self) -> str:
        return (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")

    def _judged(self, answer: _HttpAnswer) -> ScaleOutcome:
        said = f"{answer.status} {answer.reason}".strip()
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return ScaleOutcome(Answer.ACCEPTED, said)
        if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
            return self._failed(
                f"{said}: redirects are not followed (the token would go along); set LOADTRIM_SCALER_URL to the "
                f"final address, which may be {without_secrets(answer.location or '') or 'told by the webhook'}"
            )
        quoted = self._without_secrets(f"{said}: {answer.text}" if answer.text else said)
        if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return ScaleOutcome(Answer.REFUSED, one_line(f"{self.url} answered {quoted}"), answer.retry_after_seconds)
        return self._failed(quoted, answer.retry_after_seconds)

    def _without_secrets(self, text: str) -> str:
        """Return what a server answers without what only it may know, which it may repeat."""
        for secret in (self._token, self._parts.query):
            text = text.replace(secret, HIDDEN) if secret else text
        return text

    def _failed(self, why: str, retry_after_seconds: float | None = None) -> ScaleOutcome:
        return ScaleOutcome(Answer.FAILED, one_line(f"{self.url}: {why}"), retry_after_seconds)


class _HttpAnswer(msgspec.Struct, frozen=True):
    status: int
    reason: str
    text: str
    location: str | None
    retry_after_seconds: float | None


class _Exchange:
    """One request and its answer, in a thread."""

    def __init__(
        self,
        connect: Callable[[], http.client.HTTPConnection],
        path: str,
        body: bytes,
        headers: dict[str, str],
    ) -> None:
        self._connection = BreakableConnection(connect)
        self._request = (path, body, headers)
        self.call = DaemonCall(self._exchange, "webhook")

    def break_off(self) -> None:
        """Make the thread end soon; what it has not sent yet is never sent. Fine at any time."""
        self._connection.break_off()
        self.call.give_up(ConnectionAbortedError("broken off"))

    def _exchange(self) -> _HttpAnswer:
        path, body, headers = self._request
        with self._connection.opened() as connection:
            connection.request("PUT", path, body, headers)
            with connection.getresponse() as response:
                accepted = HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES
                text = b"" if accepted else response.read(ANSWER_BYTES_MAX)
                return _HttpAnswer(
                    response.status,
                    response.reason,
                    text.decode(errors="replace"),
                    response.getheader("Location"),
                    retry_after(response.getheader("Retry-After")),
                )


def _encoded(wanted: ScaleRequest) -> bytes:
    return msgspec.json.encode(
        _Body(
            group=wanted.group,
            replicas=wanted.replicas,
            victims=wanted.victims,
            staying=wanted.staying,
            plan=_Plan(wanted.generation, wanted.sequence),
            reason=wanted.reason,
        )
    )


def check_webhook(url: str, token: str) -> None:
    """Raise ``ValueError`` where an address and a token cannot be used; the text holds no secret."""
    _checked_url(url)
    if token:
        _checked_token(token)


def _checked_url(url: str) -> SplitResult:
    allowed = "Allowed: http://host[:port][/path] or https://..., without user and password."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # Not quoted: what stands where the port should may be a password.
        raise ValueError(f"the webhook's address cannot be read: host or port is none. {allowed}") from None
    if parts.username is not None or parts.password is not None:
        # Not quoted: it holds a password.
        raise ValueError(
            "the webhook's address holds a user or password, which would end up in logs. Give the secret as "
            "LOADTRIM_SCALER_TOKEN."
        )
    readable = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not readable:
        raise ValueError(f"the webhook's address is {without_secrets(url)!r}. {allowed}")
    return parts._replace(fragment="")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked_token(token: str) -> str:
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError(
            "the webhook's token holds spaces, line ends or letters that no HTTP header can hold. Allowed: printable "
            "ASCII without spaces; a line end at the end of a secret's file is the usual cause."
        )
    return token

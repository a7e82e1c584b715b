"""A start that fails says what to do. The types of errors are aiokafka's."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
)

__all__ = ["AUTHENTICATION_ERRORS", "ClientTrouble", "explained"]

AUTHENTICATION_ERRORS = (AuthenticationFailedError, AuthenticationMethodNotSupported, SaslAuthenticationFailed)


class ClientTrouble(logging.Handler):
    """The last trouble that aiokafka logged of one thread: it raises one error for all that a connection may lack."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = ""
        self.refused = False
        """A broker was there and refused the user."""
        self._thread: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the message."""
        if record.thread == self._thread:
            self.said = record.getMessage().strip().rstrip(":")
            self.refused = isinstance(record.args, tuple) and any(
                isinstance(each, AUTHENTICATION_ERRORS) for each in record.args
            )

    @contextlib.contextmanager
    def of_thread(self, ident: int | None) -> Iterator[None]:
        """Inside the block, listen to aiokafka in this thread."""
        self._thread = ident
        logger = logging.getLogger("aiokafka")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


def explained(error: KafkaError, settings: Mapping[str, Any], trouble: ClientTrouble) -> KafkaError:
    """Return the error that user code is to see, without the frames of what is inside.

    Args:
        error: of the agent's start.
        settings: of the consumer.
        trouble: the last that aiokafka logged.
    """
    text = str(error)
    if not isinstance(error, KafkaConnectionError) or "Unable to bootstrap" not in text or "no answer names" in text:
        return error.with_traceback(None)
    servers = settings.get("bootstrap_servers", "localhost")
    where = servers if isinstance(servers, str) else ", ".join(map(str, servers))
    said = f" ({trouble.said})" if trouble.said else ""
    if trouble.refused:
        return KafkaConnectionError(
            f"The cluster at {where} refused the user{said}. Nothing was consumed. Check sasl_mechanism, and "
            "sasl_plain_username and sasl_plain_password or the token provider."
        )
    protocol = settings.get("security_protocol", "PLAINTEXT")
    if not trouble.said and str(protocol).startswith("SASL"):
        return KafkaConnectionError(
            f"No broker at {where} lets this user in. It is down, the address is wrong, it refuses the user or the "
            f"password, or it wants TLS or SASL in another way than {protocol}. Which of these is told by the logger "
            "'aiokafka', which is silenced here: set its level to ERROR, and 'disable_existing_loggers' to False in "
            "a dictConfig. Check bootstrap_servers, security_protocol, ssl_context and the sasl_ arguments."
        )
    return KafkaConnectionError(
        f"No broker can be talked to at {where}{said}. It is down, the address is wrong, or it "
        f"wants TLS or SASL in another way than {protocol}. Check bootstrap_servers, security_protocol, ssl_context "
        "and the sasl_ arguments."
    )

"""The user's deserializers. They run in the user's thread, so that what they raise, they raise there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["RecordDeserializer"]


class RecordDeserializer:
    """The user's two deserializers, applied to a record together.

    Args:
        settings: the user's constructor arguments; ``key_deserializer`` and ``value_deserializer`` are used.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._key = settings.get("key_deserializer")
        self._value = settings.get("value_deserializer")

    @property
    def active(self) -> bool:
        """Return True when there is anything to apply."""
        return self._key is not None or self._value is not None

    def apply(self, record: Any) -> Any:
        """Return the record with key and value deserialized. Raises what the user's functions raise."""
        key, value = record.key, record.value
        if self._key is not None:
            key = self._key(key)
        if self._value is not None:
            value = self._value(value)
        # Both or none: what raises is tried again on the raw bytes.
        record.key, record.value = key, value
        return record

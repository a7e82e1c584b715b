"""Records which files an item passes while the code runs.

A file is a *stop* if one of its functions takes the item as an argument, returns it, or hands it to a function that
does. The item changes its form on the way (bytes, chunk, record, offset); a walk names the forms. What happens beside
the item's way is not recorded.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

__all__ = ["Recorder", "Step"]

_PACKAGES = ("loadtrim_agent/", "loadtrim/")
_LEFT_OUT = re.compile(r"loadtrim_agent/common/(?!settings)|loadtrim_agent/protocol/trace")
"""Values and helpers that everything uses, and the trace, which keeps every event and command: no place where an item
goes on from."""


class Step(NamedTuple):
    """One arrow."""

    come_from: str
    to: str
    form: str
    returned: bool


Label = Callable[[Any], str | None]
"""The form that a value is, or None."""


class Recorder:
    """Stops and arrows of one walk, in the order in which the item first passed them.

    Args:
        label: tells the item's form.
        begins: where the item comes from.
        outside: file name -> participant, for files that are not of this project (user code, Kafka's client).
        names: a function that reads one of these attributes handles the item, too.
        calls: qualified name of a function -> form; a call of it is a step of the item without being given it.
        onlookers: files that see the item and do nothing with it that the walk is about.
    """

    def __init__(
        self,
        label: Label,
        begins: str,
        outside: dict[str, str] | None = None,
        *,
        names: Iterable[str] = (),
        calls: dict[str, str] | None = None,
        onlookers: Iterable[str] = (),
    ) -> None:
        self._label = label
        self._outside = outside or {}
        self._names = frozenset(names)
        self._calls = calls or {}
        self._onlookers = tuple(onlookers)
        self._files: dict[CodeType, str] = {}
        self._lock = threading.Lock()
        self.stops = [begins]
        self.steps: list[Step] = []
        """Each once, in the order of the first time."""
        self._last: dict[str, str] = {}
        """Form -> the stop that had it last."""
        self._at: dict[int, str] = {}
        """Thread -> the stop that the item reached in it last."""
        self._begins = begins

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record this thread and those that start meanwhile."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def step(self, come_from: str, to: str, form: str, returned: bool = False) -> None:
        """The item goes from one stop to another."""
        for stop in (come_from, to):
            if stop not in self.stops:
                self.stops.append(stop)
        taken = Step(come_from, to, form, returned)
        if come_from != to and taken not in self.steps:
            self.steps.append(taken)
        self._last[form] = self._at[threading.get_ident()] = to

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event not in ("call", "return") or not (here := self._file(frame.f_code)):
            return
        taken = self._taken(frame)
        if event == "call":
            if taken is not None:
                # A caller of what reads an attribute has not the item in hand.
                caller = None if taken in self._names else self._caller(frame)
                with self._lock:
                    self._called(here, caller, taken)
        elif (form := self._label_of(arg)) is not None and form != taken:
            with self._lock:
                self._returned(here, self._caller(frame), form)

    def _called(self, here: str, caller: str | None, form: str) -> None:
        before = self._last.get(form, self._here())
        if caller is None or (caller == here and here not in self.stops):
            self.step(before, here, form)
            return
        if caller not in self.stops:
            self.step(before, caller, form)
        self.step(caller, here, form)

    def _here(self) -> str:
        return self._at.get(threading.get_ident(), self._begins)

    def _returned(self, here: str, caller: str | None, form: str) -> None:
        if here not in self.stops:
            self.step(self._here(), here, form)
        if caller is not None:
            self.step(here, caller, form, returned=True)

    def _taken(self, frame: FrameType) -> str | None:
        """The form of the item that the function is given, or reads."""
        code = frame.f_code
        if code.co_qualname in self._calls:
            return self._calls[code.co_qualname]
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            if name not in ("self", "cls") and (form := self._label_of(frame.f_locals.get(name))) is not None:
                return form
        return next((name for name in code.co_names if name in self._names), None)

    def _label_of(self, value: Any) -> str | None:
        if type(value) in (tuple, list, deque):
            return next((form for each in list(value)[:8] if (form := self._label(each)) is not None), None)
        if type(value) is dict:
            return next((form for each in list(value.values())[:8] if (form := self._label(each)) is not None), None)
        return self._label(value)

    def _file(self, code: CodeType) -> str:
        """The participant that the code belongs to; empty: none."""
        if code not in self._files:
            self._files[code] = self._find(code.co_filename)
        return self._files[code]

    def _find(self, path: str) -> str:
        for end, participant in self._outside.items():
            if path.endswith(end):
                return participant
        for package in _PACKAGES:
            at = path.rfind("/" + package)
            if at >= 0 and "site-packages" not in path:
                file = path[at + 1 :]
                return "" if _LEFT_OUT.match(file) or file in self._onlookers else file
        return ""

    def _caller(self, frame: FrameType) -> str | None:
        """The nearest participant on the stack; None: the event loop."""
        back = frame.f_back
        while back is not None:
            if file := self._file(back.f_code):
                return file
            back = back.f_back
        return None

    @property
    def files(self) -> list[str]:
        """The stops that are files of this project."""
        return [stop for stop in self.stops if stop.endswith(".py")]

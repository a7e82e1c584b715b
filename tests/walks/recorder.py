"""Records which files an item passes while the code runs.

A file is a *stop* if one of its functions takes the item as an argument, returns it, or hands it to a function that
does. The item changes its form on the way (bytes, chunk, record, offset); a walk names the forms. What happens beside
the item's way is not recorded.

An arrow is of one of four kinds. A *call* and a *result* are what the call stack has. A call of a file that the caller
must not import is one *back*: by a ``Protocol`` that the caller knows, or of a function that it was given. Where the
item goes on and the stack has no caller with it (it waited in a queue, in a future, for its turn in a loop), the arrow
is *then*.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from opcode import opmap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import loadtrim
import loadtrim_agent

from .layers import breaks_layers, is_handed_in

__all__ = ["BACK", "CALL", "RESULT", "THEN", "Recorder", "Step", "way_to"]

CALL, RESULT, BACK, THEN = "->", "-->", "-^", "~>"
"""Kinds of arrows."""

_FOLDERS = tuple(f"{Path(package.__path__[0]).parent}/" for package in (loadtrim_agent, loadtrim))
"""In which the packages stand. Folders above them may have any name, that of a package too."""
_LEFT_OUT = re.compile(r"loadtrim_agent/common/(?!settings)|loadtrim_agent/protocol/trace")
"""Values and helpers that everything uses, and the trace, which keeps every event and command: no place where an item
goes on from."""


class Step(NamedTuple):
    """One arrow."""

    come_from: str
    to: str
    form: str
    kind: str = CALL


class Frame(NamedTuple):
    """A participant on the call stack, and its function that runs."""

    file: str
    function: str


Label = Callable[[Any], str | None]
"""The form that a value is, or None."""


class Recorder:
    """Stops and arrows of one walk, in the order in which the item first passed them.

    Args:
        label: tells the item's form.
        begins: where the item comes from.
        outside: file name -> participant, for files that are not of this project (user code, Kafka's client).
        uses: a function that reads one of these attributes uses the item.
        calls: qualified name of a function -> form; a call of it is a step of the item without being given it.
        anew: forms that several tasks fetch from where the item begins. Which task is first is chance: so the arrow to
            each begins there, and not where another task has left the form.
        onlookers: files that see the item and do nothing with it that the walk is about.
    """

    def __init__(
        self,
        label: Label,
        begins: str,
        outside: dict[str, str] | None = None,
        *,
        uses: Iterable[str] = (),
        calls: dict[str, str] | None = None,
        anew: Iterable[str] = (),
        onlookers: Iterable[str] = (),
    ) -> None:
        is_handed_in("", "")  # what it reads of the tree takes a while, for which the walk would stand still
        self._label = label
        self._outside = outside or {}
        self._uses = frozenset(uses)
        self._calls = calls or {}
        self._anew = frozenset(anew)
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

    def step(self, come_from: str, to: str, form: str, kind: str) -> None:
        """The item goes from one stop to another."""
        for stop in (come_from, to):
            if stop not in self.stops:
                self.stops.append(stop)
        taken = Step(come_from, to, form, kind)
        if come_from != to and taken not in self.steps:
            self.steps.append(taken)
        self._last[form] = self._at[threading.get_ident()] = to

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event not in ("call", "return") or not self._file(frame.f_code):
            return
        taken = self._taken(frame)
        if event == "call":
            if taken is not None and _begins(frame):
                with self._lock:
                    self._called(self._stack(frame), taken)
        elif (form := self._label_of(arg)) is not None and form != taken:
            with self._lock:
                self._returned(self._stack(frame), form)

    def _called(self, stack: Iterator[Frame], form: str) -> None:
        here, caller = next(stack), next(stack, None)
        if form in self._uses:
            # A caller of what reads an attribute has not the item in hand.
            self._entered(here, caller, form)
            return
        if caller is None or caller.file == here.file:
            while caller is not None and caller.file == here.file:
                here, caller = caller, next(stack, None)
            self._entered(here, caller, form)
            return
        # The caller, too, may have the item without having been given it.
        inner, outer = caller, next(stack, None)
        while outer is not None and outer.file == inner.file:
            inner, outer = outer, next(stack, None)
        self._entered(inner, outer, form)
        self._call(caller, here, form)

    def _entered(self, here: Frame, caller: Frame | None, form: str) -> None:
        """The item is in a file: if that is no stop yet, a stop has called it, or it is there without a call."""
        anew = form in self._anew
        if here.file in self.stops and not anew:
            return
        if caller is not None and caller.file in self.stops:
            self._call(caller, here, form)
        else:
            come_from = self._begins if anew else self._last.get(form, self._here())
            self.step(come_from, here.file, form, THEN)

    def _call(self, caller: Frame, here: Frame, form: str) -> None:
        back = breaks_layers(caller.file, here.file) and is_handed_in(caller.file, here.function)
        self.step(caller.file, here.file, form, BACK if back else CALL)

    def _here(self) -> str:
        return self._at.get(threading.get_ident(), self._begins)

    def _returned(self, stack: Iterator[Frame], form: str) -> None:
        here, caller = next(stack), next(stack, None)
        if here.file not in self.stops and (caller is None or caller.file not in self.stops):
            self.step(self._last.get(form, self._here()), here.file, form, THEN)
        if caller is not None:
            self.step(here.file, caller.file, form, RESULT)

    def _stack(self, frame: FrameType) -> Iterator[Frame]:
        """The participants on the stack, from the function that runs outwards; it ends at the event loop."""
        back: FrameType | None = frame
        while back is not None:
            if file := self._file(back.f_code):
                yield Frame(file, back.f_code.co_qualname)
            back = back.f_back

    def _taken(self, frame: FrameType) -> str | None:
        """The form of the item that the function is given, or reads."""
        code = frame.f_code
        if code.co_qualname in self._calls:
            return self._calls[code.co_qualname]
        if used := next((name for name in code.co_names if name in self._uses), None):
            return used
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            if name not in ("self", "cls") and (form := self._label_of(frame.f_locals.get(name))) is not None:
                return form
        return None

    def _label_of(self, value: Any) -> str | None:
        if (form := self._label(value)) is not None:
            return form
        if type(value) in (tuple, list, deque):
            return next((form for each in list(value)[:8] if (form := self._label(each)) is not None), None)
        if type(value) is dict:
            return next((form for each in list(value.values())[:8] if (form := self._label(each)) is not None), None)
        return None

    def _file(self, code: CodeType) -> str:
        """The participant that the code belongs to; empty: none."""
        if code not in self._files:
            self._files[code] = self._find(code.co_filename)
        return self._files[code]

    def _find(self, path: str) -> str:
        for end, participant in self._outside.items():
            if path.endswith(end):
                return participant
        for folder in _FOLDERS:
            if path.startswith((f"{folder}loadtrim_agent/", f"{folder}loadtrim/")):
                file = path.removeprefix(folder)
                return "" if _LEFT_OUT.match(file) or file in self._onlookers else file
        return ""

    @property
    def files(self) -> list[str]:
        """The stops that are files of this project."""
        return [stop for stop in self.stops if stop.endswith(".py")]


def _begins(frame: FrameType) -> bool:
    """The function begins; a coroutine that goes on after it waited is called no second time."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at] != opmap["RESUME"] or code[at + 1] == 0


def way_to(steps: Sequence[Step], last: int) -> list[Step]:
    """The steps by which the item came to the last one, without those that led elsewhere.

    A file has a form from the step that brought that form; what it made itself, from what came to it just before.
    """
    way = [steps[last]]
    for number in range(last - 1, -1, -1):
        step, wanted = steps[number], way[0]
        brought = [each for each in steps[:number] if each.to == wanted.come_from and each.form == wanted.form]
        if step.to == wanted.come_from and (step.form == wanted.form or not brought):
            way.insert(0, step)
    return way

"""Each measure counts what it says, so that each ceiling can be broken."""

from __future__ import annotations

from textwrap import dedent

import pytest

from architecture import ceilings
from architecture.ratchet import problems
from architecture.tree import Module


def module(text: str, name: str = "pack.room.mod") -> Module:
    return Module(name, dedent(text))


def test_lines_of_functions_in_classes_functions_and_branches() -> None:
    text = """\
        def f():
            def inner():
                return 1
            return inner

        class C:
            if True:
                @property
                async def g(self):
                    return (
                        1
                    )
        """
    assert ceilings.functions([module(text)]) == {
        "pack.room.mod.f": 4,
        "pack.room.mod.f.inner": 2,
        "pack.room.mod.C.g": 4,
    }


def test_a_function_of_71_lines_and_a_file_of_601_are_too_long() -> None:
    long = module("def f():\n" + "    x = 1\n" * 70)
    assert problems(ceilings.FUNCTIONS, ceilings.functions([long]), {}) != []
    assert problems(ceilings.FUNCTIONS, ceilings.functions([module("def f():\n" + "    x = 1\n" * 69)]), {}) == []
    assert problems(ceilings.FILES, ceilings.files([module("x = 1\n" * 601)]), {}) != []
    assert problems(ceilings.FILES, ceilings.files([module("x = 1\n" * 600)]), {}) == []


def test_a_property_is_one_method() -> None:
    text = """\
        class C:
            @property
            def x(self): ...
            @x.setter
            def x(self, value): ...
            def y(self): ...
        """
    assert ceilings.methods([module(text)]) == {"pack.room.mod.C": 2}


def test_methods_in_a_branch_and_of_bases_count() -> None:
    """Both were ways to stay below the ceiling."""
    base = """\
        class Base:
            def a(self): ...
            def b(self): ...
        """
    text = """\
        from typing import TYPE_CHECKING, Generic, Protocol
        from ..base import Base as Above
        class C(Above, Generic[T], dict[str, int]):
            def b(self): ...
            if TYPE_CHECKING:
                def c(self): ...
            else:
                def d(self): ...
        class D(C): ...
        """
    counted = ceilings.methods([module(text), module(base, "pack.base")])
    assert counted == {"pack.room.mod.C": 4, "pack.room.mod.D": 4, "pack.base.Base": 2}


def test_a_class_that_names_itself_as_its_base_ends() -> None:
    assert ceilings.methods([module("class C(C):\n    def a(self): ...\n")]) == {"pack.room.mod.C": 1}


def test_members_of_ports() -> None:
    text = """\
        import typing
        from asyncio import Protocol as Received
        from typing import Protocol
        class Port(Protocol):
            name: str
            @property
            def now(self) -> float: ...
            async def ask(self) -> None: ...
        class Other(Port, typing.Protocol[T]):
            def more(self) -> None: ...
        class Connection(Received):
            def data_received(self, data): ...
        """
    assert ceilings.members([module(text)]) == {"pack.room.mod.Port": 3, "pack.room.mod.Other": 1}


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ("a: Any\n    b: 'Any | None'\n    c: typing.Any", 3),
        ("a: dict[str, Any]\n    b: AnyFit", 0),
        ("a: Any = field(init=False, default=None)", 0),
        ("def __init__(self, a: Any, b: int, *, c: SimpleNamespace): ...", 2),
    ],
)
def test_parameters_of_any_type(fields: str, count: int) -> None:
    assert ceilings.anything([module(f"class C:\n    {fields}\n")]) == {"pack.room.mod.C": count}


def test_attributes_are_counted_wherever_they_are_assigned() -> None:
    text = """\
        class C:
            __slots__ = ("a", "b")
            LIMIT: ClassVar[int] = 3
            field: int
            def __init__(self):
                self.a = self.b = 1
                self.a = 2
            def later(self, other):
                if other:
                    self.c, self.d[0] = 1, 2
                for self.e in ():
                    self.f += 1
                with open("") as self.g:
                    other.h = self.i
        class Colour(StrEnum):
            RED = "red"
        """
    assert ceilings.attributes([module(text)]) == {"pack.room.mod.C": 7}


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ("a: Callable[[], None]\n    b: collections.abc.Callable[[], None] | None", 2),
        ("a: 'Callable[[], None]'\n    b: list[Callable[[], None]] | None", 2),
        ("a: Send\n    b: int", 1),
        ("a: Annotated[int, 'a text (not Callable)']", 0),
        ("a: ClassVar[Callable[[], None]]", 0),
    ],
)
def test_callables_of_fields(fields: str, count: int) -> None:
    text = f"Send = Callable[[bytes], None]\nclass C:\n    {fields}\n"
    assert ceilings.callables([module(text)]) == {"pack.room.mod.C": count}


def test_aliases_of_callables_are_found_through_unions_imports_and_other_aliases() -> None:
    """``Send = Callable[...] | None`` was taken for none, and a class of an alias' name elsewhere for a callable."""
    aliases = "Send = Callable[[bytes], None] | None\nAgain: TypeAlias = Send\nCost = Callable[[int], float]\n"
    text = """\
        from .aliases import Again as Twice, Send
        class C:
            a: Send
            b: Twice
            c: list[Twice]
        """
    other = "class Cost: ...\nclass D:\n    a: Cost\n    b: Cost\n"
    modules = [module(text), module(aliases, "pack.room.aliases"), module(other, "pack.other")]
    assert ceilings.callables(modules) == {"pack.room.mod.C": 3, "pack.other.Cost": 0, "pack.other.D": 0}


def test_callables_of_a_constructor_hide_those_of_fields() -> None:
    text = """\
        class C:
            done: Callable[[], None]
            def __init__(self, a: Callable[[], int], *, b: Callable[[], int], c: Port) -> None: ...
            def method(self, d: Callable[[], int]) -> None: ...
        """
    assert ceilings.callables([module(text)]) == {"pack.room.mod.C": 2}


def test_a_public_name_is_one_class_in_a_package() -> None:
    one, other, elsewhere = (
        module("class Limits: ...\nclass _Own: ...\n", name) for name in ("a.x", "a.room.y", "b.x")
    )
    assert ceilings.class_names([one, other, elsewhere]) == {"a: Limits": 2, "b: Limits": 1}

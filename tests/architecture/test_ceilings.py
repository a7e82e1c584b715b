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

"""A result's key goes by what the code does: a change of words keeps it, a change of a decision does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import behaviour as module
from benchmarks.behaviour import Probe, behaviour, shape

from loadtrim_agent.planning.sizing import need


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is stored yet. One shared probe is enough here, and less of a load."""
    monkeypatch.setattr(module, "FILE", tmp_path / "out" / "behaviour.json")
    monkeypatch.setattr(module, "SHARED", module.SHARED[:1])
    monkeypatch.setattr(module, "LOAD", module.LOAD.replace("seconds=30", "seconds=8"))
    monkeypatch.setattr(module, "_played", {})


def key(monkeypatch: pytest.MonkeyPatch, sources: str) -> str:
    """As another process finds it, whose sources have that digest."""
    monkeypatch.setattr(module, "_played", {})
    monkeypatch.setattr(module, "source_digest", lambda: sources)
    return module._of((Probe("objective", "trim"),))


@pytest.mark.slow
def test_a_comment_keeps_the_key_and_a_constant_that_shows_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = key(monkeypatch, "before")
    assert key(monkeypatch, "with a comment") == before
    monkeypatch.setattr(need, "RATE_SHARE", 0.5)
    assert key(monkeypatch, "with another constant") != before


def test_each_change_of_a_source_is_one_of_our_own_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mend of sizing that no probe showed kept the results that it changed."""
    for sources in ("before", "with a mend"):
        monkeypatch.setattr(module, "source_digest", lambda sources=sources: sources)
        assert behaviour("objective:postpone=0", "trim") == behaviour("objective", "trim", slicing=True) == sources


@pytest.mark.slow
def test_probes_are_played_once_for_each_state_of_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(monkeypatch, "before")
    with monkeypatch.context() as patched:
        patched.setattr(module, "simulate", None)
        assert key(monkeypatch, "before") == before
        module.FILE.write_text("cut o")
        with pytest.raises(TypeError):
            key(monkeypatch, "before")


@pytest.mark.slow
def test_policies_and_packers_have_keys_of_their_own() -> None:
    keys = [behaviour("linear", "sticky"), behaviour("linear:mu=20", "sticky"), behaviour("linear", "roundrobin")]
    assert len(set(keys)) == 3


def test_the_shape_of_code_is_without_its_words(tmp_path: Path) -> None:
    def of(text: str) -> str:
        path = tmp_path / "module.py"
        path.write_text(text)
        return shape(path)

    plain = of("def f(x):\n    return x + 1\n")
    assert of('"""Text."""\n\n\ndef f(x):\n    """Add one."""\n    return (x + 1)  # why\n') == plain
    assert of("def f(x):\n    return x + 2\n") != plain


def test_the_sources_are_those_that_were_there_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is changed while an hour is played was imported before."""
    before = module.source_digest()
    monkeypatch.setattr(Path, "read_text", lambda path: "changed")
    assert module.source_digest() == before

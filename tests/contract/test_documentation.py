"""What a reader copies from the documentation works: programs, snippets, settings, command lines, targets.

Each rule is a function from a page's text to what is wrong with it, so that the rules themselves are tested below.
Programs that are whole name the tests that run them (``<!-- runs: test_name -->``).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import msgspec
import pytest
from benchmarks.__main__ import BENCHMARKS, SPARK

from loadtrim import Settings, cli
from pages.blocks import ROOT, Block, blocks, blocks_of, pages

SHELLS = ("", "sh", "bash", "shell", "console")
"""Languages of blocks that may hold command lines; without a name a block may be output as well."""
COMMENT = re.compile(r"\s+#\s.*$")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SETTING = re.compile(r"\bLOADTRIM_[A-Z][A-Z_]*[A-Z]\b")
SETTINGS = {f"LOADTRIM_{field.name.upper()}" for field in msgspec.structs.fields(Settings)}
PLACEHOLDERS = {"N": "3", "S": "1", "T": "1", "F": "1.0", "P": "9092", "...": ""}
"""Words of a synopsis that stand for a number -> one; any other word in capitals stands for a name."""


def of_tools() -> set[str]:
    """Return the variables that are no settings of a member, as the reference lists them."""
    reference = (ROOT / "docs" / "reference.md").read_text()
    [line] = re.findall(r"^Of tests and tools: .*$", reference, re.MULTILINE)
    return set(SETTING.findall(line))


# -- Python


def not_python(block: Block) -> list[str]:
    """Return why a block is no Python that can be compiled; ``await`` outside of functions is fine in a snippet."""
    flags = 0 if block.runs else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        compile(block.text, str(block), "exec", flags=flags, dont_inherit=True)
    except SyntaxError as error:
        return [f"{block}: line {error.lineno} of it: {error.msg}"]
    return []


def imported(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield what a snippet imports from our packages: (module, name in it)."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("loadtrim"):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.startswith("loadtrim"))


def not_importable(block: Block) -> list[str]:
    wrong = []
    for module, name in imported(block.text):
        if module.startswith("loadtrim_spark"):
            continue  # Its extra is not installed here.
        try:
            found = importlib.import_module(module)
        except ImportError as error:
            wrong.append(f"{block}: {error}")
            continue
        if name is not None and not hasattr(found, name):
            wrong.append(f"{block}: there is no {name} in {module}")
    return wrong


PYTHON = [block for block in blocks() if block.language == "python"]


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_compiles_and_what_it_imports_of_ours_exists(block: Block) -> None:
    assert not_python(block) + not_importable(block) == []


def wrong_here_documents(block: Block) -> list[str]:
    """Return why programs that a shell block hands to Python cannot be compiled."""
    wrong = []
    for _, text in re.findall(r"python3? - <<'(\w+)'\n(.*?)^\1$", block.text, re.MULTILINE | re.DOTALL):
        wrong += not_python(replace(block, text=text, runs=("whole",)))
    return wrong


def test_programs_in_shell_blocks_compile() -> None:
    assert [said for block in blocks() for said in wrong_here_documents(block)] == []


def test_tests_that_run_a_program_exist() -> None:
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}
    assert [(str(block), name) for block in blocks() for name in block.runs if name not in defined] == []


def test_whole_programs_are_run() -> None:
    """One that imports what it uses and starts something is whole."""
    assert [str(block) for block in PYTHON if is_whole(block.text) and not block.runs] == []


def is_whole(text: str) -> bool:
    """Return whether a program could be started as it stands: it imports all the names that it uses."""
    tree = ast.parse(text)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | set(dir(__builtins__)) | BUILTINS
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body)
    waits = any(isinstance(node, ast.AsyncWith | ast.AsyncFor) for node in tree.body)
    return imports and not waits and len(tree.body) > 2 and all(node.id in bound for node in names)


BUILTINS = set(dir(importlib.import_module("builtins"))) | {"__name__"}


# -- other languages


@pytest.mark.parametrize("block", [block for block in blocks() if block.language == "json"], ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


# -- settings


EXAMPLES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "examples").rglob("*.y*ml"))]


@pytest.mark.parametrize("page", [*pages(), *EXAMPLES])
def test_settings_that_a_page_names_exist(page: str) -> None:
    named = set(SETTING.findall((ROOT / page).read_text()))
    assert sorted(named - SETTINGS - of_tools()) == []


# -- command lines


def command_lines(text: str, program: str) -> Iterator[str]:
    """Yield the command lines of a program in a block: after a prompt, variables and a path, continued by ``\\``."""
    begin = re.compile(rf"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?={program}\s)")
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if found := begin.match(line.strip()):
            yield COMMENT.sub("", line.strip()[found.end() :])


def spans(text: str, program: str) -> Iterator[str]:
    """Yield the command lines of a program that stand in a sentence."""
    without_blocks = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (span for span in SPAN.findall(without_blocks) if span.startswith(f"{program} "))


@cache
def parser() -> argparse.ArgumentParser:
    return cli._parser()


def wrong_usage(line: str) -> str | None:
    """Return why the real parser refuses a command line or a synopsis; None: it takes it."""
    words = shlex.split(re.sub(r"[\[\]]", "", line))[1:]
    words = [PLACEHOLDERS.get(word, word) for word in words]
    words = [word for word in words if word]
    words, command = cli._split(words)
    if command is not None and not command:
        return "no command follows --"
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parser().parse_args(words)
    except SystemExit as end:
        return said.getvalue().splitlines()[-1] if end.code else None
    return None


def names_a_command(span: str) -> bool:
    """Return whether a span only names a command, as in "``loadtrim status`` tells": it is no line to be copied."""
    words = span.split()
    return len(words) == 2 and not words[1].startswith("-")


def commands() -> set[str]:
    """Return the names of all commands."""
    [choices] = [action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return set(choices)


def wrong_lines(page: str, text: str) -> list[str]:
    """Return the command lines of a page that the real parser does not take, with what it says."""
    lines = [(str(block), line) for block in blocks_of(page, text) if block.language in SHELLS
             for line in command_lines(block.text, "loadtrim")]  # fmt: skip
    wrong = [f"{where}: {line}: {said}" for where, line in lines if (said := wrong_usage(line))]
    for span in spans(text, "loadtrim"):
        if names_a_command(span):
            if span.split()[1] not in commands():
                wrong.append(f"{page}: {span}: there is no such command")
        elif said := wrong_usage(span):
            wrong.append(f"{page}: {span}: {said}")
    return wrong


@pytest.mark.parametrize("page", pages())
def test_command_lines_are_taken_by_the_real_parser(page: str) -> None:
    assert wrong_lines(page, (ROOT / page).read_text()) == []


def targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def unknown_targets(page: str, text: str) -> list[str]:
    """Return the targets of ``make`` that a page names and that there are not."""
    lines = [line for block in blocks_of(page, text) for line in command_lines(block.text, "make")]
    named = {
        word
        for line in [*lines, *spans(text, "make")]
        for word in shlex.split(line)[1:]
        if "=" not in word and not word.startswith("-")
    }
    return sorted(named - targets())


@pytest.mark.parametrize("page", pages())
def test_targets_of_make_exist(page: str) -> None:
    assert unknown_targets(page, (ROOT / page).read_text()) == []


def unknown_benchmarks(text: str) -> list[str]:
    """Return the benchmarks that a page names and that there are not."""
    lines = re.findall(r"python -m benchmarks((?: +[a-z][\w-]*)*)", text)
    named = {word for line in lines for word in line.split() if not word.startswith("-")}
    return sorted(named - {*BENCHMARKS, *(benchmark.name for benchmark in SPARK)})


@pytest.mark.parametrize("page", pages())
def test_benchmarks_exist(page: str) -> None:
    assert unknown_benchmarks((ROOT / page).read_text()) == []


# -- the rules themselves


def block(text: str, *, language: str = "python", runs: str = "") -> Block:
    [made] = blocks_of("page.md", f"{runs}\n```{language}\n{text}\n```\n")
    return made


def test_wrong_python_is_found() -> None:
    assert not_python(block("async with consumer: pass")) == []
    assert not_python(block("async with consumer: pass", runs="<!-- runs: test_x -->")) != []
    assert not_python(block("async with consumer pass")) != []
    assert not_importable(block("from loadtrim import Consumer, Consumr")) == [
        "page.md:2: there is no Consumr in loadtrim"
    ]
    assert not_importable(block("import loadtrim.integrations.nothing")) != []


def test_wrong_programs_in_shell_blocks_are_found() -> None:
    text = "python - <<'END'\nawait x\nEND"
    assert len(wrong_here_documents(block(text, language=""))) == 1
    assert wrong_here_documents(block(text.replace("await ", ""), language="")) == []


def test_whole_programs_are_told_from_snippets() -> None:
    whole = "import os\nname = os.environ['X']\nprint(name)"
    assert is_whole(whole)
    assert not is_whole(whole.replace("print(name)", "handle(name)"))
    assert not is_whole("from loadtrim import Consumer\nx = 1\nasync with Consumer('x') as c: print(x)")


@pytest.mark.parametrize(
    "line",
    ["loadtrim status G", "loadtrim scale GROUP N [--force]", "loadtrim up [--replicas N] -- CMD...", "loadtrim kafka"],
)
def test_right_lines_are_taken(line: str) -> None:
    assert wrong_usage(line) is None


@pytest.mark.parametrize(
    "text",
    [
        "```\nloadtrim status G --no-such-option\n```",
        "   ```sh\n   $ loadtrim scale G \\\n     many\n   ```",
        "`loadtrim scale GROUP`",
        "`loadtrim nothing`",
        "`loadtrim hold GROUP --no-such-option 5`",
    ],
)
def test_wrong_lines_are_found(text: str) -> None:
    assert len(wrong_lines("page.md", text)) == 1


def test_unknown_targets_are_found() -> None:
    text = "```\nmake demo FULL=1\nmake nothing\n```\n`make tests`, and `make test`"
    assert unknown_targets("page.md", text) == ["nothing", "tests"]


def test_unknown_benchmarks_are_found() -> None:
    assert unknown_benchmarks("`.venv/bin/python -m benchmarks move nothing --quick`") == ["nothing"]

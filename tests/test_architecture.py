"""The shape of the code: who may import whom, how long things are, what words they use."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median, quantiles

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE = ("nsysdoctor", "rules", "sample_traces")
HEAVY = frozenset(
    {"ijson", "pandas", "numpy", "pyarrow", "numba", "scipy", "plotly", "jinja2", "torch",
     "pydantic", "adbc_driver_sqlite", "sqlite_utils", "yaml", "dask", "distributed"}
)  # fmt: skip
SLOW = HEAVY - {"pandas", "numpy", "yaml", "pydantic"}
"""What may not be imported at the head of any module, whoever imports that."""

FORBIDDEN_WORDS = frozenset(
    {"manager", "handler", "helper", "helpers", "util", "utils", "processor", "skill", "audit",
     "issue", "issues"}
)  # fmt: skip

LAYERS = (
    "errors", "units", "arrays", "report", "ingest", "roofline", "trace",
    "tables.activity", "tables.host", "tables.host_activity",
    "tables.dependencies", "tables.account", "tables.steps",
    "tables.loop", "tables.ledger", "tables.kernels", "tables.ranks", "tables",
    "replay", "rulebook", "diagnosis", "cases", "timeline", "jobs", "gate", "diff", "history",
    "render", "export", "notebook", "torch", "config", "commands", "cli", "__main__",
)  # fmt: skip
"""The rooms from the ground up: a module imports from its own room and from those before it."""

ANALYSIS = ("ingest", "trace.trace", "tables", "replay", "rulebook", "diagnosis", "jobs")
"""What knows a trace."""

MUST_NOT_REACH: dict[str, tuple[str, ...]] = {
    "errors": ("",),
    "units": ("",),
    "report": ANALYSIS,
    "gate": ANALYSIS,
    "diff": ANALYSIS,
    "history": ANALYSIS,
    "render": ANALYSIS,
    "cases.scene_text": ("trace", "rulebook", "tables", "diagnosis", "jobs"),
}
"""For some rooms what they may not reach even through others."""

UNSEEN_BY_RULES = (
    "trace.trace", "ingest.reader", "rulebook.rule", "rulebook.evaluate", "replay.replay",
    "diagnosis", "jobs", "gate", "render", "commands", "cli",
)  # fmt: skip

MOST_AT_THE_TOP, MOST_IN_A_ROOM = 8, 15


@cache
def tree(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def files(*folders: str) -> list[Path]:
    """All Python files of the folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_name(path: Path) -> str:
    """A file's name inside the package: `tables.account.gaps`, and "" for the package itself."""
    parts = path.relative_to(ROOT / "nsysdoctor").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in files("nsysdoctor")}


def imported(node: ast.AST) -> Iterator[str]:
    """The full names that an import statement names."""
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        for alias in node.names:
            yield f"{node.module}.{alias.name}"
    elif isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name


def for_checkers_only(module: ast.Module) -> set[int]:
    """The nodes under `if TYPE_CHECKING`, which never run."""
    guarded = [
        node for node in ast.walk(module)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]  # fmt: skip
    return {id(inner) for node in guarded for part in node.body for inner in ast.walk(part)}


def uses(path: Path) -> set[str]:
    """The modules of the package that a file imports anywhere, inside functions too."""
    module = tree(path)
    skipped = for_checkers_only(module)
    found = set()
    for node in ast.walk(module):
        for name in imported(node) if id(node) not in skipped else ():
            if not f"{name}.".startswith("nsysdoctor."):
                continue
            inside = name.removeprefix("nsysdoctor").lstrip(".")
            while inside not in MODULES:
                inside = inside.rpartition(".")[0]
            found.add(inside)
    return found


GRAPH = {name: uses(path) - {name, ""} for name, path in MODULES.items()}


def reached(names: set[str]) -> dict[str, str]:
    """Every module that these import, directly or not, with one that imports it."""
    found: dict[str, str] = {}
    open_ends = sorted(names)
    while open_ends:
        name = open_ends.pop()
        for other in sorted(GRAPH[name] - found.keys()):
            found[other] = name
            open_ends.append(other)
    return found


def part_of(name: str, part: str) -> bool:
    """Whether a module is a part of the package or inside it; every module is inside ""."""
    return part in ("", name) or name.startswith(f"{part}.")


def layer_of(name: str) -> int:
    """The place of a module's room in `LAYERS`; an inner room stands before the one around it."""
    return next(place for place, room in enumerate(LAYERS) if part_of(name, room))


def test_imports_go_down() -> None:
    wrong = [
        f"{name} -> {other}"
        for name, others in GRAPH.items()
        for other in sorted(others)
        if name and layer_of(other) > layer_of(name)
    ]
    assert wrong == []


@pytest.mark.parametrize("part", MUST_NOT_REACH)
def test_some_rooms_stay_apart(part: str) -> None:
    own = {name for name in MODULES if part_of(name, part)}
    assert own
    wrong = [
        f"{via} -> {name}"
        for name, via in reached(own).items()
        for barred in MUST_NOT_REACH[part]
        if part_of(name, barred) and name not in own
    ]
    assert wrong == []


def test_imports_have_no_cycle() -> None:
    try:
        graphlib.TopologicalSorter(GRAPH).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("path", files("rules"), ids=lambda path: path.stem)
def test_rules_see_no_trace(path: Path) -> None:
    wrong = [name for name in uses(path) if any(part_of(name, b) for b in UNSEEN_BY_RULES)]
    assert wrong == []


def test_the_model_that_writes_samples_shares_no_code_with_what_reads_them() -> None:
    wrong = [
        f"{path.name}: {name}"
        for path in files("sample_traces")
        for node in ast.walk(tree(path))
        for name in imported(node)
        if f"{name}.".startswith("nsysdoctor.")
    ]
    assert wrong == []


# --- what is loaded when


def loaded(code: str) -> set[str]:
    """The heavy modules that a new interpreter has loaded after running the code."""
    script = f"import sys\n{code}\nprint(*sys.modules, file=sys.__stderr__)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return HEAVY & set(done.stderr.split())


def answering(*words: str) -> str:
    """Code that runs a command that must succeed."""
    return (
        f"sys.argv = ['nsysdoctor', *{words}]\nfrom nsysdoctor.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
    )


@pytest.mark.parametrize(
    "code", ["import nsysdoctor", answering("--version"), answering("--help")],
    ids=["import", "version", "help"],
)  # fmt: skip
def test_a_quick_answer_loads_nothing_heavy(code: str) -> None:
    assert loaded(code) == set()


@pytest.mark.parametrize("command", ["report", "gate", "rules", "export"])
def test_the_help_of_a_command_loads_nothing_heavy(command: str) -> None:
    # Newer versions of typer import pydantic themselves to read a command's options.
    assert loaded(answering(command, "--help")) <= {"pydantic"}


def head_imports(path: Path) -> set[str]:
    """The packages that a file imports when it is itself imported."""
    module = tree(path)
    skipped = for_checkers_only(module)
    inner = {
        id(node)
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    return {
        name.partition(".")[0]
        for node in ast.walk(module)
        if id(node) not in skipped | inner
        for name in imported(node)
    }


def test_public_names_are_no_modules_and_can_be_had() -> None:
    import nsysdoctor

    assert set(nsysdoctor.__all__) & set(MODULES) == set()
    for name in nsysdoctor.__all__:
        assert getattr(nsysdoctor, name) is not None
    with pytest.raises(AttributeError):
        _ = nsysdoctor.no_such_name


def test_slow_packages_are_imported_where_they_are_needed() -> None:
    wrong = {
        path.name: sorted(slow)
        for path in files("nsysdoctor", "rules")
        if path.name != "torch.py" and (slow := head_imports(path) & SLOW)
    }
    assert wrong == {}


# --- sizes


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(*folders: str) -> list[tuple[str, Function]]:
    """Every function with where it stands."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node)
        for path in files(*folders)
        for node in ast.walk(tree(path))
        if isinstance(node, Function)
    ]


def length(function: Function) -> int:
    """Lines from `def` to the last one."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_modules_are_short() -> None:
    lines = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in files(*CODE)}
    assert {name: count for name, count in lines.items() if count > 350} == {}


def test_rooms_hold_few_modules() -> None:
    rooms = {path.parent for path in MODULES.values()}
    most = {ROOT / "nsysdoctor": MOST_AT_THE_TOP}
    full = {
        str(room.relative_to(ROOT)): count
        for room in rooms
        if (count := len(list(room.glob("*.py")))) > most.get(room, MOST_IN_A_ROOM)
    }
    assert full == {}


def test_every_room_says_what_it_is() -> None:
    for path in MODULES.values():
        if path.name == "__init__.py":
            assert ast.get_docstring(tree(path)), path


def test_each_folder_of_tests_has_the_name_of_what_it_tests() -> None:
    rooms = {path.parent.name for path in MODULES.values()} | {"sample_traces", "rules"}
    others = {"bench", "browser", "golden", "gpu", "js", "schemas"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert folders - rooms - others - {"__pycache__"} == set()


def test_functions_are_short() -> None:
    sizes = [length(function) for _, function in functions(*CODE)]
    assert [where for where, function in functions(*CODE) if length(function) > 50] == []
    assert median(sizes) <= 8
    assert quantiles(sizes, n=10)[-1] <= 25


# --- what everything says of itself


def test_every_function_is_annotated() -> None:
    bare = []
    for where, function in functions(*CODE):
        given = function.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        asked = [a for a in every if a is not None and a.arg not in ("self", "cls")]
        if function.returns is None or any(a.annotation is None for a in asked):
            bare.append(where)
    assert bare == []


def public(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """What a file offers to others: itself, and its classes, functions and methods."""
    module = tree(path)
    yield str(path.relative_to(ROOT)), module
    for node in module.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, Function) and not inner.name.startswith("_"):
                    yield f"{path.relative_to(ROOT)}:{inner.lineno} {inner.name}", inner


def test_everything_public_has_a_docstring() -> None:
    silent = [
        where
        for path in files(*CODE)
        if path.read_text().strip()
        for where, node in public(path)
        if isinstance(node, ast.Module | ast.ClassDef | Function) and not ast.get_docstring(node)
    ]
    assert silent == []


def identifiers(path: Path) -> Iterator[tuple[str, int]]:
    """Every name that a file gives to something, with its line."""
    yield path.stem, 0
    for node in ast.walk(tree(path)):
        if isinstance(node, Function | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def words_of(name: str) -> set[str]:
    """The words of a name: `RowHandler` and `row_handler` have the same."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def test_names_use_the_words_of_the_project() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files(*CODE, "tests")
        for name, line in identifiers(path)
        if words_of(name) & FORBIDDEN_WORDS
    ]
    assert wrong == []


MAY_CATCH_ALL = {
    "nsysdoctor/cli.py",  # whatever it is, it ends with status 2
    "nsysdoctor/jobs/answers.py",  # one bad trace of several loses only itself
    "nsysdoctor/rulebook/evaluate.py",  # one bad rule fails alone
    "nsysdoctor/rulebook/rule.py",  # whatever its code raises when it is loaded
}


def test_only_where_something_fails_alone_all_exceptions_are_caught() -> None:
    broad = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files(*CODE)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or {"Exception", "BaseException"} & _names(node.type))
    ]
    assert {place.partition(":")[0] for place in broad} == MAY_CATCH_ALL


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


# --- the page that says where things are


def test_the_page_names_every_package_and_only_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent for path in MODULES.values()} - {ROOT / "nsysdoctor"}
    names = {str(room.relative_to(ROOT / "nsysdoctor")) for room in rooms}
    assert {name for name in names if f"- `{name}/`: " not in page} == set()
    paths = re.findall(r"`((?:nsysdoctor|tests|docs|rules)/[\w./]+)`", page)
    assert len(paths) > 15
    assert [p for p in paths if "NAME" not in p and not (ROOT / p).exists()] == []


# --- what must not be in the tree


def tracked() -> list[Path]:
    """The files under version control; in an unpacked archive all files."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        return [path for path in ROOT.rglob("*") if path.is_file()]
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


# Written in pieces so that this file does not hold what it looks for.
PLACES = [b"/wo" + b"rk/", b"/ro" + b"ot/", b"/tmp/" + b"nd", b"/ho" + b"me/", b"/Us" + b"ers/"]


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    pattern = re.compile(rb"(?<![\w.])(" + b"|".join(map(re.escape, PLACES)) + rb")\w")
    wrong = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.is_file() and pattern.search(path.read_bytes())
    ]
    assert wrong == []


def test_no_database_is_kept_but_the_samples() -> None:
    kept = {str(p.parent.relative_to(ROOT)) for p in tracked() if p.suffix == ".sqlite"}
    assert kept <= {"sample_traces"}

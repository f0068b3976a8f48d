"""The house rules as functions: text in, breaches out. `test_house_rules.py` applies them to the repository.

Every rule takes a path relative to the repository and the text of the file, so that a test can show each
rule failing on a small bad example. A breach says what to do about it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import yaml

PACKAGE = "src/probattn"
MAX_LIBRARY_LINES = 400
MAX_RECIPE_LINES = 250
MAX_FUNCTION_LINES = 50
MAX_CONSTRUCTOR_ARGUMENTS = 8
MAX_POSITIONAL_ARGUMENTS = 2
MAX_TRACKED_BYTES = 250_000

# Who may import whom, as prefixes below `probattn`; everything may import its own package.
LAYERS = ("core", "distributions", "kernels", "nn", "models")  # each one may import those before it
TOOLS = ("training", "metrics", "data", "viz")  # these know the records and, but for training, nothing else
BELOW_RECIPES = (*LAYERS, *TOOLS, "decoding", "inspector", "integrations")
FACADE = "the façade"  # names imported from `probattn` itself
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    **{layer: LAYERS[:depth] for depth, layer in enumerate(LAYERS)},
    **dict.fromkeys(TOOLS, ("core.records", "core.arguments")),  # plain data, and checks of plain arguments
    "training": ("core",),  # a stage carries a bound, estimators and schedules to the task
    "decoding": ("core",),
    "inspector": ("core.records", "viz"),
    "integrations": ("core", "distributions", "kernels", "nn"),
    "functional": BELOW_RECIPES,
    "predict": BELOW_RECIPES,
    "loading": BELOW_RECIPES,  # finds the recipe that a folder names when it is asked to
    FACADE: (*BELOW_RECIPES, "functional", "predict", "loading"),
    "recipes": (*BELOW_RECIPES, "functional", "predict", "loading", FACADE),
    "cli": (*BELOW_RECIPES, "functional", "predict", "loading", "recipes", FACADE),
}

# Written in parts, or this file would break its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:" + "|".join(["work", "root", "home"]) + r")/")


@dataclass(frozen=True)
class Breach:
    """One place that breaks a rule; (path, name) is its key in the table of exceptions."""

    path: str
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.name}: {self.message}"


Rule = Callable[[str, str], list[Breach]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_recipe(path: str) -> bool:
    return path.startswith(f"{PACKAGE}/recipes/")


def walk_scopes(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yields every function and class with its dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            yield prefix + child.name, child
            yield from walk_scopes(child, f"{prefix}{child.name}.")
        else:
            yield from walk_scopes(child, prefix)


def check_file_size(path: str, source: str) -> list[Breach]:
    limit = MAX_RECIPE_LINES if is_recipe(path) else MAX_LIBRARY_LINES
    lines = len(source.splitlines())
    if lines <= limit:
        return []
    return [Breach(path, "file", f"{lines} lines, at most {limit}; split it into files of one idea each")]


def check_function_size(path: str, source: str) -> list[Breach]:
    """Signature and body count, the docstring does not: a long explanation is no fault."""
    breaches = []
    for name, node in walk_scopes(ast.parse(source)):
        if not isinstance(node, Function):
            continue
        lines = span(node)
        if ast.get_docstring(node) is not None:
            lines -= span(node.body[0])
        if lines > MAX_FUNCTION_LINES:
            message = f"{lines} lines without docstring, at most {MAX_FUNCTION_LINES}; give its parts names"
            breaches.append(Breach(path, name, message))
    return breaches


def span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def check_constructors(path: str, source: str) -> list[Breach]:
    breaches = []
    for name, node in walk_scopes(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or is_dataclass(node):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                complaints = constructor_complaints(method.args)
                breaches.extend(Breach(path, f"{name}.__init__", message) for message in complaints)
    return breaches


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def constructor_complaints(arguments: ast.arguments) -> Iterator[str]:
    positional = len(arguments.posonlyargs) + len(arguments.args) - 1  # without self
    total = positional + len(arguments.kwonlyargs)
    if total > MAX_CONSTRUCTOR_ARGUMENTS:
        yield f"{total} arguments, at most {MAX_CONSTRUCTOR_ARGUMENTS}; pass objects that group them"
    if positional > MAX_POSITIONAL_ARGUMENTS or arguments.vararg:
        yield f"put a `*` after argument {MAX_POSITIONAL_ARGUMENTS}; the rest is keyword-only"


def imported_names(path: str, source: str) -> Iterator[str]:
    """Yields every import as an absolute dotted name, wherever in the file it stands."""
    package = list(PurePosixPath(path).relative_to("src").parent.parts)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def unit_of(name: str) -> str:
    """The package or module directly below `probattn` that a dotted name (without `probattn.`) lies in."""
    first = name.split(".")[0]
    return first if first in MAY_IMPORT else FACADE


def check_imports(path: str, source: str) -> list[Breach]:
    parts = PurePosixPath(path).relative_to(PACKAGE).with_suffix("").parts
    unit = {"__init__": FACADE, "__main__": "cli"}.get(parts[0], parts[0])
    if unit not in MAY_IMPORT:
        return [Breach(path, unit, "unknown package; add it to MAY_IMPORT in tests/house_rules.py")]
    breaches = []
    for name in sorted(set(imported_names(path, source))):
        top, _, below = name.partition(".")
        if top != "probattn":
            if unit == "core" and top != "torch" and top not in sys.stdlib_module_names:
                breaches.append(Breach(path, name, "core imports torch alone; move this above core"))
            continue
        target = unit_of(below)
        reach = FACADE if target == FACADE else below
        allowed = MAY_IMPORT[unit]
        if target != unit and not any(reach == item or reach.startswith(f"{item}.") for item in allowed):
            message = f"{unit} may import {', '.join(allowed) or 'no other package'}; move the code up"
            breaches.append(Breach(path, name, message))
    return breaches


def declared_names(source: str) -> list[str] | None:
    """The literal `__all__` of a module, or None where there is none."""
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))
    return None


def sort_key(name: str) -> tuple[int, list[str | int]]:
    """CONSTANTS, then Classes, then functions, numbers by value: the order of ruff's rule RUF022."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def check_all(path: str, source: str) -> list[Breach]:
    try:
        names = declared_names(source)
    except ValueError:
        return [Breach(path, "__all__", "not a literal; write it as a list of strings")]
    if names is None:
        is_script = is_recipe(path) or path.endswith("/__main__.py")
        return [] if is_script else [Breach(path, "__all__", "missing; list the public names of this module")]
    if names != sorted(set(names), key=sort_key):
        return [Breach(path, "__all__", "not sorted, or a name twice; run `make format`")]
    return []


def check_asserts(path: str, source: str) -> list[Breach]:
    message = "assert vanishes under `python -O`; raise an error that says what was expected and what to do"
    lines = [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    return [Breach(path, f"line {line}", message) for line in lines]


def check_devices(path: str, source: str) -> list[Breach]:
    """`.cuda()` and the string "cuda" are out, except where a device that came in is compared with it."""
    tree = ast.parse(source)
    comparing = [node for node in ast.walk(tree) if isinstance(node, ast.Compare | ast.MatchValue)]
    compared = {id(child) for node in comparing for child in ast.walk(node)}
    breaches = []
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "cuda"
        is_name = isinstance(node, ast.Constant) and re.fullmatch(r"cuda(:\d+)?", str(node.value)) is not None
        if is_call or (is_name and id(node) not in compared):
            message = "hard-coded device; take the device of an input, or let the caller pass one"
            breaches.append(Breach(path, f"line {node.lineno}", message))
    return breaches


def check_config(path: str, source: str) -> list[Breach]:
    try:
        content = yaml.safe_load(source)
    except yaml.YAMLError as error:
        return [Breach(path, "yaml", f"does not load: {error}")]
    breaches = []
    if not isinstance(content, dict):
        breaches.append(Breach(path, "yaml", f"is a {type(content).__name__}; write a mapping of settings"))
    if not source.startswith("#"):
        breaches.append(Breach(path, "yaml", "open it with a comment: source of the row, how to run it"))
    return breaches


def check_documented(public: Mapping[str, str], pages: Mapping[str, str]) -> list[Breach]:
    """`public` maps a name to its module; a page mentions the name or has a `:::` line for the module."""
    text = "\n".join(pages.values())
    directives = set(re.findall(r"^::: +(\S+)", text, flags=re.MULTILINE))
    words = set(re.findall(r"\w+", text))
    message = "is public but in no page of docs/; mention it, or add `::: {}` to an API page"
    return [
        Breach(module, name, message.format(module))
        for name, module in sorted(public.items())
        if name not in words and module not in directives
    ]


def check_tracked_size(path: str, size: int) -> list[Breach]:
    if size <= MAX_TRACKED_BYTES:
        return []
    return [Breach(path, "file", f"{size} bytes, at most {MAX_TRACKED_BYTES}; generate it, or download it")]


def check_machine_paths(path: str, source: str) -> list[Breach]:
    message = "names a path of one machine; make it relative, or read it from an environment variable"
    lines = [number for number, line in enumerate(source.splitlines(), 1) if MACHINE_PATH.search(line)]
    return [Breach(path, f"line {number}", message) for number in lines]


SOURCE_RULES: tuple[Rule, ...] = (
    check_file_size,
    check_function_size,
    check_constructors,
    check_imports,
    check_all,
    check_asserts,
    check_devices,
)

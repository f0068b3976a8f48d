"""Applies the house rules to the repository, and shows that each of them can fail."""

import importlib
import subprocess
from pathlib import Path

import pytest

import tests.house_rules as rules
from tests.house_rules import PACKAGE, Breach, Rule

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = f"{PACKAGE}/recipes/configs"
PUBLIC_PACKAGES = ("probattn", "probattn.core", "probattn.distributions", "probattn.nn")

# (path, name) of a breach -> why it may stay. A row that is no longer needed fails a test.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("src/probattn/nn/multihead.py", "MultiheadAttention.__init__"): "it is torch's signature",
    ("src/probattn/integrations/pyg.py", "BayesianGATConv.__init__"): "it is PyG's signature",
}


def relative(pattern: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def repository_files() -> list[str]:
    """Files that are in git or would be added by `git add .`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a git checkout: {error}")
    return sorted(name for name in set(done.stdout.split("\0")) if name and (ROOT / name).is_file())


def report(breaches: list[Breach]) -> None:
    """Fails with one line for each breach that is not in the table of exceptions."""
    left = [breach for breach in breaches if (breach.path, breach.name) not in EXCEPTIONS]
    if left:
        pytest.fail("\n".join(str(breach) for breach in left), pytrace=False)


@pytest.mark.parametrize("path", relative(f"{PACKAGE}/**/*.py"))
@pytest.mark.parametrize("rule", rules.SOURCE_RULES, ids=lambda rule: rule.__name__)
def test_source(rule: Rule, path: str) -> None:
    report(rule(path, read(path)))


@pytest.mark.parametrize("path", relative(f"{CONFIGS}/**/*.yaml"))
def test_config_loads(path: str) -> None:
    report(rules.check_config(path, read(path)))


@pytest.mark.skipif(not (ROOT / PACKAGE / "recipes").is_dir(), reason="there are no recipes yet")
def test_configs_are_found() -> None:
    assert len(relative(f"{CONFIGS}/**/*.yaml")) > 0, f"no *.yaml below {CONFIGS}; every recipe has a config"
    assert not relative(f"{PACKAGE}/**/*.yml"), "name configs *.yaml, or they are not checked"


@pytest.mark.parametrize("package", PUBLIC_PACKAGES)
def test_public_names_are_documented(package: str) -> None:
    module = importlib.import_module(package)
    public = {name: getattr(getattr(module, name), "__module__", package) for name in module.__all__}
    public = {name: where for name, where in public.items() if not name.startswith("__")}
    report(rules.check_documented(public, {path: read(path) for path in relative("docs/**/*.md")}))


def test_no_large_files() -> None:
    sizes = {path: (ROOT / path).stat().st_size for path in repository_files()}
    report([breach for path, size in sizes.items() for breach in rules.check_tracked_size(path, size)])


def test_no_machine_paths() -> None:
    texts = {path: (ROOT / path).read_text(encoding="utf-8", errors="replace") for path in repository_files()}
    report([breach for path, text in texts.items() for breach in rules.check_machine_paths(path, text)])


def test_exceptions_are_needed() -> None:
    paths = {path for path, _ in EXCEPTIONS if (ROOT / path).is_file()}
    breaches = [breach for path in paths for rule in rules.SOURCE_RULES for breach in rule(path, read(path))]
    unneeded = set(EXCEPTIONS) - {(breach.path, breach.name) for breach in breaches}
    assert not unneeded, f"delete from EXCEPTIONS: {unneeded}"


# What follows shows that each rule can fail, and that it does not fail on what it must allow.

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 50
LONG_METHOD = "class A:\n    if True:\n        " + LONG_FUNCTION.replace("\n", "\n        ")
LONG_DOCSTRING = 'def f():\n    """One.\n' + "\n" * 50 + '    """\n'
NINE = ", ".join(f"a{i}=0" for i in range(9))
INIT = "class A:\n    def __init__"
MACHINE = "/".join(["", "home", "someone", "x"])

BAD = [
    (rules.check_file_size, "core/a.py", "x = 1\n" * 401, "401 lines, at most 400"),
    (rules.check_file_size, "recipes/a.py", "x = 1\n" * 251, "251 lines, at most 250"),
    (rules.check_function_size, "core/a.py", LONG_FUNCTION, "51 lines"),
    (rules.check_function_size, "core/a.py", LONG_METHOD, "A.f"),
    (rules.check_constructors, "nn/a.py", f"{INIT}(self, *, {NINE}): ...", "9 arguments"),
    (rules.check_constructors, "nn/a.py", f"{INIT}(self, a, b, c): ...", "keyword-only"),
    (rules.check_constructors, "nn/a.py", f"{INIT}(self, *a): ...", "keyword-only"),
    (rules.check_imports, "core/a.py", "import numpy", "core imports torch alone"),
    (rules.check_imports, "core/a.py", "from probattn.nn.site import Site", "core may import no other"),
    (rules.check_imports, "core/a.py", "from ..nn import site", "core may import no other"),
    (rules.check_imports, "core/a.py", "def f():\n    import probattn.nn", "core may import no other"),
    (rules.check_imports, "kernels/__init__.py", "from .. import nn", "kernels may import core"),
    (rules.check_imports, "nn/a.py", "from probattn import MultiheadAttention", "nn may import"),
    (rules.check_imports, "nn/a.py", "import probattn", "nn may import"),
    (rules.check_imports, "metrics/a.py", "from probattn.core.bounds import Elbo", "may import core.records"),
    (rules.check_imports, "metrics/a.py", "from probattn.core import Elbo", "may import core.records"),
    (rules.check_imports, "decoding/a.py", "from probattn.nn import Site", "decoding may import core"),
    (rules.check_imports, "predict.py", "from probattn.recipes import recall", "predict may import"),
    (rules.check_imports, "helpers/a.py", "", "unknown package"),
    (rules.check_all, "core/a.py", "x = 1", "missing"),
    (rules.check_all, "core/a.py", '__all__ = ["b", "a"]', "not sorted"),
    (rules.check_all, "core/a.py", '__all__ = ["a", "a"]', "a name twice"),
    (rules.check_all, "core/a.py", '__all__ = ["Elbo", "MAX"]', "not sorted"),
    (rules.check_all, "core/a.py", "__all__ = list(names)", "not a literal"),
    (rules.check_asserts, "core/a.py", "def f(x):\n    assert x", "line 2"),
    (rules.check_devices, "core/a.py", "y = x.cuda()", "hard-coded device"),
    (rules.check_devices, "core/a.py", 'y = x.to("cuda")', "hard-coded device"),
    (rules.check_devices, "core/a.py", 'def f(device="cuda:0"): ...', "hard-coded device"),
    (rules.check_config, "recipes/configs/a.yaml", "# row\n- 1", "is a list"),
    (rules.check_config, "recipes/configs/a.yaml", "# row\na: [", "does not load"),
    (rules.check_config, "recipes/configs/a.yaml", "a: 1  # one", "open it with a comment"),
    (rules.check_machine_paths, "core/a.py", f'path = "{MACHINE}"', "names a path of one machine"),
]  # fmt: skip

GOOD = [
    (rules.check_file_size, "core/a.py", "x = 1\n" * 400),
    (rules.check_function_size, "core/a.py", LONG_DOCSTRING),
    (rules.check_constructors, "nn/a.py", f"{INIT}(self, a, b, *, c=0, **rest): ..."),
    (rules.check_constructors, "core/a.py", f"@dataclass(frozen=True)\n{INIT}(self, {NINE}): ..."),
    (rules.check_imports, "core/a.py", "import math, torch\nfrom .b import c\nfrom . import d"),
    (rules.check_imports, "nn/a.py", "from ..core import Elbo\nfrom probattn.kernels import c\nimport numpy"),
    (rules.check_imports, "metrics/a.py", "from ..core.records import Draw\nfrom ..core import records"),
    (rules.check_imports, "__init__.py", "from .nn import Site\nfrom .predict import predict"),
    (rules.check_imports, "recipes/a.py", "import probattn\nfrom probattn import training, predict"),
    (rules.check_imports, "cli.py", "from probattn import recipes"),
    (rules.check_all, "core/a.py", '__all__ = ["MAX", "Elbo", "K", "iw_2", "iw_10"]'),
    (rules.check_all, "core/a.py", '__all__: list[str] = ["a"]'),
    (rules.check_all, "recipes/a.py", "x = 1"),
    (rules.check_devices, "core/a.py", 'is_gpu = x.device.type == "cuda" and torch.cuda.is_available()'),
    (rules.check_config, "recipes/configs/a.yaml", "# Deng et al., Table 1\na: 1"),
    (rules.check_machine_paths, "core/a.py", f'a = "docs{MACHINE}"; b = "https://example.org{MACHINE}"'),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "path", "source", "message"), BAD)
def test_rule_finds_bad_example(rule: Rule, path: str, source: str, message: str) -> None:
    breaches = rule(f"{PACKAGE}/{path}", source)
    assert len(breaches) == 1
    assert message in str(breaches[0])


@pytest.mark.parametrize(("rule", "path", "source"), GOOD)
def test_rule_accepts_good_example(rule: Rule, path: str, source: str) -> None:
    assert rule(f"{PACKAGE}/{path}", source) == []


def test_every_rule_has_a_bad_example() -> None:
    assert {*rules.SOURCE_RULES, rules.check_config} <= {rule for rule, *_ in BAD}


def test_documented_names() -> None:
    public = {"Elbo": "probattn.core.bounds", "Mean": "probattn.core.estimators"}
    check = rules.check_documented
    assert [breach.name for breach in check(public, {})] == ["Elbo", "Mean"]
    assert [breach.name for breach in check(public, {"a.md": "`Mean()` and `ElboLike`"})] == ["Elbo"]
    assert check(public, {"a.md": "Mean", "b.md": "# API\n\n::: probattn.core.bounds\n"}) == []
    assert len(check(public, {"a.md": "::: probattn.core\n"})) == 2


def test_tracked_size() -> None:
    assert rules.check_tracked_size("a.bin", 250_000) == []
    assert "generate it" in str(rules.check_tracked_size("a.bin", 250_001)[0])

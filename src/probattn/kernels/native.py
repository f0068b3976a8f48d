"""The C++ back end: whether it can be used, how it is built, and what is active.

The sources in `csrc/` are compiled once per version of the sources, of torch and of the processor, and kept in torch's
folder for extensions. Nothing is compiled at install or at import. The environment variable PROBATTN_KERNELS says what
happens at the first use of a kernel:

- `auto` (or unset): load what was built before. Without it, build where a call is large enough to make up for it (see
  `is_active`), with one line that says so, and use plain torch for smaller ones.
- `on`: build if need be, whatever the size.
- `off`: plain torch.

Results are the same up to rounding, and noise is the same to the last bit.
"""

import contextlib
import hashlib
import logging
import os
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from probattn.core.checks import is_transformed

__all__ = ["Status", "build", "is_active", "settle", "status", "switched"]

_SOURCES = Path(__file__).parent / "csrc"
_NAME = "probattn_native"
_VARIABLE = "PROBATTN_KERNELS"
_MODES = ("auto", "on", "off")
_ARM = ("aarch64", "arm64")
# Scores, or edges times heads, of one call from which on a build starts by itself: tens of milliseconds in plain torch.
_WORTH_A_BUILD = 2**21
_logger = logging.getLogger("probattn.kernels")
_lock = threading.RLock()
_status: "Status | None" = None


@dataclass(frozen=True)
class Status:
    """What the kernels run on.

    Attributes:
        is_active: Whether the C++ back end is loaded.
        reason: Why, in one sentence.
        library: The compiled file, where there is one or would be one.
        may_build: Whether a large call builds it.
    """

    is_active: bool
    reason: str
    library: Path | None = None
    may_build: bool = False


def is_active(work: int = 0) -> bool:
    """Whether kernels run in C++. The first call loads what was built before; see the module's text for more.

    Never inside of `torch.func.grad`, `vmap` and their like, which do not see through them.

    Args:
        work: Scores of the call that asks. From two million on, a back end that is not there yet is built first, unless
            a compiler of torch is looking.
    """
    if is_transformed():
        return False
    if _status is None and torch.compiler.is_compiling():
        return False  # nothing can be loaded there
    found = _status or status()
    if found.may_build and work >= _WORTH_A_BUILD and not torch.compiler.is_compiling():
        found = _build_unasked()
    return found.is_active


def status() -> Status:
    """What is active and why."""
    global _status
    with _lock:
        if _status is None:
            _status = _first_status()
            level = logging.WARNING if _mode() == "on" and not _status.is_active else logging.INFO
            _logger.log(level, "%s", _status.reason)
        return _status


def build(*, verbose: bool = False) -> Status:
    """Compile the C++ sources if this was not done before, and load them. Takes about a minute.

    Several processes may call it at once: one compiles, the others wait and load its result.

    Args:
        verbose: Print the compiler's output.

    Returns:
        What is active now. A build that fails is told in `reason` and raises nothing: everything also runs in torch.
    """
    global _status
    with _lock:
        if _status is None or not _status.is_active:
            _status = _built(verbose)
        return _status


def settle() -> Status:
    """Keep what is active now for the rest of the process: a training run does not change its back end on the way."""
    global _status
    with _lock:
        _status = replace(status(), may_build=False)
        return _status


def _build_unasked() -> Status:
    """Build because a call is large; what comes of it is told once."""
    global _status
    with _lock:
        if _status is not None and _status.may_build:
            _logger.warning("building C++ kernels, once for this machine, in about a minute; %s=off: never", _VARIABLE)
            _status = _built(verbose=False)
            _logger.log(logging.INFO if _status.is_active else logging.WARNING, "%s", _status.reason)
        return _status or status()


@contextlib.contextmanager
def switched(enabled: bool) -> Iterator[None]:
    """Whether kernels may run in C++ inside a `with` block, in all threads; True changes nothing."""
    global _status
    before = status()
    _status = before if enabled else Status(False, "kernels run in plain torch: switched off", before.library)
    try:
        yield
    finally:
        _status = before


def _first_status() -> Status:
    mode = _mode()
    if mode == "off":
        return Status(False, f"kernels run in plain torch: {_VARIABLE} is off")
    if mode == "on":
        return _built(verbose=False)
    try:
        library = _library()
        is_there = library.is_file()
    except (OSError, RuntimeError) as error:  # a home that is not there, or another user's
        return Status(False, f"kernels run in plain torch: no folder for the C++ back end: {_gist(error)}")
    if is_there:
        return _loaded(library)
    advice = "`probattn kernels --build`, or the first large call, does it"
    reason = f"kernels run in plain torch: the C++ back end is not built; {advice}"
    return Status(False, reason, library, may_build=True)


def _mode() -> str:
    mode = os.environ.get(_VARIABLE, "auto") or "auto"
    if mode not in _MODES:
        raise ValueError(f"{_VARIABLE} must be one of {', '.join(_MODES)}; got {mode!r}")
    return mode


def _built(verbose: bool) -> Status:
    library = None
    try:
        library = _library()
        with _exclusive(library.parent):
            if not library.is_file():
                _compile(library, verbose)
    except (OSError, RuntimeError, ImportError) as error:
        return Status(False, f"kernels run in plain torch: no C++ back end could be built: {_gist(error)}", library)
    return _loaded(library)


def _gist(error: Exception) -> str:
    """The line of a compiler's output that says what is wrong."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if "error:" in line), lines[0])[:200]


def _loaded(library: Path) -> Status:
    try:
        if not _is_loaded():
            torch.ops.load_library(library)
    except (OSError, RuntimeError) as error:
        return Status(False, f"kernels run in plain torch: {library} could not be loaded: {_gist(error)}", library)
    return Status(True, f"kernels run in C++: {library}", library)


def _is_loaded() -> bool:
    """A build loads what it made, and torch refuses to load an operator twice."""
    return hasattr(torch.ops.probattn_native, "uniform")


def _compile(library: Path, verbose: bool) -> None:
    """Build in a folder of our own and move the result into place.

    torch's loader marks a build by a lock file that a killed process leaves behind, and then waits for it without end.
    """
    with tempfile.TemporaryDirectory(dir=library.parent) as folder, _scripts_on_path():
        _require_tools()
        from torch.utils import cpp_extension  # imports setuptools, so not at the top

        cpp_extension.load(
            name=_NAME,
            sources=[str(path) for path in sorted(_SOURCES.glob("*.cpp"))],
            extra_cflags=_flags(),
            extra_ldflags=["-fopenmp"] if sys.platform == "linux" else [],
            build_directory=folder,
            is_python_module=False,
            verbose=verbose,
        )
        # torch gives a second build of one process another name
        os.replace(max(Path(folder).glob(f"{_NAME}*.so"), key=lambda path: path.stat().st_mtime_ns), library)


def _require_tools() -> None:
    """A clear word before torch's loader tries and says a screenful."""
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        raise RuntimeError(f"there is no C++ compiler {compiler!r}")
    if shutil.which("ninja") is None:
        raise RuntimeError("there is no ninja; install probattn[kernels]")


def _flags() -> list[str]:
    """Vectors as wide as the processor has; -ffast-math is left out, as it changes every thread's floating point."""
    flags = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-DNDEBUG"]
    flags.append("-mcpu=native" if platform.machine() in _ARM else "-march=native")
    return [*flags, "-fopenmp" if sys.platform == "linux" else "-fopenmp-simd"]


def _library() -> Path:
    """Where the compiled file is: its folder's name holds all that it depends on."""
    digest = hashlib.sha256()
    for path in sorted([*_SOURCES.glob("*.cpp"), *_SOURCES.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update("\0".join([torch.__version__, platform.machine(), _processor(), *_flags()]).encode())
    return _extensions_folder() / f"{_NAME}-{digest.hexdigest()[:16]}" / f"{_NAME}.so"


def _extensions_folder() -> Path:
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "torch_extensions"


def _processor() -> str:
    """The instructions that the processor has, so that a shared home serves machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """One process at a time. The kernel frees the lock when its process ends, however it ends."""
    import fcntl  # POSIX alone; elsewhere the build fails with this import

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "building").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _scripts_on_path() -> Iterator[None]:
    """`ninja` is found in an environment that is not activated."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before

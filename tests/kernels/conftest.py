"""The C++ back end for tests: built once, active where a test asks for it, skipped where there is no compiler."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probattn.kernels import native
from probattn.kernels.native import Status


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> Status:
    """The outcome of a build that must succeed, in a folder where nothing but tests finds it."""
    scripts = Path(sys.executable).parent
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        pytest.skip("there is no C++ compiler")
    if shutil.which("ninja") is None and not (scripts / "ninja").exists():
        pytest.skip("there is no ninja; the extra `kernels` has it")
    with pytest.MonkeyPatch.context() as patch:
        if "TORCH_EXTENSIONS_DIR" not in os.environ:
            patch.setenv("TORCH_EXTENSIONS_DIR", str(request.config.cache.mkdir("torch_extensions")))
        status = native._built(verbose=False)
    assert status.is_active, status.reason
    return status


@pytest.fixture
def native_kernels(built: Status, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels run in C++."""
    monkeypatch.setattr(native, "_status", built)
    yield

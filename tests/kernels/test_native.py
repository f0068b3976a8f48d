"""The C++ back end: when it is used, what is said about it, and builds that fail, end halfway or run side by side."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from probattn.core.noise import uniform
from probattn.kernels import native
from probattn.kernels.native import Status


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing was asked yet, and nothing was built in this folder."""
    monkeypatch.setattr(native, "_status", None)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("PROBATTN_KERNELS", "auto")
    yield


def pretend_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_loaded", lambda library: Status(True, "loaded", library))


def test_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBATTN_KERNELS", "off")
    assert native.status() == Status(False, "kernels run in plain torch: PROBATTN_KERNELS is off")
    assert not native.is_active()


def test_auto_does_not_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "_compile", None)
    assert "is not built; `probattn kernels --build`, or the first large call, does it" in native.status().reason
    assert not native.is_active() and not list(tmp_path.iterdir())
    assert uniform(torch.tensor(1), (3,)).shape == (3,)


def test_auto_loads_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_to_load(monkeypatch)
    library = native._library()
    library.parent.mkdir(parents=True)
    library.touch()
    assert native.is_active()


def test_unknown_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBATTN_KERNELS", "fast")
    with pytest.raises(ValueError, match="PROBATTN_KERNELS must be one of auto, on, off; got 'fast'"):
        native.status()


@pytest.mark.parametrize(("mode", "level"), [("auto", logging.INFO), ("on", logging.WARNING)])
def test_what_is_active_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str, level: int
) -> None:
    monkeypatch.setenv("PROBATTN_KERNELS", mode)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with caplog.at_level(logging.INFO, logger="probattn.kernels"):
        for _ in range(3):
            native.is_active()
    assert [record.levelno for record in caplog.records] == [level]
    assert "\n" not in caplog.messages[0] and caplog.messages[0].startswith("kernels run in plain torch")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("CXX", "no-such-compiler"), "there is no C++ compiler 'no-such-compiler'"),
        (("PATH", ""), "there is no C++ compiler 'c++'"),
    ],
)
def test_missing_tools(monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], message: str) -> None:
    monkeypatch.setattr(native.sys, "executable", "python")  # no scripts beside it
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(*change)
    assert native.build().reason.endswith(message)


def test_missing_ninja(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    compiler.touch(mode=0o755)
    monkeypatch.setattr(native.sys, "executable", "python")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.build().reason.endswith("there is no ninja; install probattn[kernels]")


def test_a_build_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_(library: Path, verbose: bool) -> None:
        raise RuntimeError("Error building extension\n[1/3] c++ noise.cpp\nnoise.cpp:3:1: error: expected ';'\nninja")

    monkeypatch.setattr(native, "_compile", compile_)
    status = native.build()
    assert not status.is_active
    assert status.reason.endswith("no C++ back end could be built: noise.cpp:3:1: error: expected ';'")
    assert uniform(torch.tensor(1), (3,)).shape == (3,)


def test_a_build_that_is_interrupted_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(library: Path, verbose: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(native, "_compile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        native.build()
    pretend_to_load(monkeypatch)
    monkeypatch.setattr(native, "_compile", lambda library, verbose: library.touch())
    assert native.build().is_active


def test_builds_side_by_side_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compile_(library: Path, verbose: bool) -> None:
        compiled.append(library)
        time.sleep(0.2)
        library.touch()

    monkeypatch.setattr(native, "_compile", compile_)
    pretend_to_load(monkeypatch)
    # the lock belongs to an open file, so threads exclude each other as processes do
    threads = [threading.Thread(target=native._built, args=(False,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


def test_a_file_that_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_is_loaded", lambda: False)
    library = native._library()
    library.parent.mkdir(parents=True)
    library.write_text("no library")
    assert not native.is_active()
    assert "could not be loaded" in native.status().reason


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = native._library()
    assert before.parent.parent == tmp_path and before == native._library()
    monkeypatch.setattr(native, "_processor", lambda: "another processor")
    other_processor = native._library()
    monkeypatch.setattr(native, "_SOURCES", tmp_path)
    (tmp_path / "noise.cpp").write_text("another source")
    assert len({before, other_processor, native._library()}) == 3
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert native._library().is_relative_to(tmp_path / "cache" / "torch_extensions")


def test_switched(monkeypatch: pytest.MonkeyPatch) -> None:
    active = Status(True, "loaded")
    monkeypatch.setattr(native, "_status", active)
    with native.switched(False):
        assert not native.is_active() and native.status().reason == "kernels run in plain torch: switched off"
    assert native.status() is active
    with native.switched(True):
        assert native.status() is active


def test_sources_are_packed() -> None:
    names = {path.name for path in native._SOURCES.iterdir()}
    assert {"noise.cpp", "graph_attention.cpp", "philox.h"} <= names


def test_a_run_keeps_its_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_compile", None)
    assert native.status().may_build
    assert not native.settle().may_build
    assert not native.is_active(work=2**40)


def test_a_large_call_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_to_load(monkeypatch)
    monkeypatch.setattr(native, "_compile", lambda library, verbose: library.touch())
    assert not native.is_active(work=2**20)
    assert native.is_active(work=2**21)
    assert not native.status().may_build


def test_a_build_that_fails_is_tried_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(native.sys, "executable", "python")
    with caplog.at_level(logging.WARNING, logger="probattn.kernels"):
        for _ in range(3):
            assert not native.is_active(work=2**30)
    assert len(caplog.records) == 2  # that it begins, and how it ends
    assert "there is no C++ compiler" in caplog.messages[1]


def test_a_second_build_takes_the_name_that_torch_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_to_load(monkeypatch)
    monkeypatch.setattr(native, "_require_tools", lambda: None)

    def load(*, name: str, build_directory: str, **_: object) -> None:
        (Path(build_directory) / f"{name}_v1.so").write_bytes(b"made")

    monkeypatch.setattr("torch.utils.cpp_extension.load", load)
    assert native.build().is_active
    assert native._library().read_bytes() == b"made"


@pytest.mark.parametrize("error", [PermissionError("not yours"), RuntimeError("Could not determine home directory.")])
def test_a_home_that_cannot_be_read_leaves_plain_torch(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse() -> Path:
        raise error

    monkeypatch.setattr(native, "_extensions_folder", refuse)
    assert uniform(torch.tensor(1), (3,)).shape == (3,)
    assert str(error) in native.status().reason and not native.is_active()
    monkeypatch.setattr(native, "_status", None)
    assert str(error) in native.build().reason

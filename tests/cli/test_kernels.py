"""`probattn kernels` says what is active, builds on request, and compares with torch."""

from pathlib import Path

import pytest

from probattn import kernels
from probattn.cli import main
from probattn.kernels import native
from probattn.kernels.native import Status


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "_status", None)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))


def test_says_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PROBATTN_KERNELS", "off")
    main(["kernels", "--test"])
    shown = capsys.readouterr().out
    assert "plain torch: PROBATTN_KERNELS is off" in shown
    assert "graph attention, gradient of prior" in shown and "0.0e+00" in shown  # torch against itself


def test_a_build_that_fails_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "_built", lambda verbose: Status(False, "kernels run in plain torch: no compiler"))
    with pytest.raises(SystemExit) as stop:
        main(["kernels", "--build"])
    assert stop.value.code == 1 and "no compiler" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [0.3, float("nan")])
def test_wrong_kernels_are_reported(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "self_test", lambda: {"noise": 0.0, "graph attention, KL": wrong})
    with pytest.raises(SystemExit, match="use PROBATTN_KERNELS=off"):
        main(["kernels", "--test"])

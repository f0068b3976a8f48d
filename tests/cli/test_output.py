"""Lines of commands: files that are whole, what an interruption leaves, names that cannot be."""

import gzip
import io
import lzma
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch

import probattn.cli as cli
from probattn.cli import features
from probattn.cli.output import Output
from probattn.data.extract_features import Extraction
from probattn.data.image_features import ImageFeatures, read_features
from probattn.training import CollapseWarning


def test_a_file_appears_when_all_is_done(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines.txt"
    with Output(path) as output:
        output.put(["a", "b"])
        assert not path.exists()
        output.put(["c"])
    assert path.read_text() == "a\nb\nc\n"
    assert list(path.parent.iterdir()) == [path]


def test_no_line_is_an_empty_file(tmp_path: Path) -> None:
    with Output(tmp_path / "lines.txt"):
        pass
    assert (tmp_path / "lines.txt").read_text() == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_was_done_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str], error: type[BaseException]) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("old\n")
    with pytest.raises(error), Output(path) as output:
        output.put(["a", "b"])
        raise error
    assert path.read_text() == "old\n"
    assert (tmp_path / "lines.txt.part").read_text() == "a\nb\n"
    assert f"2 lines that were done are in {tmp_path / 'lines.txt.part'}" in capsys.readouterr().err


def test_packed_by_name(tmp_path: Path) -> None:
    for name, unpack in (("a.gz", gzip.decompress), ("a.xz", lzma.decompress)):
        with Output(tmp_path / name) as output:
            output.put(["ein Wörtchen"])
        assert unpack((tmp_path / name).read_bytes()).decode() == "ein Wörtchen\n"


def test_the_standard_output_is_utf8_in_any_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="latin-1")  # of a terminal's language, or of Windows
    monkeypatch.setattr(sys, "stdout", stream)
    cli.main(["ls", "gat"])
    stream.flush()
    assert "Veličković" in written.getvalue().decode("utf-8")


def test_devices_are_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their folder is closed to most users."""
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "/dev" and allowed(path, mode))
    with Output(Path("/dev/null")) as output:
        output.put(["a"])
    assert not Path("/dev/null.part").exists()


def test_a_closed_standard_output_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(ValueError, match="the standard output is closed; name a file with --output"):
        Output(None)
    with Output(tmp_path / "lines") as output:
        output.put(["one"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(ValueError, match="nothing can be written into"):
        Output(tmp_path / "closed" / "lines.txt")


def test_names_that_cannot_be_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder; name a file in it"):
        Output(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="nothing can be written into"):
        Output(tmp_path / "file" / "lines.txt")


@pytest.mark.parametrize(
    "command", ["translate", "generate", "augment", "answer", "classify", "align", "eval", "gallery"]
)
def test_commands_look_at_the_output_before_the_work(tmp_path: Path, command: str) -> None:
    more = {
        "align": ["--src", "a", "--tgt", "b"],
        "answer": ["--features", "f", "--image", "i", "--question", "q"],
        "gallery": ["--features", "f"],
    }
    with pytest.raises(SystemExit, match="is a folder; name a file in it"):  # not that there is no model
        cli.main([command, str(tmp_path / "none"), *more.get(command, []), "--output", str(tmp_path)])


def test_other_files_are_looked_at_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong = str(tmp_path / "file" / "features.npz")
    with pytest.raises(SystemExit, match=r"OUTPUT .*features\.npz: nothing can be written into"):
        cli.main(["features", str(tmp_path / "none"), wrong])  # not that there are no pictures
    asked = ["--features", "f", "--image", "i", "--question", "q"]
    with pytest.raises(SystemExit, match=r"--map .*features\.npz: nothing can be written into"):
        cli.main(["answer", str(tmp_path / "none"), *asked, "--map", wrong])


def test_features_make_the_folder_that_they_are_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Extraction(ImageFeatures(("a.jpg",), torch.ones(1, 4, 3)), skipped={})
    monkeypatch.setattr(features, "list_pictures", lambda folder: {})
    monkeypatch.setattr(features, "efficientnet_lite0", lambda: None)
    monkeypatch.setattr(features, "extract_features", lambda *given, **named: found)
    path = tmp_path / "new" / "features.npz"
    cli.main(["features", "photos", str(path)])  # hours of work must not be lost for want of a folder
    assert read_features(path).names == ("a.jpg",)


def test_warnings_of_ours_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def look(arguments: object) -> None:  # what Python would print of a warning while the command runs
        for kind in (CollapseWarning, UserWarning):
            shown.append(warnings.formatwarning("site 'z' has collapsed", kind, "file.py", 1, "some = code"))

    command = cli._COMMANDS["ls"]
    monkeypatch.setitem(cli._COMMANDS, "ls", type(command)(command.summary, "", command.add_arguments, look))
    before = warnings.formatwarning
    cli.main(["ls"])
    assert shown[0] == "probattn: site 'z' has collapsed\n"
    assert shown[1] == before("site 'z' has collapsed", UserWarning, "file.py", 1, "some = code")
    assert warnings.formatwarning is before

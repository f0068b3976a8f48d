"""GLUE: tables, files in a folder, errors; the real files where they are."""

from dataclasses import replace
from pathlib import Path

import pytest

from probattn.data import glue
from probattn.data.glue import Columns, read_table
from probattn.data.sentences import generated_task
from tests.data.made_up_glue import CLASSES, LAYOUTS, write_made_up

SIZES = {
    "mrpc": (3668, 408, 1725),
    "cola": (7696, 855, 1043),
    "rte": (2127, 363, 277),
    "stsb": (5749, 1500, 1379),
    "sst2": (60614, 6735, 872),
}


@pytest.mark.data
@pytest.mark.parametrize("name", SIZES)
def test_published_tasks(name: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBATTN_DATA", str(data_dir))
    task = glue.load(name)
    assert (len(task.train), len(task.valid), len(task.test)) == SIZES[name]
    assert all(text and "\t" not in text and "\ufeff" not in text for text in task.train.first)
    assert (task.train.second is None) == (name in ("cola", "sst2"))
    if task.is_score:
        assert 0.0 <= min(task.train.targets) < max(task.train.targets) <= 5.0
    else:
        assert all(set(split.targets) == {0.0, 1.0} for split in (task.train, task.valid, task.test))


def test_a_table_may_have_a_mark_a_header_and_windows_lines() -> None:
    content = "\ufeffQuality\tid\tid\tone\ttwo\r\n1\t5\t6\tA \"quoted' word. \t B\r\n\r\n0\t7\t8\tC\tD\r\n".encode()
    table = read_table(content, Columns(3, 4, 0), place="table")
    assert table.first == ("A \"quoted' word.", "C") and table.second == ("B", "D") and table.targets == (1.0, 0.0)


def test_bad_lines_are_told_with_their_number() -> None:
    with pytest.raises(ValueError, match="a.tsv, line 2: expected at least 3 columns, got 2"):
        read_table(b"1\tx\ty\n1\tx\n", Columns(1, 2, 0, has_header=False), place="a.tsv")
    with pytest.raises(ValueError, match="a.tsv, line 1: expected one of the labels 0, 1, got '2'"):
        read_table(b"2\tx\n", Columns(1, None, 0, has_header=False), place="a.tsv")
    with pytest.raises(ValueError, match="a.tsv, line 1: expected a number, got 'much'"):
        read_table(b"much\tx\n", Columns(1, None, 0, labels=(), has_header=False), place="a.tsv")
    with pytest.raises(ValueError, match="a.tsv has no examples"):
        read_table(b"label\tsentence\n", Columns(1, None, 0), place="a.tsv")


def test_missing_files_are_told_with_the_ways_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"RTE.* set PROBATTN_DATA .* probattn.data.sentences.generated_task"):
        glue.load("rte")
    with pytest.raises(FileNotFoundError, match="glue/QNLI/train.tsv of GLUE's qnli .* which has no glue/QNLI"):
        glue.load("qnli")
    monkeypatch.delenv("PROBATTN_DATA")
    with pytest.raises(FileNotFoundError, match="it is not set"):
        glue.load("wnli")
    with pytest.raises(ValueError, match="task 'mprc' is unknown; did you mean 'mrpc'"):
        glue.load("mprc")


def test_a_file_with_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "glue" / "CoLA" / "in_domain_train.tsv"
    file.parent.mkdir(parents=True)
    file.write_text("gj04\t1\t\tMine.\n")
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="in_domain_train.tsv is not the published file of GLUE"):
        glue.load("cola")


def test_other_tasks_are_read_as_glue_distributes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    folder = tmp_path / "glue" / "WNLI"
    folder.mkdir(parents=True)
    header = "index\tsentence1\tsentence2\tlabel\n"
    (folder / "train.tsv").write_text(header + "".join(f"{i}\tfirst {i}\tsecond {i}\t{i % 2}\n" for i in range(100)))
    (folder / "dev.tsv").write_text(header + "0\ta\tb\t1\n")
    task = glue.load("wnli")
    assert (len(task.train), len(task.valid), len(task.test), task.test.targets) == (40, 60, 1, (1.0,))


@pytest.mark.parametrize("name", LAYOUTS)
def test_large_tasks_are_read_as_glue_distributes_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    monkeypatch.setitem(glue._SPEC, name, replace(glue._SPEC[name], num_valid=6))  # type: ignore[arg-type]
    write_made_up(name, tmp_path, count=20)
    task = glue.load(name)
    assert (len(task.train), len(task.valid), len(task.test)) == (14, 6, 20)
    assert task.num_classes == len(CLASSES[name]) and task.metric == "accuracy"
    assert task.test.first == tuple(f"first {i}" for i in range(20))
    assert task.test.second == tuple(f"second {i}" for i in range(20))
    assert task.test.targets == tuple(float(i % task.num_classes) for i in range(20))


def test_generated_tasks_need_no_files() -> None:
    assert glue.load("generated") == generated_task()
    assert glue.load("generated-score").is_score


def test_broken_lines_of_qqp_are_left_out() -> None:
    header = b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    lines = header + b"1\t2\t3\ta ?\tb ?\t1\n4\t5\thalf of\n6\t7\t8\tc ?\td ?\t0\n"
    columns = glue._SPEC["qqp"].columns
    assert read_table(lines, columns, place="QQP").targets == (1.0, 0.0)
    with pytest.raises(ValueError, match="line 3: expected at least 6 columns, got 3"):
        read_table(lines, replace(columns, skips_broken=False), place="QQP")

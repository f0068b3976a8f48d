"""train, eval, translate, align and data as a user types them, and what they say to wrong input."""

import io
import json
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import probattn
from probattn import cli
from probattn.data.bpe import train_bpe
from probattn.recipes.translation_search import SamplingSettings
from probattn.training import CheckpointError
from tests.toy_language import SMALL, WORDS, write_toy_language

SENTENCE = "der hund sieht"


class Trained(NamedTuple):
    run: Path
    source: Path
    target: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    source, target = write_toy_language(folder)
    text = {"corpus.name": "files", "corpus.src": source, "corpus.tgt": target}
    settings = {**text, **SMALL, "epochs": 6}
    words = [f"{name}={value}" for name, value in settings.items()]
    cli.main(["train", "translation/variational-enum", *words, "--output", str(folder / "run")])
    return Trained(folder / "run", source, target)


def output_of(words: list[str | Path], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    cli.main([str(word) for word in words])
    return capsys.readouterr().out


def test_a_model_folder_opens_with_one_line(trained: Trained) -> None:
    translator = probattn.load(trained.run)
    assert sorted(path.name for path in (trained.run / "model").iterdir()) == [
        "config.json",
        "model.safetensors",
        "outputs.json",
        "tokenizer.json",
    ]
    best = translator.translate([SENTENCE, ""])
    assert set(best[0][0].text.split()) <= set(WORDS.values())
    assert best[1] == []
    pairs = ([SENTENCE], [best[0][0].text])
    assert translator.score(*pairs)[0] == pytest.approx(best[0][0].log_prob, abs=1e-4)
    for aligner in ("prior", "posterior", "exact"):
        alignment = translator.align(*pairs, aligner=aligner)[0]
        target_pieces = len(translator.subwords.tokenizer.encode(pairs[1][0]))
        assert alignment.weights.shape[0] == target_pieces + 1
        assert torch.allclose(alignment.weights.sum(dim=-1), torch.ones(target_pieces + 1), atol=1e-5)
        assert {target for _, target in alignment.links} == set(range(len(pairs[1][0].split())))
    assert best[0][0].links == translator.align(*pairs, aligner="prior")[0].links
    assert translator.align(*pairs)[0].links == translator.align(*pairs, aligner="posterior")[0].links
    with pytest.raises(ValueError, match="threshold is a weight, above 0 and at most 1, got 1.1"):
        translator.align(*pairs, threshold=1.1)


def test_translate_reads_the_standard_input(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{SENTENCE}\n\nalte katze\n".encode())))
    lines = output_of(["translate", trained.run], capsys).splitlines()
    expected = probattn.load(trained.run).translate([SENTENCE])[0][0].text
    assert lines[:2] == [expected, ""] and len(lines) == 3


def test_translate_says_when_it_does_not_know_the_letters(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, unknown = tmp_path / "known.txt", tmp_path / "unknown.txt"
    known.write_text(f"{SENTENCE}\n", encoding="utf-8")
    unknown.write_text(f"{SENTENCE} жёлтый кот\n" * 200, encoding="utf-8")
    cli.main(["translate", str(trained.run), "--input", str(known)])
    assert "unknown to the model" not in capsys.readouterr().err
    cli.main(["translate", str(trained.run), "--input", str(unknown), "--beam_size", "1"])
    words = 128 * (len(SENTENCE.split()) + 2)
    assert capsys.readouterr().err.count(f"256 of {words} words of these sentences are unknown to the model") == 1


def test_translate_gives_lists_scores_and_alignments(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.de"
    text.write_text(f"{SENTENCE}\nder rote hund mag\n")
    words: list[str | Path] = ["translate", trained.run, "--input", text]
    listed = output_of([*words, "--num_best", "3", "--scores", "--alignments"], capsys).splitlines()
    assert [line.split(" ||| ")[0] for line in listed] == ["0"] * 3 + ["1"] * 3
    _, translation, scores, links = listed[0].split(" ||| ")
    ranked = [float(line.split(" ||| ")[2].split()[0]) for line in listed[:3]]
    assert ranked == sorted(ranked, reverse=True)
    assert float(scores.split()[1]) < 0.0  # the log-probability
    assert re.fullmatch(r"\d+-\d+( \d+-\d+)*", links)
    words += ["--beam_size", "3"]
    record = json.loads(output_of([*words, "--format", "json"], capsys).splitlines()[0])
    assert record["translation"] == translation and record["alignment"] == links
    assert output_of([*words, "--output", tmp_path / "text.en"], capsys) == ""
    assert (tmp_path / "text.en").read_text().splitlines()[0] == translation
    soft = output_of([*words, "--test_with", "soft", "--scores"], capsys).splitlines()[0]
    assert soft.split(" ||| ")[2] != scores


def test_translate_draws(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.de"
    text.write_text(f"{SENTENCE}\n\nder rote hund mag\n")
    words: list[str | Path] = ["translate", trained.run, "--input", text, "--num_samples", "8", "--temperature", "3"]
    drawn, again, other = (
        output_of([*words, "--scores", "--seed", seed], capsys).splitlines() for seed in ("1", "1", "2")
    )
    assert drawn == again and drawn != other
    assert [line.split(" ||| ")[0] for line in drawn] == ["0"] * 8 + ["1"] + ["2"] * 8
    assert len({line.split(" ||| ")[1] for line in drawn[:8]}) > 1
    translator = probattn.load(trained.run)
    settings = SamplingSettings(num_samples=8, temperature=3.0, seed=1)
    last = translator.sample(["der rote hund mag"], settings, first=2)[0]  # the same, whatever is drawn with it
    assert [one.text for one in last] == [line.split(" ||| ")[1] for line in drawn[9:]]


def test_eval_can_skip_empty_pairs(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "a.de", tmp_path / "a.en"
    source.write_text(f"{SENTENCE}\n\n{SENTENCE}\n")
    target.write_text("the dog sees\nthe dog\nthe dog sees\n")
    words = ["eval", trained.run, "--src", source, "--tgt", target]
    with pytest.raises(SystemExit, match=r"line 2: empty line; .* of a command --on_empty skip"):
        cli.main([str(word) for word in words])
    found = json.loads(output_of([*words, "--on_empty", "skip"], capsys))
    assert found["results"]["own"]["tokens"] > 0
    with pytest.raises(SystemExit, match="--gold has a line for every pair"):
        cli.main([str(word) for word in [*words, "--gold", source, "--on_long", "skip"]])
    with pytest.raises(SystemExit, match="are about pairs of --src and --tgt, which are not given"):
        cli.main(["eval", str(trained.run), "--on_empty", "skip"])


def test_align_keeps_the_lines_and_measures(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.de").write_text("der hund sieht\n\nder hund mag\n")
    (tmp_path / "a.en").write_text("the sees dog\nx\nthe likes dog\n")
    words: list[str | Path] = ["align", trained.run, "--src", tmp_path / "a.de", "--tgt", tmp_path / "a.en"]
    lines = output_of(words, capsys).splitlines()
    assert len(lines) == 3 and lines[1] == "" and lines[0] and lines[2]
    records = [json.loads(line) for line in output_of([*words, "--format", "json"], capsys).splitlines()]
    assert [record["alignment"] for record in records] == lines
    assert len(records[0]["weights"]) == 3 and sum(records[0]["weights"][0]) == pytest.approx(1.0, abs=1e-3)
    assert records[1]["weights"] == [] and records[1]["target"] == ["x"]
    (tmp_path / "a.gold").write_text("\n".join(lines) + "\n")  # its own links, so nothing is wrong
    cli.main([str(word) for word in [*words, "--gold", tmp_path / "a.gold"]])
    assert "alignment error rate: 0.0000" in capsys.readouterr().err
    (tmp_path / "a.gold").write_text("\n\n2-0\n")
    cli.main([str(word) for word in [*words, "--gold", tmp_path / "a.gold", "--threshold", "1"]])
    assert "alignment error rate: 1.0000" in capsys.readouterr().err


def test_eval_says_when_the_own_text_has_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write_toy_language(tmp_path)
    text = {"corpus.name": "files", "corpus.src": source, "corpus.tgt": target}
    words = [f"{name}={value}" for name, value in {**text, **SMALL, "epochs": 1}.items()]
    cli.main(["train", "translation/soft", *words, "--output", str(tmp_path / "run")])
    capsys.readouterr()
    cli.main(["eval", str(tmp_path / "run")])
    assert "has changed" not in capsys.readouterr().err
    for file in (source, target):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-10]))
    cli.main(["eval", str(tmp_path / "run" / "model")])
    assert "was trained on has changed since, so that lines which are held out now may be" in capsys.readouterr().err


def test_eval_on_the_own_text_and_under_other_ways(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = json.loads(output_of(["eval", trained.run], capsys))["results"]["own"]
    stored = json.loads((trained.run / "result.json").read_text())["metrics"]
    for name in ("ppl", "elbo_ppl", "bleu", "chrf", "entropy", "posterior_entropy"):
        assert own[name] == pytest.approx(stored[name]), name
    assert stored["ppl"] <= stored["iw_ppl"] * 1.001  # 20 draws come close from above
    assert stored["iw_ppl"] <= stored["elbo_ppl"] * 1.001
    words: list[str | Path] = ["eval", trained.run, "--test_with", "soft", "exact", "kmax:1"]
    ways = json.loads(output_of([*words, "--output", tmp_path / "ways.json"], capsys))["results"]
    assert list(ways) == ["soft", "exact", "kmax:1"]
    assert ways["exact"]["ppl"] == pytest.approx(own["ppl"])
    assert ways["kmax:1"]["ppl"] != pytest.approx(own["ppl"], rel=1e-6)
    assert json.loads((tmp_path / "ways.json").read_text())["results"] == ways
    files = json.loads(output_of(["eval", trained.run, "--src", trained.source, "--tgt", trained.target], capsys))
    assert files["results"]["own"]["tokens"] > own["tokens"]


def test_empty_lines_stay_in_every_format(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.de"
    text.write_text(f"\n{SENTENCE}\n")
    words: list[str | Path] = ["translate", trained.run, "--input", text]
    assert output_of([*words, "--alignments"], capsys).splitlines()[0] == "0 |||  ||| "
    record = json.loads(output_of([*words, "--format", "json"], capsys).splitlines()[0])
    assert record == {"line": 0, "translation": "", "score": 0.0, "log_prob": 0.0, "alignment": ""}


def test_pipes_and_links_are_written_through(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, target, link, pipe = (tmp_path / name for name in ("text.de", "text.en", "link.en", "pipe"))
    text.write_text(f"{SENTENCE}\n")
    link.symlink_to(target)
    output_of(["translate", trained.run, "--input", text, "--output", link], capsys)
    assert link.is_symlink() and target.read_text().strip()
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_text)
        output_of(["translate", trained.run, "--input", text, "--output", pipe], capsys)
        assert read.result(timeout=30) == target.read_text()
    assert pipe.is_fifo()


def test_python_wants_lists(trained: Trained) -> None:
    translator = probattn.load(trained.run)
    with pytest.raises(TypeError, match="put it into a list"):
        translator.translate(SENTENCE)
    with pytest.raises(TypeError, match="put it into a list"):
        translator.align(SENTENCE, "the dog sees")
    with pytest.raises(ValueError, match="there are prior, posterior, exact"):
        translator.align([SENTENCE], ["the dog"], aligner="exakt")


def test_settings_of_a_row_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output_of(["ls", "translation/soft", "--scale", "multi30k"], capsys)
    assert "embedding_dim: 192" in shown and "class_path: probattn.Mean" in shown


def test_data_lists_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "always there" in output_of(["data"], capsys)
    written = output_of(["data", "generated", "--size", "20", "--output", tmp_path], capsys).split()
    assert {Path(path).name for path in written} >= {"train.de", "train.en", "train.align", "test.de"}
    assert len((tmp_path / "train.de").read_text().splitlines()) == 20


def test_wrong_models_are_named(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no model folder: it has no config.json"):
        probattn.load(tmp_path)
    for name, damage, message in [
        ("model.safetensors", lambda content: content[:100], "may be truncated"),
        ("config.json", lambda content: content[:50], "or was cut off"),
        ("config.json", lambda content: content.replace(b'"translation"', b'"cooking"', 1), "'cooking', which this"),
        ("config.json", lambda content: content.replace(b'"embedding_dim": 16', b'"embedding_dim": 8'), "does not fit"),
        ("outputs.json", lambda content: content[:20], "no list of output types"),
        ("tokenizer.json", lambda content: content[:200], "is no tokenizer file"),
        (
            "tokenizer.json",
            lambda content: train_bpe(["ein Haus"], vocabulary_size=20).to_bytes(),
            "another vocabulary",
        ),
    ]:
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(trained.run / "model", folder)
        content = (folder / name).read_bytes()
        assert damage(content) != content, name
        (folder / name).write_bytes(damage(content))
        with pytest.raises(CheckpointError, match=message):
            probattn.load(folder)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["translate", "nowhere"], "nowhere does not exist"),
        (["translate", "one.de"], "one.de is a file"),
        (["translate", "MODEL", "--input", "absent.de"], "absent.de does not exist"),
        (["translate", "MODEL", "--input", "latin.de"], "latin.de, line 2"),
        (["translate", "MODEL", "--input", "empty.de"], "empty.de is empty"),
        (["translate", "MODEL", "--input", "long.de"], "line 1 has 10,000 words"),
        (["translate", "MODEL", "--input", "one.de", "--num_best", "0"], "--num_best must be at least 1"),
        (["translate", "MODEL", "--input", "one.de", "--num_best", "4", "--beam_size", "2"], "at most 2 translations"),
        (["translate", "MODEL", "--input", "one.de", "--test_with", "kmax"], "expected soft, exact or kmax:K"),
        (["translate", "MODEL", "--input", "one.de", "--top_p", "0.9"], "--top_p goes with --num_samples"),
        (["translate", "MODEL", "--num_samples", "2", "--num_best", "2"], "--num_best is for the search"),
        (["translate", "MODEL", "--input", "one.de", "--num_samples", "0"], "num_samples must be at least 1"),
        (["align", "MODEL", "--src", "one.de", "--tgt", "two.en"], "has 1 lines and"),
        (["eval", "MODEL", "--src", "one.de"], "needs both --src and --tgt"),
        (["eval", "MODEL", "--gold_set", "de-en", "--test_with", "soft"], "leave out --test_with"),
        (
            ["align", "MODEL", "--src", "one.de", "--tgt", "one.de", "--threshold", "2"],
            "--threshold is a weight, above 0",
        ),
        (["data", "moon"], "there is no corpus 'moon'. There are: generated, multi30k"),
        (["data", "multi3k"], "Did you mean 'multi30k'?"),
        (["data", "multi30k", "--show", "-1"], "--show must be at least 0, got -1"),
        (["data", "generated", "--size", "0", "--output", "x"], "--size must be at least 1, got 0"),
        (["trian", "translation/soft"], "there is no command 'trian'. Did you mean 'train'?"),
        (["ls", "transltion"], "there is no recipe 'transltion'. Did you mean 'translation'?"),
        (["ls", "translation", "--scale", "demo"], "--scale goes with RECIPE/ROW"),
        (["data", "generated"], "--output FOLDER"),
    ],
)
def test_wrong_words_are_named(trained: Trained, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "latin.de").write_bytes("hund\nmüde\n".encode("latin-1"))
    (tmp_path / "empty.de").write_bytes(b"")
    (tmp_path / "one.de").write_text("der hund\n")
    (tmp_path / "long.de").write_text("hund " * 10_000 + "\n")
    (tmp_path / "two.en").write_text("the dog\nthe cat\n")
    places = {"MODEL": str(trained.run)}
    full = [places.get(word, str(tmp_path / word) if re.search(r"\.(de|en)$", word) else word) for word in words]
    with pytest.raises(SystemExit, match=re.escape(message)) as caught:
        cli.main(full)
    assert str(caught.value).startswith("probattn: ")

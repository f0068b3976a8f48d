"""Captioning: every row trains, rows that break are reported, models open again, three commands make a gallery."""

import json
import math
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import probattn
from probattn.cli import features as features_command
from probattn.cli import main
from probattn.core import Evaluation, Mean
from probattn.data.extract_features import Backbone
from probattn.data.generated_scenes import scenes
from probattn.data.image_features import ImageFeatures, write_features
from probattn.recipes import captioning, captioning_eval, captioning_task
from probattn.recipes.captioning import RECIPE
from probattn.recipes.captioning_data import CorpusSettings, load_corpus
from probattn.recipes.captioning_eval import attention_metrics
from probattn.recipes.captioning_settings import SITE, CaptioningSettings
from probattn.recipes.captioning_tables import failures, score_table
from probattn.recipes.captioning_task import CaptioningTask
from probattn.recipes.captioning_writer import CaptionWriter
from probattn.recipes.recipe import Run
from probattn.recipes.results import RowResult
from probattn.training import CollapseWarning, TrainingFailure

TINY: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 16,
    "network": "{embedding_dim: 8, region_dim: 12, hidden_dim: 16, attention_dim: 8, dropout: 0.1}",
    "corpus.train_size": 24,
    "corpus.test_size": 6,
    "decoding": "{beam_size: 2, max_length: 8, num_samples: 2}",
    "trainer.tensorboard": False,
}


def loaded(row: str, **changes: Any) -> tuple[CaptioningSettings, dict[str, Any]]:
    settings, plain = RECIPE.load(RECIPE.configs(row, "scenes"), {**TINY, **changes})
    assert isinstance(settings, CaptioningSettings)
    return settings, plain


def trained(row: str, folder: Path, **changes: Any) -> RowResult:
    settings, plain = loaded(row, **changes)
    return RECIPE.train(Run(settings, plain, folder, show_progress=False))


@pytest.mark.parametrize("row", RECIPE.rows)
def test_every_row_takes_a_step_and_has_gradients(row: str) -> None:
    settings, plain = loaded(row)
    task = CaptioningTask(settings, load_corpus(settings.corpus), plain=plain)
    output = task.step(task.batches(0)[0], settings.stage(), 5)
    output.loss.backward()  # type: ignore[no-untyped-call]
    missing = [name for name, parameter in task.model.named_parameters() if parameter.grad is None]
    assert not missing
    assert math.isfinite(float(output.loss.detach()))
    assert set(output.parts) == ({"likelihood", "kl"} if settings.has_kl else set())


@pytest.mark.parametrize("row", ["hard", "wc"])
def test_a_row_is_trained_evaluated_and_opened_again(
    row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if row == "hard":
        for module in (captioning, captioning_eval):
            monkeypatch.setattr(module, "has_caption_scores", lambda: False)
    result = trained(row, tmp_path)
    is_scored = captioning.has_caption_scores()
    assert ("greedy_cider" in result.metrics) == is_scored == ("left_out" not in result.facts)
    assert is_scored == ("CIDEr and ROUGE-L are left out" not in capsys.readouterr().err)
    wanted = {"greedy_bleu4", "beam_bleu1", "ppl", "drawn_ppl", "entropy", "dist2", "attention_mass", "attention_hits"}
    assert wanted <= result.metrics.keys()
    assert ("kl_per_word" in result.metrics) == (row == "wc")
    assert all(math.isfinite(value) for value in result.metrics.values())
    writer = probattn.load(tmp_path)
    assert isinstance(writer, CaptionWriter)
    settings, _ = loaded(row)
    test = load_corpus(settings.corpus).splits["test"]
    example = result.examples[0]
    assert writer.caption(test.features, [example["picture"]])[0][0].text == example["caption"]
    words = writer.attention(test.features, example["picture"], example["caption"], num_draws=20)
    with pytest.raises(ValueError, match="with words, got ''"):
        writer.attention(test.features, example["picture"], "")
    assert [one.word for one in words] == example["words"]
    assert float(words[0].posterior.sum()) == pytest.approx(1.0, abs=1e-5)
    assert (words[0].prior is not None) == (row == "wc")
    spread = words[0].posterior_spread
    assert spread is not None and bool((spread > 0).any())
    drawn = writer.sample(test.features, [example["picture"]], seed=1)
    assert [one.text for one in drawn[0]] == [
        one.text for one in writer.sample(test.features, [example["picture"]], seed=1)[0]
    ]
    narrow = ImageFeatures(("x",), torch.ones(1, 25, 3), grid=(5, 5))
    with pytest.raises(ValueError, match="has 3 features a region, but the network reads 96"):
        writer.caption(narrow)
    page = RECIPE.write_report("captioning", [result, replace(result, seed=1)], tmp_path / "report")
    assert row in page
    html = (tmp_path / "report" / "report.html").read_text()
    assert example["caption"] in html
    assert f"Attention of {row}" in html


def test_a_run_that_breaks_is_a_result_where_the_row_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(self: CaptioningTask, *arguments: Any) -> Any:
        terms = original(self, *arguments)
        return replace(terms, loss=terms.loss * float("nan"))

    original = CaptioningTask._terms
    monkeypatch.setattr(CaptioningTask, "_terms", poisoned)
    result = trained("sampled-kl", tmp_path / "report")
    assert "the loss is nan" in result.facts["failed"]
    assert (tmp_path / "report" / "failure" / "rank-0.json").exists()
    assert failures([result]) == [f"sampled-kl, seed 0: {result.facts['failed']}"]
    other = replace(
        result, row="soft", facts={**result.facts, "epochs": 1, "updates": 2}, metrics={"greedy_bleu1": 1.0}
    )
    other.facts.pop("failed")  # type: ignore[attr-defined]
    _, lines = score_table([other, result])
    assert lines[1][:2] == ["sampled-kl", "training broke"]
    text = RECIPE.write_report("captioning", [other, result], tmp_path / "page")
    assert "sampled-kl, seed 0: the loss is nan" in text
    with pytest.raises(TrainingFailure, match="the loss is nan"):
        trained("wc", tmp_path / "raise")


def test_weights_that_are_not_constrained_may_be_negative() -> None:
    settings, plain = loaded("gaussian-weights")
    task = CaptioningTask(settings, load_corpus(settings.corpus), plain=plain)
    test = task.corpus.splits["test"].encoded.batch([0, 1])
    evaluation = task.model(
        **{name: value for name, value in vars(test).items()}, estimators={SITE: settings.estimator}
    )
    value = evaluation.latents[0].draw.value
    assert bool((value < 0).any())
    assert not torch.allclose(value.sum(dim=-1), torch.ones(()))
    assert bool((evaluation.latents[0].kl > 0).all())


def test_gold_attention_belongs_to_the_words() -> None:
    corpus = load_corpus(CorpusSettings(train_size=4, test_size=3))
    split = corpus.splits["test"]
    assert split.gold is not None
    assert [len(gold) for gold in split.gold] == [len(ids) for ids in split.encoded.captions]
    settings, plain = loaded("soft")
    model = CaptioningTask(settings, corpus, plain=plain).model.eval()
    found = attention_metrics(model, split)
    assert 0.0 < found["attention_mass"] < 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "scenes", "features": Path("x")}, "go with corpus.name=files"),
        ({"name": "scenes", "max_words": 0}, "corpus.max_words must be at least 1, got 0"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CorpusSettings(**changes)
    with pytest.raises(ValueError, match="needs both corpus.features=FILE .* and corpus.captions=FILE"):
        load_corpus(CorpusSettings(name="files", features=Path("x")))


def test_files_are_divided_and_missing_features_are_named(tmp_path: Path) -> None:
    names = tuple(f"{number}.jpg" for number in range(12))
    write_features(tmp_path / "f.npz", ImageFeatures(names[:-1], torch.randn(11, 4, 3), grid=(2, 2)))
    lines = [f"{name}\ta dog number {name[:-4]}" for name in names]
    (tmp_path / "c.txt").write_text("\n".join(lines[:-1]) + "\n")
    settings = CorpusSettings("files", None, 2, tmp_path / "f.npz", tmp_path / "c.txt")
    splits = load_corpus(settings).splits
    assert [len(split.images) for split in splits.values()] == [7, 2, 2]
    assert len({name for split in splits.values() for name in split.images.names}) == 11
    (tmp_path / "more.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(KeyError, match="no features of 1 picture.*11.jpg"):
        load_corpus(replace(settings, captions=tmp_path / "more.txt"))
    with pytest.raises(ValueError, match="11 pictures cannot give 6 each"):
        load_corpus(replace(settings, test_size=6))


class Cells(nn.Module):
    """Mean and spread of the colours of each cell of a 5 x 5 grid."""

    def forward(self, pictures: Tensor) -> Tensor:
        pool = nn.functional.adaptive_avg_pool2d
        mean = pool(pictures, 5)
        return torch.cat([mean, (pool(pictures.square(), 5) - mean.square()).clamp(min=0.0).sqrt()], dim=1)


@pytest.mark.recipe
def test_three_commands_from_photographs_to_a_gallery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    made = scenes("train", 30)
    photos = tmp_path / "photos"
    photos.mkdir()
    lines = []
    for number in range(len(made)):
        name = f"{number:02d}.jpg" if number else "00[a].jpg"  # brackets are no pattern
        image.fromarray(np.asarray(made.picture(number))).save(photos / name)
        lines += [f"{name}\t{' '.join(one.words)}" for one in made.captions if one.scene == number]
    (photos / "broken.jpg").write_bytes(b"\xff\xd8 not a picture")
    lines += ["broken.jpg\ta caption of what cannot be read", "01.jpg\t..."]
    captions = tmp_path / "captions.txt"
    captions.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(features_command, "efficientnet_lite0", lambda: Backbone("cells", Cells(), size=80))

    main(["features", str(photos), str(tmp_path / "features.npz")])
    said = capsys.readouterr()
    assert "30 pictures, 25 regions of 6 features; 1 left out" in said.out
    assert "left out broken.jpg" in said.err
    files = [f"corpus.features={tmp_path / 'features.npz'}", f"corpus.captions={captions}"]
    tiny = [f"{name}={value}" for name, value in TINY.items() if not name.startswith("corpus")]
    run = tmp_path / "run"
    main(["train", "captioning/soft", "--scale", "files", *files, *tiny, "--output", str(run)])
    assert "greedy_bleu4" in json.loads((run / "result.json").read_text())["metrics"]
    said = capsys.readouterr()
    assert "Left out: 1 picture(s) that could not be read, 1 caption(s) without a word." in said.err
    assert "updates, of which the first 100 warm up" in said.err
    page = tmp_path / "gallery.html"
    common = ["--features", str(tmp_path / "features.npz"), "--images", str(photos), "--output", str(page)]
    main(["gallery", str(run), *common, "--names", "00[a].jpg", "01.jpg", "02.jpg", "--captions", str(captions)])
    assert "3 pictures; 0 without their file" in capsys.readouterr().out
    text = page.read_text()
    assert text.count("data:image/jpeg;base64,") == 3
    assert "People: " in text
    assert "its spread" not in text  # soft attention draws nothing

    main(["gallery", str(run), *common, "--count", "4"])
    held_out = probattn.load(run).held_out
    shown = re.findall(r"<p>([^<]*\.jpg)(, held out of training)?</p>", page.read_text())
    assert len(held_out) == 3 and {name for name, remark in shown if remark} == held_out
    assert [bool(remark) for _, remark in shown] == [True, True, True, False]

    with pytest.raises(SystemExit, match="^probattn: features.npz has no features of 1 picture"):
        main(["gallery", str(run), *common, "--names", "99.jpg"])
    with pytest.raises(SystemExit, match="is not a folder"):
        main(["gallery", str(run), *common[:2], "--images", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="--beam_size must be at least 1, got 0"):
        main(["gallery", str(run), *common, "--beam_size", "0"])
    with pytest.raises(SystemExit, match="is a folder; name a file in it"):
        main(["gallery", str(run), *common[:2], "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match="written to an .npz file"):
        main(["features", str(photos), str(tmp_path / "features.txt")])


@pytest.mark.data
def test_flickr8k_is_ready_for_training(data_dir: Path) -> None:
    settings, plain = RECIPE.load(RECIPE.configs("soft", "flickr8k"), {"corpus.train_size": 40, "corpus.test_size": 10})
    corpus = load_corpus(settings.corpus)
    task = CaptioningTask(settings, corpus, plain=plain)
    assert len(corpus.splits["train"].encoded) == 200
    found = task.step(task.batches(0)[0], settings.stage(), 0)
    assert math.isfinite(float(found.loss.detach()))
    assert isinstance(settings.estimator, Mean)


def test_sample_and_baseline_have_the_same_dropout_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, plain = loaded("hard")
    task = CaptioningTask(settings, load_corpus(settings.corpus), plain=plain)
    states: list[tuple[Tensor, Tensor]] = []

    def watched(*arguments: Any, **options: Any) -> Evaluation:
        before = torch.get_rng_state()
        found = captioning_eval.run(*arguments, **options)
        states.append((before, torch.get_rng_state()))
        return found

    monkeypatch.setattr(captioning_task, "run", watched)
    task.model.train()
    task.step(task.batches(0)[0], settings.stage(), 0)
    (before_hard, after_hard), (before_soft, after_soft) = states
    assert torch.equal(before_hard, before_soft) and torch.equal(after_hard, after_soft)  # both draw alike
    assert torch.equal(torch.get_rng_state(), after_hard) and not torch.equal(before_hard, after_hard)


def test_features_are_scaled_by_the_training_pictures_alone(tmp_path: Path) -> None:
    names = tuple(f"{number}.jpg" for number in range(12))
    values = torch.randn(12, 4, 3, generator=torch.Generator().manual_seed(0))
    (tmp_path / "c.txt").write_text("".join(f"{name}\ta dog\n" for name in names))
    scales = []
    for factor in (1.0, 100.0):
        file = tmp_path / f"{factor:g}.npz"
        write_features(file, ImageFeatures(names, values, grid=(2, 2)))
        settings = CorpusSettings("files", None, 2, file, tmp_path / "c.txt")
        corpus = load_corpus(settings)
        scales.append(corpus.feature_scale)
        values = values.clone()
        values[list(corpus.splits["test"].rows)] *= 100.0
    assert scales[0] == pytest.approx(scales[1])


@pytest.mark.parametrize(("metric", "mode"), [("ppl", "min"), ("bleu4", "max")])
def test_the_metric_that_selects_knows_its_direction(metric: str, mode: str, tmp_path: Path) -> None:
    seen: list[str] = []

    def watched(task: Any, run: Run, *, settings: Any, **options: Any) -> Any:
        seen.append(settings.select_mode)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(captioning, "train_to_end", watched)
        trained("soft", tmp_path, **{"trainer.select_by": metric})
    assert seen == [mode]


def test_weights_that_fell_onto_their_prior_are_warned_of() -> None:
    with pytest.warns(CollapseWarning, match="site 'weights' has collapsed"):
        captioning.warn_if_collapsed({"greedy_words": 10.0, "kl_per_word": 0.0027})  # Gaussian weights on Flickr8k
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        captioning.warn_if_collapsed({"greedy_words": 10.0, "kl_per_word": 0.5})
        captioning.warn_if_collapsed({"greedy_words": 10.0})

"""Studies of text models: cells are trained once, tables and verdicts say what the records say."""

import inspect
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probattn.recipes import text_augmentation, text_sensitivity
from probattn.recipes.results import RowResult
from probattn.recipes.text_augmentation_study import STUDIES, Study
from probattn.recipes.text_augmentation_tables import augmentation_table, count_cut, duels, verdicts
from probattn.recipes.text_cells import find_cell, fingerprint, store_cell
from probattn.recipes.text_claims import claims, fluency_claims, sensitivity_claims
from probattn.recipes.text_drawing import Law
from probattn.recipes.text_pages import _dynamics_panels, augmentation_page, comparison_page, sensitivity_page
from probattn.recipes.text_published import PUBLISHED
from probattn.recipes.text_report import model_table, scratch_table, with_position_kl
from probattn.recipes.text_sensitivity import Axis
from probattn.recipes.text_settings import engine_stages
from probattn.recipes.text_vae import RECIPE
from probattn.recipes.text_writer import TextWriter

pytest.importorskip("matplotlib")

TINY = {
    "updates": 4,
    "batch_size": 8,
    "network.embedding_dim": 8,
    "network.hidden_dim": 8,
    "network.attention_dim": 8,
    "network.prior_channels": 8,
    "network.prior_layers": 1,
    "corpus.train_size": 60,
    "corpus.test_size": 10,
    "trainer.validate_every": 2,
}


def test_sensitivity_trains_each_value_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*values: float) -> str:
        text_sensitivity.main(
            "generated",
            output=tmp_path / "out",
            work=tmp_path / "work",
            axes=["codes"],
            values=values,
            overrides=TINY,
        )
        return capsys.readouterr().out

    assert "codes-8-seed0: Rec" in run(8)
    again = run(8, 16)
    assert "codes-8-seed0: Rec" not in again and "codes-16-seed0: Rec" in again
    records = [json.loads(path.read_text()) for path in sorted((tmp_path / "out" / "generated").glob("*.json"))]
    assert [record["value"] for record in records] == [16, 8]
    assert all(0 < record["metrics"]["codes_used"] <= record["value"] for record in records)
    assert len(records[0]["curves"]["kl"]) >= 2
    page, plots = sensitivity_page(records, [])
    assert list(plots) == ["text_sensitivity"] and "| K       |     8 |" in page and "No curves" in page


def test_two_processes_share_the_values_and_the_own_one_is_trained_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"codes": Axis("K", (8, 512), 512), "width": Axis("code dimension", (4, 32), 32)}
    monkeypatch.setattr(text_sensitivity, "AXES", few)
    folders = {"output": tmp_path / "out", "work": tmp_path / "work"}
    tiny = {**TINY, "updates": 3}
    text_sensitivity.main("generated", **folders, axes=["codes", "width"], overrides=tiny, workers=2, seeds=[1])
    names = {path.stem for path in (tmp_path / "out" / "generated").glob("*.json")}
    assert names == {"own-seed1", "codes-8-seed1", "width-4-seed1"}
    assert capfd.readouterr().out.count("own-seed1: Rec") == 1
    wrong = {**tiny, "network.hidden_dim": -1}
    with pytest.raises(RuntimeError, match="2 of 2 cells failed; the same command runs them again"):
        text_sensitivity.main("generated", **folders, axes=["codes"], values=[4, 8], overrides=wrong, workers=2)


def test_commitment_is_changed_in_the_stage_of_the_codes_alone() -> None:
    for value, start in ((0.05, 0.05), (20.0, 0.1)):
        stages = json.loads(text_sensitivity.changes("captions", "beta", value)["stages"])
        assert [stage["name"] for stage in stages] == ["warm-up", "posterior", "prior"]
        assert (stages[1]["commitment"]["start"], stages[1]["commitment"]["end"]) == (start, value)
        assert stages[2]["commitment"]["end"] == 0.0 and stages[2]["trainable"] == ["latent.site.prior.*"]
    changed = text_sensitivity.changes("captions", "width", 8)
    assert (changed["network.latent_dim"], changed["latent.num_codes"]) == (8, 512)
    assert text_sensitivity.changes("captions", "codes", 128)["latent.num_codes"] == 128
    records = [{"axis": "own", "value": 512, "seed": 0}, {"axis": "beta", "value": 1, "seed": 0}]
    assert [one["value"] for one in text_sensitivity.of_axis(records, "beta")] == [1, 5]


def test_sensitivity_has_time_to_learn_to_copy_and_few_validations(tmp_path: Path) -> None:
    """On any axis the own value is the same cell."""
    own = [text_sensitivity.changes("captions", name, axis.own) for name, axis in text_sensitivity.AXES.items()]
    assert own[0] == own[1] == own[2]
    overrides = {**text_sensitivity.SCALES["captions"], **own[0]}
    settings, _ = RECIPE.load(RECIPE.configs(text_sensitivity.ROW, "captions"), overrides)
    stages = engine_stages(settings)
    assert [stage.updates for stage in stages] == [1200, 1200, 600]
    assert settings.trainer.validate_every == 3000 and [stage.validate_every for stage in stages] == [None, 600, None]
    assert inspect.signature(text_sensitivity.main).parameters["scale"].default in text_sensitivity.SCALES


def test_sensitivity_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="there are the axes"):
        text_sensitivity.main("captions", output=tmp_path, axes=["colour"])
    with pytest.raises(SystemExit, match="one axis"):
        text_sensitivity.main("captions", output=tmp_path, values=[1.0])
    with pytest.raises(SystemExit, match=r"the scales \['captions', 'generated'\], got \[\] and 'ptb'"):
        text_sensitivity.main("ptb", output=tmp_path)


def test_augmentation_trains_each_cell_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = {"embedding_dim": 8, "hidden_dim": 8, "latent_dim": 4, "attention_dim": 8, "prior_channels": 8}
    tiny = Study(
        (30,), (0.5, 1.0), 300, 20, updates=6, davam_updates=20, all_updates=20, validate_every=2, network=network
    )
    monkeypatch.setitem(STUDIES, "generated", tiny)
    folders = {"output": tmp_path / "out", "work": tmp_path / "work"}
    laws: list[Law] = []
    samples = TextWriter.samples

    def spy(self: TextWriter, count: int, law: Law, **more: Any) -> Any:
        laws.append(law)
        return samples(self, count, law, **more)

    monkeypatch.setattr(TextWriter, "samples", spy)
    text_augmentation.main("generated", **folders)
    # four generators, once each; as the real text they may have the unknown word
    assert [(law.word_temperature, law.has_unknown) for law in laws] == [(1.0, True)] * 4
    folder = tmp_path / "out" / "generated"
    records = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert len(records) == 1 + 5 * 2
    none, real = records["30-none-0-seed0.json"], records["30-real-1-seed0.json"]
    assert (none["sentences"], real["sentences"]) == (30, 60) and none["updates"] == real["updates"] == 6
    assert none["best_update"] == 6 and none["writer"] == real["writer"] == {}
    writers = [records[f"30-{name}-1-seed0.json"]["writer"]["updates"] for name in ("lstm-small", "davam-small")]
    assert writers == [6, 20]
    assert records["30-davam-small-0.5-seed0.json"]["examples"] == records["30-davam-small-1-seed0.json"]["examples"]
    assert all(record["test_ppl"] > 1.0 for record in records.values())
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    text_augmentation.main("generated", **folders)
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    with pytest.raises(SystemExit, match=r"has the sizes \[30\], got \[30, 45\]"):
        text_augmentation.main("generated", sizes=[30, 45], **folders)
    (made,) = (tmp_path / "work" / "generated").glob("davam-small-30-seed0-*.txt")
    made.write_text("".join(made.read_text().splitlines(keepends=True)[:9]))
    (folder / "30-davam-small-1-seed0.json").unlink()
    with pytest.raises(ValueError, match="has 9 lines where 30 were generated; remove it"):
        text_augmentation.main("generated", generators=["davam-small"], **folders)
    page, plots = augmentation_page(list(records.values()))
    written = {path.name.split("-seed")[0] for path in (tmp_path / "work" / "generated").glob("*.txt")}
    assert written == {"davam-all-all", "davam-small-30", "lstm-all-all", "lstm-small-30"}
    assert "davam-all" in page and "one seed" in page and list(plots) == ["text_augmentation"]


def test_a_sentence_copied_without_its_rare_word_is_not_new(tmp_path: Path) -> None:
    bench = text_augmentation.Bench("generated", STUDIES["generated"], work=tmp_path, seed=0)
    tokenizer = bench.whole.tokenizer
    known = ["the man sees xyzzy .", "a dog sleeps ."]
    assert tokenizer.decode(tokenizer.encode(known[0])) != known[0]  # as a generator writes it
    written = [tokenizer.decode(tokenizer.encode(known[0])), "a dog sleeps .", "two girls sleep .", "a dog ."]
    assert bench._share_known(written, known) == 0.5
    assert bench._share_known([], known) == 0.0


def cell(generator: str, times: float, seed: int, test: float, valid: float) -> dict[str, Any]:
    about = {"size": 1000, "generator": generator, "times": times, "seed": seed, "new": 0.9}
    return {**about, "test_ppl": test, "valid_ppl": valid, "updates": 50 + seed}


def test_verdicts_choose_on_validation_and_pair_by_seed() -> None:
    records = [cell("none", 0.0, seed, 100.0 + seed, 100.0) for seed in range(3)]
    records += [cell("good", 1.0, seed, 90.0 + seed, 80.0) for seed in range(3)]
    records += [cell("good", 2.0, seed, 10.0, 85.0) for seed in range(3)]  # better on test, worse on validation
    records += [cell("noisy", 1.0, seed, (80.0, 125.0, 100.0)[seed], 90.0) for seed in range(3)]
    records += [cell("bad", 1.0, seed, 110.0 + seed, 90.0) for seed in range(3)]
    rows = {row[1]: row for row in verdicts(records)[1]}
    assert rows["good"][2] == "1" and rows["good"][-1] == "helps" and rows["good"][4].startswith("-9.")
    assert rows["noisy"][-1] == "no difference seen" and rows["bad"][-1] == "hurts"
    # 2.3 standard errors of two seeds and 2.9 of three are no difference at 5%
    few = [cell("none", 0.0, seed, 100.0, 100.0) for seed in range(3)]
    few += [cell("two", 1.0, seed, (88.0, 95.0)[seed], 90.0) for seed in range(2)]
    few += [cell("three", 1.0, seed, (88.0, 92.0, 97.0)[seed], 90.0) for seed in range(3)]
    assert {row[1]: row[-1] for row in verdicts(few)[1]} == {"two": "no difference seen", "three": "no difference seen"}
    header, lines = augmentation_table(records)
    assert header[3:5] == ["x 1", "x 2"] and lines[0][:5] == ["1,000", "bad", "101.0 ± 1.0", "111.0 ± 1.0", "-"]
    assert lines[0][-1] == "50 to 52, 50 to 52"


def test_cells_whose_updates_were_used_up_are_counted() -> None:
    for most, cut in ((53, 0), (52, 1), (50, 3)):
        assert (
            count_cut([{**cell("none", 0.0, seed, 1.0, 1.0), "study": {"updates": most}} for seed in range(3)]) == cut
        )


def test_verdicts_of_a_table_are_adjusted_for_their_number() -> None:
    records = [cell("none", 0.0, seed, 100.0, 100.0) for seed in range(3)]
    records += [cell("fair", 1.0, seed, (89.0, 91.0, 93.0)[seed], 90.0) for seed in range(3)]  # p = 0.016
    assert [row[-1] for row in verdicts(records)[1]] == ["helps"]
    for number in range(3):
        records += [cell(f"vain-{number}", 1.0, seed, (99.0, 101.0, 100.5)[seed], 90.0) for seed in range(3)]
    assert {row[-1] for row in verdicts(records)[1]} == {"no difference seen"}


def test_generators_with_codes_meet_the_language_model() -> None:
    """The comparison that the paper lacks: both at the times that validation chooses, paired by seed."""
    records = [cell("none", 0.0, seed, 100.0, 100.0) for seed in range(3)]
    records += [cell("lstm-small", 1.0, seed, 90.0 + seed, 80.0) for seed in range(3)]
    records += [cell("lstm-small", 4.0, seed, 50.0, 95.0) for seed in range(3)]  # better on test, worse on validation
    records += [cell("davam-small", 2.0, seed, (99.0, 101.0, 100.5)[seed], 90.0) for seed in range(3)]
    records += [cell("lstm-all", 1.0, seed, 70.0 + seed, 80.0) for seed in range(3)]
    records += [cell("davam-all", 0.5, seed, 60.0 + 0.5 * seed, 90.0) for seed in range(3)]
    records += [cell("real", 4.0, seed, 20.0 + 0.1 * seed, 20.0) for seed in range(3)]
    rows = {row[1]: row for row in duels(records)[1]}
    assert set(rows) == {"davam-small", "davam-all"}
    assert (
        rows["davam-small"][2:5] == ["2", "lstm-small", "1"]
        and rows["davam-all"][3] == "lstm-all"
        and rows["davam-small"][-1] == "worse"
    )
    assert rows["davam-small"][5].startswith("+10") and rows["davam-all"][5].startswith("-14")
    assert rows["davam-all"][-1] == "better"
    study = {"updates": 52, "vocabulary_size": 9}
    whole = [{**record, "study": study, "scale": "captions"} for record in records]
    page = augmentation_page(whole)[0]
    assert "saw the same text, each" in page and "or for 52 updates (7 of 21 cells)" in page
    without = [record for record in whole if not record["generator"].startswith("lstm")]
    assert duels(without)[1] == [] and "saw the same text, each" not in augmentation_page(without)[0]


def test_fluency_is_compared_length_by_length() -> None:
    def record(row: str, nats: Sequence[float], *, draws: bool = True, **law: float) -> dict[str, Any]:
        lengths = {str(10 * place): {"nats": one} for place, one in enumerate(nats, start=1)}
        return {"row": row, "seed": 0, "sampling": law, "draws_words": draws, "lengths": lengths}

    records = [record("davam-512", [6.0, 5.0]), record("gavam", [6.5, 5.5]), record("vae-attn", [6.5, 4.5])]
    records += [record("davam-512", [1.0, 1.0], temperature=0.5), {**record("lstm-lm", [9.0, 9.0]), "seed": 1}]
    records += [record("davam-512", [4.0, 3.0], draws=False, word_temperature=0.0)]
    records += [record("gavam", [3.0, 2.0], draws=False, word_temperature=0.0)]
    assert fluency_claims(records)[1] == [
        [
            "nats a token of davam-512 below vae-attn's at every length, words drawn",
            "10: 6.00, 6.50, 20: 5.00, 4.50",
            "does not hold",
        ],
        [
            "nats a token of davam-512 below gavam's at every length, words drawn",
            "10: 6.00, 6.50, 20: 5.00, 5.50",
            "holds",
        ],
        [
            "nats a token of davam-512 below gavam's at every length, most probable words",
            "10: 4.00, 3.00, 20: 3.00, 2.00",
            "does not hold",
        ],
    ]


def test_a_cell_with_other_settings_is_not_found(tmp_path: Path) -> None:
    mark = fingerprint({"a": 1})
    path = tmp_path / "cell.json"
    assert find_cell(path, mark) is None
    stored = store_cell(path, mark, {"value": 3})
    assert find_cell(path, mark) == stored and find_cell(path, fingerprint({"a": 2})) is None


FACTS = {"corpus": "ptb", "updates": 10}


def result(row: str, **metrics: float) -> RowResult:
    return RowResult(row=row, source="", seed=0, facts=dict(FACTS), metrics=metrics)


def test_position_kl_is_what_the_published_perplexity_adds() -> None:
    tokens, reconstruction, kl = 20.0, 60.0, 3.0
    metrics = {
        "reconstruction": reconstruction,
        "reconstruction_ppl": math.exp(reconstruction / tokens),
        "davam_ppl": math.exp((reconstruction + kl) / tokens),
    }
    assert with_position_kl(result("davam-512", **metrics)).metrics["kl_position"] == pytest.approx(kl)
    assert set(with_position_kl(result("davam-q", **metrics)).metrics) == set(metrics)
    one = with_position_kl(result("vae-anneal", **metrics)).metrics
    assert "kl_position" not in one and "davam_ppl" not in one


def test_tables_have_the_papers_numbers_where_they_mean_the_same() -> None:
    assert PUBLISHED["ptb"]["davam-512"] == {"reconstruction": 60.16, "davam_ppl": 17.94, "kl_position": 3.12}
    assert PUBLISHED["ptb"]["davam-q"] == {"reconstruction": 95.83}
    assert PUBLISHED["ptb"]["vae"] == {"reconstruction": 101.27, "iw_ppl": 101.39, "kl": 0.0}
    assert PUBLISHED["captions"]["lstm-lm"] == {"elbo_ppl": 21.44}
    results = [result("lstm-lm", elbo_ppl=120.0, dist1_10=0.5), result("gavam", dist1_10=0.3, reconstruction=100.0)]
    assert model_table(results)[1][0][-1] == "120 (100.47)" and model_table(results)[1][1][2] == "100 (102.2)"
    assert scratch_table(results)[1][1][:5] == ["gavam", "drawn", "10", "-", "0.3 (0.288)"]
    # of Yahoo a tenth was trained on, so only texts from scratch are held against the paper's
    yahoo = [replace(one, facts={**FACTS, "corpus": "yahoo"}) for one in results]
    assert model_table(yahoo)[1][0][-1] == "120"
    assert scratch_table(yahoo)[1] == scratch_table(results)[1]


def test_text_from_scratch_has_a_line_for_each_way_of_choosing_words() -> None:
    both = result("gavam", kl=0.1, dist1_10=0.01, dist1_drawn_10=0.4)
    older = result("davam-512", kl=60.0, dist1_10=0.1)
    lines = scratch_table([both, older])[1]
    assert [line[:3] for line in lines] == [
        ["gavam", "most probable", "10"],
        ["gavam", "drawn", "10"],
        ["davam-512", "most probable", "10"],
    ]
    assert [line[4] for line in lines] == ["0.01", "0.4 (0.288)", "0.1 (0.366)"]  # the paper's beside drawn words


def test_claims_and_pages() -> None:
    results = [
        result("lstm-lm", elbo_ppl=120.0, reconstruction=100.0),
        result("vae", elbo_ppl=121.0, reconstruction=99.0),
        result("davam-512", elbo_ppl=110.0, counted_ppl=400.0, davam_ppl=20.0, reconstruction=60.0, codes_used=200.0),
    ]
    found = {row[0]: row[-1] for row in claims(results)[1]}
    assert found == {
        "Rec of davam-512 below that of 1 of 6 rows with one Gaussian": "holds",
        "more than half of 512 codes used by davam-512": "does not hold",
        "davam_ppl of davam-512 below the language model's": "holds",
        "elbo_ppl of davam-512 below the language model's": "holds",
        "counted_ppl of davam-512, a bound, below the language model's": "does not hold",
    }
    early = replace(results[2], curves={"codes_used": [(1300, 300.0), (2600, 100.0)]})
    found = {row[0]: row[-1] for row in claims([early])[1]}
    assert found["more than half of 512 codes in use at update 1300"] == "holds"
    page = comparison_page("ptb", results, [])
    assert "decoder updates" not in page and "`iw_ppl`:" not in page
    measured = replace(result("vae-aggressive", decoder_updates=7.0), facts={**FACTS, "importance": "9 draws"})
    more = comparison_page("ptb", [*results, measured], [])
    assert "A step of a burst counts as an update" in more and "`iw_ppl`: 9 draws; `probed_ppl`" in more
    examples = [
        {"kind": "from scratch", "texts": ["one", "a | <unk>"]},
        {"kind": "reconstruction", "texts": ["x => y", "x <b> => y"]},
    ]
    told = comparison_page("ptb", [*results, replace(result("vae", kl=1.0), examples=examples)], [])
    assert 'The sentence: "x &lt;b&gt;"' in told and r"| vae |                  y | a \| &lt;unk&gt; |" in told
    assert "**Examples**" not in page
    assert "about 406" in page and "studies run text_ptb" in page
    assert "`counted_ppl` pays for the length" in page and "are Yahoo's" in page
    assert comparison_page("yahoo", [], []) == "No results of text_yahoo yet.\n"
    assert sensitivity_page([], [])[1] == {} and augmentation_page([])[1] == {}


def test_memories_are_judged_by_the_kl_of_a_position() -> None:
    def memory(row: str, kl: float) -> RowResult:
        numbers = {"reconstruction": 40.0, "reconstruction_ppl": math.exp(2.0), "davam_ppl": math.exp(2.0 + kl / 20.0)}
        return result(row, **numbers)

    found = {row[0]: row[-1] for row in claims([memory("gavam", 0.0), memory("davam-128", 2.0)])[1]}
    assert found["KL a position of gavam near zero"] == found["KL a position of davam-128 not near zero"] == "holds"
    found = {row[0]: row[-1] for row in claims([memory("davam-128", 2.0), memory("davam-512", 0.05)])[1]}
    assert found["KL a position of davam-512 not near zero"] == "does not hold"
    assert found["KL a position of davam-512 above davam-128's"] == "does not hold"


def setting(axis: str, value: float, rec: float, kl: float = 1.0, used: float = 1e4) -> dict[str, Any]:
    metrics = {"reconstruction": rec, "kl": kl, "codes_used": used}
    return {"axis": axis, "value": value, "seed": 0, "metrics": metrics}


def test_sensitivity_has_verdicts_where_an_axis_was_run() -> None:
    own = setting("own", 512, 80.0, kl=5.0)
    codes = [setting("codes", 128, 90.0, kl=3.0), setting("codes", 1024, 78.0, kl=6.0, used=500.0)]
    assert sensitivity_claims([own])[1] == []
    assert [row[-1] for row in sensitivity_claims([own, *codes])[1]] == ["holds", "holds", "does not hold"]
    shuffled = [own, setting("codes", 128, 79.0, kl=7.0), *codes[1:]]
    assert [row[-1] for row in sensitivity_claims(shuffled)[1]] == ["does not hold"] * 3
    beta, width = setting("beta", 0.1, 79.0), setting("width", 8, 81.0)
    found = {row[0][:4]: row[-1] for row in sensitivity_claims([own, *codes, beta, width])[1]}
    assert found["4(b)"] == "does not hold" and found["4(c)"] == "holds"
    found = {row[0][:4]: row[-1] for row in sensitivity_claims([own, setting("beta", 0.1, 85.0)])[1]}
    assert found == {"4(b)": "holds"}


def test_values_of_a_setting_are_compared_over_the_seeds_that_all_have() -> None:
    further = {**setting("own", 512, 90.0), "seed": 1}  # a second seed of the number of codes alone
    found = sensitivity_claims([setting("own", 512, 80.0), further, setting("beta", 0.1, 82.0)])[1]
    assert found == [["4(b): Rec lowest at beta_max = 5", "0.1: 82.0, 5: 80.0", "holds"]]


def test_dynamics_part_gaussians_from_codes() -> None:
    curves = {"kl": [(10, 1.0), (20, 2.0)], "train_kl": [(5, 1.0)], "train_reconstruction": [(5, 9.0)]}
    rows = [replace(result(row), curves=curves) for row in ("gavam", "davam-512", "lstm-lm")]
    panels = {panel.y: panel for panel in _dynamics_panels(rows[:2])}
    assert set(panels["KL of Gaussians, training text"].curves) == {"gavam"}
    assert set(panels["KL of codes, validation"].curves) == {"davam-512"}
    assert panels["KL of codes, validation"].has_markers and not panels["Rec, training text"].has_markers
    page, plots = sensitivity_page([], rows)
    assert list(plots) == ["text_dynamics"] and "means of 50 updates" in page

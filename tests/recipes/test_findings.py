"""The table of all claims: what is said with several seeds, with one, and with none."""

import pytest

from probattn.recipes.findings import CLAIMS, findings_table
from probattn.recipes.results import RowResult


def results_of(values: dict[str, list[float]], metric: str) -> list[RowResult]:
    return [
        RowResult(row=row, source="", seed=seed, facts={}, metrics={metric: value})
        for row, numbers in values.items()
        for seed, value in enumerate(numbers)
    ]


def verdicts(place: str, results: list[RowResult]) -> dict[str, list[str]]:
    _, lines = findings_table({place: results})
    return {line[2]: line[3:] for line in lines if line[1] == place}


ACCURACY = "gat/clean/mean/accuracy"


def test_one_seed_is_a_sign() -> None:
    found = verdicts("nmt_multi30k", results_of({"soft": [40.0], "marginal": [40.5], "bayesian-wc": [39.0]}, "bleu"))
    assert found["BLEU, marginal − soft"][1:] == ["+0.50", "1", "same sign"]
    assert found["BLEU, bayesian-wc − soft"][1:] == ["-1.00", "1", "other sign"]
    assert found["BLEU, hard-enum − soft"][1:] == ["-", "0", "not run"]


def test_two_seeds_that_agree_are_a_sign() -> None:
    values = {"soft": [40.0, 40.2], "marginal": [40.5, 41.9], "bayesian-wc": [39.0, 39.9], "hard-enum": [39.0, 40.4]}
    found = verdicts("nmt_multi30k", results_of(values, "bleu"))
    assert found["BLEU, marginal − soft"][-1] == "same sign" and found["BLEU, marginal − soft"][-2] == "2"
    assert found["BLEU, bayesian-wc − soft"][-1] == "other sign"
    assert found["BLEU, hard-enum − soft"][-1] == "no difference seen"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.84, 0.851, 0.86, 0.869], "holds"),
        ([0.82, 0.811, 0.80, 0.789], "the other way round"),
        ([0.83, 0.831, 0.83, 0.829], "no difference seen"),
    ],
)
def test_several_seeds_are_tested(values: list[float], verdict: str) -> None:
    found = verdicts("gat/cora", results_of({"gat": [0.83, 0.83, 0.83, 0.83], "wc-code": values}, ACCURACY))
    assert found["accuracy, wc-code − gat"][-1] == verdict


def test_verdicts_are_adjusted_for_the_number_of_rows() -> None:
    plain = [0.80, 0.80, 0.80, 0.80]
    slight = [0.802, 0.806, 0.81, 0.806]  # p = 0.035 alone
    alone = verdicts("gat/cora", results_of({"gat": plain, "wc-code": slight}, ACCURACY))
    assert alone["accuracy, wc-code − gat"][-1] == "holds"
    nothing = [0.80, 0.801, 0.799, 0.80]
    beside = verdicts("gat/cora", results_of({"gat": plain, "wc-code": slight, "wf-code": nothing}, ACCURACY))
    assert beside["accuracy, wc-code − gat"][-1] == "no difference seen"


def test_claims_of_one_row_against_two_others_have_their_own_tests() -> None:
    rows = {"davam-512": [40.0, 40.2, 40.1], "vae-anneal": [40.1, 40.6, 39.9], "gavam": [80.0, 80.4, 80.1]}
    found = verdicts("text_ptb", results_of(rows, "reconstruction"))
    assert found["reconstruction (nats), davam-512 − vae-anneal"][-1] == "no difference seen"
    assert found["reconstruction (nats), davam-512 − gavam"][-1] == "holds"


def test_a_number_that_is_none_is_not_compared() -> None:
    found = verdicts("nmt_multi30k", results_of({"soft": [40.0], "marginal": [float("nan")]}, "bleu"))
    assert found["BLEU, marginal − soft"][1:] == ["-", "0", "not run"]


def test_claims_are_distinct_and_have_a_sign() -> None:
    keys = [(claim.place, claim.row, claim.baseline, claim.metric) for claim in CLAIMS]
    assert len(set(keys)) == len(keys) and all(claim.published != 0.0 for claim in CLAIMS)


@pytest.mark.parametrize(
    ("soft", "variational", "verdict"),
    [
        ([5.0, 5.1], [4.9, 5.01], "holds"),
        ([5.0, 5.1], [4.4, 4.51], "does not hold"),
        ([5.0, 5.1], [4.5, 4.9], "undecided"),
        ([5.0], [4.9], "so"),
        ([5.0], [4.6], "not so"),
    ],
)
def test_hardly_lower_is_a_claim_with_a_margin(soft: list[float], variational: list[float], verdict: str) -> None:
    found = verdicts("question_generation", results_of({"ved-dattn": soft, "ved-vattn-h": variational}, "sample_bleu4"))
    text = "BLEU-4 of samples at most 0.3 lower, ved-vattn-h − ved-dattn"
    assert found[text][0] == "-0.12" and found[text][-1] == verdict
    assert "BLEU-2 of samples at most 0.3 lower, ved-vattn-h − ved-dattn" in verdicts("dialogue", [])

"""Claims on text generation: a verdict is more than the order of two means."""

import pytest

from probattn.recipes.generation_claims import claims
from probattn.recipes.generation_tables import collapsed_sites, objective_table, quality_table, sample_table
from probattn.recipes.results import RowResult


def result(row: str, seed: int, *, entropy: float, bleu: float, corpus: str = "squad") -> RowResult:
    metrics = {"entropy": entropy, "dist1": 0.1, "dist2": 0.2, "sample_bleu4": bleu, "sample_bleu2": 3.0 * bleu}
    return RowResult(row=row, source="", seed=seed, facts={"corpus": corpus}, metrics=metrics)


def verdicts(results: list[RowResult]) -> dict[str, str]:
    return {cells[0]: cells[-1] for cells in claims(results)[1]}


@pytest.mark.parametrize(
    ("entropies", "expected"),
    [
        (((2.2, 2.21), (2.4, 2.411)), "holds"),
        (((2.4, 2.411), (2.2, 2.21)), "fails"),
        (((2.0, 2.4), (2.1, 2.4)), "no difference seen"),
        (((2.2,), (2.3,)), "sign as claimed (one seed)"),
    ],
)
def test_noise_between_seeds_counts(entropies: tuple[tuple[float, ...], ...], expected: str) -> None:
    rows = zip(("ved-dattn", "ved-vattn-h"), entropies, strict=True)
    results = [result(row, seed, entropy=e, bleu=5.0) for row, values in rows for seed, e in enumerate(values)]
    found = verdicts(results)
    assert found["entropy of ved-vattn-h above ved-dattn"] == expected
    assert not any("vattn-0" in claim for claim in found)  # there is no result of it


def test_some_quality_may_be_lost() -> None:
    for bleu, corpus, expected in ((4.8, "squad", "holds"), (4.6, "squad", "fails"), (4.6, "cornell", "fails")):
        results = [
            result(row, seed, entropy=2.0, bleu=value + step * seed, corpus=corpus)
            for row, value, step in (("ved-dattn", 5.0, 0.001), ("ved-vattn-0", bleu, 0.002))
            for seed in (0, 1)
        ]
        order = 2 if corpus == "cornell" else 4
        assert verdicts(results)[f"sample BLEU-{order} of ved-vattn-0 at most 0.3 below ved-dattn"] == expected


def test_close_to_the_limit_nothing_is_decided() -> None:
    results = [
        result(row, seed, entropy=2.0, bleu=value)
        for row, values in (("ved-dattn", (5.0, 5.1)), ("ved-vattn-0", (4.72, 4.83)))
        for seed, value in enumerate(values)
    ]
    text = "sample BLEU-4 of ved-vattn-0 at most 0.3 below ved-dattn"
    assert verdicts(results)[text] == "undecided: too near to the limit for this noise"
    assert verdicts([results[0], results[2]])[text] == "as claimed (one seed)"


def test_each_inference_has_a_line_and_one_of_the_paper() -> None:
    first = RowResult(
        row="ved-dattn",
        source="",
        seed=0,
        facts={"corpus": "squad"},
        metrics={"map_bleu4": 2.744, "sample_bleu4": 2.664, "entropy": 2.6, "dist1": 0.18},
    )
    second = RowResult(**{**vars(first), "seed": 1, "metrics": {**first.metrics, "entropy": 2.8}})
    alone = RowResult(**{**vars(first), "row": "ded", "metrics": {"map_bleu4": 3.0}})
    header, rows = quality_table([first, second, alone])
    assert header == ["row", "seeds", "by", "BLEU-4", "entropy", "Dist-1"]
    assert rows == [
        ["ved-dattn", "2", "MAP", "2.74 ± 0.00", "", ""],
        ["ved-dattn", "paper", "MAP", "5.02", "", ""],
        ["ved-dattn", "2", "samples", "2.66 ± 0.00", "2.700 ± 0.141", "0.180 ± 0.000"],
        ["ved-dattn", "paper", "samples", "5.08", "2.214", "0.132"],
        ["ded", "1", "MAP", "3.00", "", ""],
        ["ded", "paper", "MAP", "3.61", "", ""],
    ]


def test_the_released_objective_is_held_against_the_corrected_one() -> None:
    both = [
        RowResult(row=row, source="", seed=0, facts={"corpus": "squad"}, metrics={"entropy": entropy, "kl_code": kl})
        for row, entropy, kl in (("ved-dattn", 2.0, 0.5), ("ved-dattn-released", 2.25, 4.0), ("ved-vattn-h", 2.4, 0.1))
    ]
    header, rows = objective_table(both)
    assert header == ["row", "objective", "entropy", "KL code"]
    assert [line[1:] for line in rows] == [
        ["eq. 8", "2", "0.5"],
        ["released code", "2.25", "4"],
        ["released - eq. 8", "+0.25", "+3.5"],
    ]
    assert objective_table(both[:1])[1] == []


def test_collapsed_sites_are_named_by_seed() -> None:
    def one(seed: int, **metrics: float) -> RowResult:
        return RowResult(row="ved-vattn-h", source="", seed=seed, facts={}, metrics=metrics)

    found = collapsed_sites(
        [
            one(0, kl_code=0.001, active_units=2.0, kl_attention=0.6, active_attention=0.0),
            one(1, kl_code=3.0, active_units=9.0, kl_attention=0.7, active_attention=1.0),
        ]
    )
    assert found == [
        "`ved-vattn-h`, code (seed 0: KL 0.001 nats)",
        "`ved-vattn-h`, attention (seed 0: KL 0.6 nats, no active unit)",
    ]
    assert collapsed_sites([one(0, map_ppl=3.0)]) == []


def test_equal_texts_are_counted_once() -> None:
    examples = [{"source": "a", "reference": "b", "texts": ["who ?", "why ?", "who ?"]}]
    given = RowResult(row="ved", source="", seed=0, facts={}, metrics={}, examples=examples)
    assert sample_table([given], 0)[1] == [["ved", "who ? (x2)\nwhy ?"]]


def test_means_beside_a_verdict_are_of_the_seeds_it_is_on() -> None:
    results = [
        result("ved-dattn", 0, entropy=2.0, bleu=5.0),
        result("ved-dattn", 1, entropy=3.0, bleu=5.0),
        result("ved-dirichlet", 0, entropy=2.2, bleu=5.0),
    ]
    lines = {cells[0]: cells[1:] for cells in claims(results)[1]}
    assert lines["entropy of ved-dirichlet above ved-dattn"] == ["2.200", "2.000", "sign as claimed (one seed)"]

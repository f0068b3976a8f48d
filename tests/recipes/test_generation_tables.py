"""Claims on text generation: a verdict is more than the order of two means."""

import pytest

from probattn.recipes.generation_tables import claims
from probattn.recipes.results import RowResult


def result(row: str, seed: int, *, entropy: float, bleu: float, corpus: str = "squad") -> RowResult:
    metrics = {"entropy": entropy, "dist1": 0.1, "dist2": 0.2, "sample_bleu4": bleu, "sample_bleu2": 3.0 * bleu}
    return RowResult(row=row, source="", seed=seed, facts={"corpus": corpus}, metrics=metrics)


def verdicts(results: list[RowResult]) -> dict[str, str]:
    return {cells[0]: cells[-1] for cells in claims(results)[1]}


@pytest.mark.parametrize(
    ("entropies", "expected"),
    [
        (((2.2, 2.21), (2.4, 2.41)), "holds"),
        (((2.4, 2.41), (2.2, 2.21)), "fails"),
        (((2.0, 2.4), (2.1, 2.4)), "no difference beyond noise"),
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
            result(row, seed, entropy=2.0, bleu=value + 0.001 * seed, corpus=corpus)
            for row, value in (("ved-dattn", 5.0), ("ved-vattn-0", bleu))
            for seed in (0, 1)
        ]
        order = 2 if corpus == "cornell" else 4
        assert verdicts(results)[f"sample BLEU-{order} of ved-vattn-0 at most 0.3 below ved-dattn"] == expected

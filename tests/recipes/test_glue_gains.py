"""What draws add: differences of one model's modes, paired by seed."""

from probattn.recipes.glue_gains import across_tasks, gain_table, published_comparison
from probattn.recipes.results import RowResult


def result(row: str, seed: int, **numbers: float) -> RowResult:
    metrics = {name.replace("__", "/"): value for name, value in numbers.items()}
    return RowResult(row=row, source="", seed=seed, facts={}, metrics=metrics, curve=[])


def two_rows() -> list[RowResult]:
    """Plain NLLs differ a lot by seed; dropout takes 0.1 off each, give or take a hundredth."""
    found = []
    for seed, (plain, gain) in enumerate([(1.0, 0.10), (2.0, 0.11), (3.0, 0.09)]):
        found += [
            result(
                "soft", seed, clean__plain__nll=plain, clean__dropout__nll=plain - gain, clean__plain__scaled_nll=0.5
            ),
            result(
                "wc",
                seed,
                clean__plain__nll=plain,
                clean__noise__nll=plain,
                clean__both__nll=plain + 0.1,
                clean__both__pavpu=0.5 + 0.1 * seed,
            ),
        ]
    return found


def test_draws_are_set_against_the_same_seed() -> None:
    header, rows = gain_table(two_rows())
    assert header == ["row", "condition", "on", "NLL"]
    lines = {tuple(row[:3]): row[3] for row in rows}
    assert lines["soft", "clean", "dropout"] == "-0.100 ± 0.006*"  # 0.01 / sqrt(3); seeds differ a hundred times more
    assert lines["soft", "clean", "temperature"] == "-1.500 ± 0.577"
    assert lines["wc", "clean", "noise"] == "+0.000 ± 0.000"  # nothing differs, and that is no finding
    assert [row[0] for row in rows] == ["soft", "soft", "wc", "wc"]
    assert ("soft", "clean", "noise") not in lines and not any(row[1] == "corrupted" for row in rows)


def test_the_papers_comparison_is_between_rows() -> None:
    header, rows = published_comparison(two_rows())
    assert header == ["row", "condition", "PAvPU .05", "NLL"]
    # soft has no PAvPU on dropout here; NLL: plain + 0.1 - (plain - gain)
    assert rows == [["wc", "clean", "-", "+0.200 ± 0.006*"]]


def test_one_seed_shows_nothing() -> None:
    few = [one for one in two_rows() if one.seed == 0]
    assert gain_table(few)[1] == [] == published_comparison(few)[1]


def test_rows_of_all_tasks_stand_beside_the_papers_gain() -> None:
    def task(metric: str, rows: dict[str, list[float]]) -> list[RowResult]:
        return [
            RowResult(row, "", seed, facts={"metric": metric}, metrics={f"clean/mean/{metric}": value}, curve=[])
            for row, values in rows.items()
            for seed, value in enumerate(values)
        ]

    tasks = {
        "mrpc": task("accuracy", {"soft": [0.70, 0.80], "wc": [0.71, 0.82], "wc-exp": [0.5]}),
        "cola": task("matthews", {"soft": [0.3, 0.2], "no-kl": [0.3, 0.1]}),
    }
    header, rows = across_tasks(tasks)
    assert header == ["minus soft", "mrpc, accuracy", "cola, Matthews"]
    assert rows == [
        ["wc in the paper", "+2.0", "+1.3"],
        ["wc", "+1.50 ± 0.50", "-"],  # one seed of wc-exp shows nothing
        ["no-kl", "-", "-5.00 ± 5.00"],
    ]

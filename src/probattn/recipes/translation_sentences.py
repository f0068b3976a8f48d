"""The report's sections on single sentences: alignments side by side, and what every row makes of the same text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from probattn.recipes.results import RowResult
from probattn.viz import AlignmentPicture, Section, alignment_plot, render_table

_LATENT = ("marginal", "variational-enum", "variational-sample", "variational-topk", "hard-enum", "hard-sample")


def sentence_sections(by_row: Mapping[str, RowResult]) -> list[Section]:
    """The two halves of Deng et al.'s Figure 3 (prior against posterior, soft against latent), and translations."""
    sections = []
    variational = [row for row, result in by_row.items() if _has(result, "posterior")]
    if variational:
        row = variational[0]
        sections.append(
            Section(
                f"Before and after the target is seen ({row})",
                "Left the prior, which knows the words before; right the inference network, which knows the whole "
                "target sentence. Rings mark gold links.",
                alignment_plot(_compared([(by_row[row], "prior"), (by_row[row], "posterior")])),
            )
        )
    latent = [row for row in _LATENT if row in by_row and _has(by_row[row], "prior")]
    if "soft" in by_row and latent and _has(by_row["soft"], "prior"):
        best = min(latent, key=lambda row: by_row[row].metrics["ppl"])
        sections.append(
            Section(
                f"Soft attention and a latent alignment (soft, {best})",
                "The weights that decoding sees, of the same sentences; of the latent rows the one with the lowest "
                "perplexity.",
                alignment_plot(_compared([(by_row["soft"], "prior"), (by_row[best], "prior")])),
            )
        )
    return [*sections, *_translations(by_row)]


def sentence_picture(by_row: Mapping[str, RowResult], number: int) -> str:
    """One sentence as soft attention, a latent alignment and an inference network see it, as SVG.

    Args:
        by_row: Results of soft, marginal and variational-enum.
        number: Of the sentence.
    """
    sides = {
        "soft attention": ("soft", "prior"),
        "exact marginal likelihood: the prior": ("marginal", "prior"),
        "variational: the inference network": ("variational-enum", "posterior"),
    }
    pictures = []
    for title, (row, aligner) in sides.items():
        pictures.append(replace(_compared([(by_row[row], aligner)])[number], title=title))
    return alignment_plot(pictures, columns=len(pictures))


def _translations(by_row: Mapping[str, RowResult]) -> list[Section]:
    """What every row makes of the same sentences."""
    having = {row: result for row, result in by_row.items() if result.examples and "translation" in result.examples[0]}
    if not having:
        return []
    examples = next(iter(having.values())).examples
    lines = [["source", *(" ".join(example["source"]) for example in examples)]]
    lines += [["reference", *(" ".join(example["target"]) for example in examples)]]
    lines += [[row, *(example["translation"] for example in result.examples)] for row, result in having.items()]
    header = ["", *(f"sentence {number}" for number in range(1, len(examples) + 1))]
    return [
        Section(
            "The same sentences translated",
            "The best hypothesis of each row.",
            render_table(header, lines, has_text=True),
        )
    ]


def _has(result: RowResult, aligner: str) -> bool:
    return bool(result.examples) and aligner in result.examples[0]["weights"]


def _compared(sides: Sequence[tuple[RowResult, str]]) -> list[AlignmentPicture]:
    """One line of pictures for every sentence, one column for every side."""
    count = min(len(result.examples) for result, _ in sides)
    return [
        AlignmentPicture(
            title=f"{result.row}: {aligner}",
            source=result.examples[number]["source"],
            target=result.examples[number]["target"],
            weights=result.examples[number]["weights"][aligner],
            gold=[(link[0], link[1]) for link in result.examples[number]["gold"]],
        )
        for number in range(count)
        for result, aligner in sides
    ]

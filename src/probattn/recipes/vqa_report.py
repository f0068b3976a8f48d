"""Tables and HTML report of a comparison of networks that answer questions about pictures."""

import html
import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probattn.data.extract_features import open_picture
from probattn.data.generated_scenes import scenes
from probattn.data.sources import data_folder
from probattn.recipes.picture_claims import CLAIMS_NOTE, POINTING_NOTE, Table
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.storage import write_atomically
from probattn.recipes.vqa_claims import claims_table, pointing_table
from probattn.recipes.vqa_tables import attention_table, drawn_note, kind_table, main_table, uncertainty_table
from probattn.viz import Section, curve_plot, render_page, render_table
from probattn.viz.attention_maps import AttentionMap, attention_maps

__all__ = ["write_report"]

_MAIN = (
    "All test questions, percent but for the NLL (nats per answer); plug-in weights, or the exact mixture over "
    "regions, without dropout. Noise is Gaussian, its variance in units of the features' own. Questions with no known "
    "answer count as wrong and have no likelihood. 'majority' always gives the most frequent answer, question-only "
    "rows see features of zero. The papers' numbers are of VQA 2.0: compare differences, not levels."
)
_UNCERTAINTY = (
    "The mean over draws. PAvPU: share of answers that are right and certain, or wrong and uncertain, with soft "
    "accuracy; certain means p < 0.05 in a t-test of the two best answers, with independent samples as in the paper, "
    "or paired as in its code. AUROC: how well entropy or mutual information tells wrong from right answers."
)
_ATTENTION = (
    "Entropy of the expected weights over regions in nats; mass that lies on the regions which hold the answer, and "
    "how often the largest weight is there, in percent. q is the inference network, which knows the answer; the exact "
    "posterior is p(region | question, answer) by enumeration. Of MCAN it is the reduction's weights. 'KL gradient': "
    "norm of the weighted KL's gradient over the likelihood's, at the last measurement."
)
_CERTAIN = 0.05

Pictures = Callable[[str], "np.ndarray[Any, Any] | None"]


def write_report(task: str, results: Sequence[RowResult], output: Path) -> str:
    """Write `report.html` and `table.md`; return the tables and where the report is, for the terminal."""
    tables = [main_table(results), kind_table(results), uncertainty_table(results), attention_table(results)]
    text = "\n".join(as_markdown(*table) for table in [*tables, *_verdicts(results).values()])
    write_atomically(output / "table.md", text)
    write_atomically(output / "report.html", _page(task, results))
    return f"{text}\nReport: {output / 'report.html'}"


def _page(task: str, results: Sequence[RowResult]) -> str:
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    lead = (
        f"Corpus {facts['corpus']}, {facts['train_questions']} training and {facts['test_questions']} test questions, "
        f"{facts['answers']} answers, {facts['epochs']} epochs ({facts['updates']} updates) for every row, seeds "
        f"{seeds}. Rows of one network differ in what is random, in estimator and bound."
    )
    first = [result for result in results if result.seed == seeds[0]]
    drawn = f"{facts['draws']} draws; 'drawn' says of what. {drawn_note(facts)}"
    sections = [
        Section("Answers", _MAIN, render_table(*main_table(results))),
        Section("By type of answer", "Accuracy in percent, clean features.", render_table(*kind_table(results))),
        Section("Uncertainty", _UNCERTAINTY, render_table(*uncertainty_table(results)), drawn),
        Section("Attention", _ATTENTION, render_table(*attention_table(results))),
        *(Section(*title, render_table(*table)) for title, table in _verdicts(results).items()),
        *_curves(first),
        *_gallery(first, picture_source(facts)),
    ]
    return render_page(f"probattn: {task}", lead, sections)


def _verdicts(results: Sequence[RowResult]) -> dict[tuple[str, str], Table]:
    """By title and text: what several seeds say."""
    found = {
        ("Verdicts", CLAIMS_NOTE): claims_table(results),
        ("Which attention points at the right object?", POINTING_NOTE): pointing_table(results),
    }
    return {title: table for title, table in found.items() if table[1]}


def _curves(results: Sequence[RowResult]) -> list[Section]:
    sections = []
    for metric, title in {"nll": "validation NLL", "accuracy": "validation accuracy"}.items():
        curves = {result.row: result.curves[metric] for result in results if result.curves.get(metric)}
        if curves:
            plot = curve_plot(curves, x="update", y=title)
            sections.append(Section(f"During training: {title}", "First seed.", plot))
    return sections


def _gallery(results: Sequence[RowResult], picture: Pictures) -> list[Section]:
    """For each question the answers of all rows with their p-values, and their attention over the picture."""
    sections = []
    for number in range(min((len(result.examples) for result in results), default=0)):
        example = results[0].examples[number]
        image = picture(str(example["picture"]))
        maps = [one for result in results for one in _maps(result, number, image)]
        rows = [[result.row, *_verdict(result.examples[number])] for result in results]
        table = render_table(["row", "answer", "probability", "p-value", "verdict"], rows)
        given = html.unescape(" / ".join(example["answers"]))
        text = f"Right: {given}. Picture {example['picture']}." + (
            " Gold regions are ringed." if example["gold"] else ""
        )
        sections.append(Section(str(example["question"]), text, table + attention_maps(maps, columns=6, width=1.7)))
    return sections


def _maps(result: RowResult, number: int, picture: "np.ndarray[Any, Any] | None") -> list[AttentionMap]:
    example = result.examples[number]
    made = []
    for name, values in example["weights"].items():
        weights, boxes = np.array(values), None
        if example["grid"] is not None:
            weights = weights.reshape(example["grid"])
        elif example["boxes"] is not None:
            boxes = np.array(example["boxes"]).reshape(-1, 4)
        else:
            weights = weights[None]
        shown = "weights" if len(example["weights"]) == 1 else name
        title = f"{result.row}\n{shown}: {example['answer']}" if name == "prior" else f"{result.row}\n{name}"
        made.append(AttentionMap(weights, picture, title=title, gold=example["gold"], boxes=boxes))
    return made


def _verdict(example: Mapping[str, Any]) -> list[str]:
    """Answer, probability, p-value, and the paper's four cases (Figure 2)."""
    p_value = example["p_value"]
    is_right = "right" if example["accuracy"] >= 0.5 else "wrong"
    case = is_right if p_value is None else f"{is_right}, {'certain' if p_value < _CERTAIN else 'uncertain'}"
    shown = "-" if p_value is None else f"{p_value:.2g}"
    return [str(example["answer"]), f"{example['probability']:.2f}", shown, case]


def picture_source(facts: Mapping[str, Any]) -> Pictures:
    """Where the pictures of a comparison are: generated anew, or read, as far as they are on this machine."""
    if facts["corpus"] == "scenes":
        made = scenes("test", int(facts["test_questions"]) // 4, seed=int(facts["corpus_seed"]))
        return lambda name: made.picture(int(name.removeprefix("test").removesuffix(".png")))
    if facts["corpus"] == "daquar":
        folder = data_folder()
        archive = None if folder is None else folder / "daquar" / "images_short144_q75.tar"
        return lambda name: None if archive is None else _from_archive(archive, Path(name).stem)
    if facts.get("pictures"):
        return lambda name: find_picture(Path(str(facts["pictures"])), name)
    return lambda name: None


def _from_archive(path: Path, stem: str) -> "np.ndarray[Any, Any] | None":
    if not path.is_file():
        return None
    with tarfile.open(path) as archive:
        found = next((member for member in archive if Path(member.name).stem == stem), None)
        stream = None if found is None else archive.extractfile(found)
        return None if stream is None else np.asarray(open_picture(io.BytesIO(stream.read())))


def find_picture(folder: Path, name: str) -> "np.ndarray[Any, Any] | None":
    """Pixels (H, W, 3) of the picture of that name in a folder or the folders in it; None where there is none."""
    found = sorted(path for path in folder.rglob("*") if path.name == name)
    return read_picture(found[0]) if found else None


def read_picture(path: Path) -> "np.ndarray[Any, Any] | None":
    """Pixels (H, W, 3) of a file, upright as its features are; None where there is none, or it is damaged."""
    try:
        return np.asarray(open_picture(path)) if path.is_file() else None
    except ValueError:
        return None

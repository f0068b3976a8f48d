"""Table and HTML report of a comparison of captioners."""

from collections.abc import Sequence
from pathlib import Path

from probattn.recipes.captioning_claims import claims_table, pointing_table
from probattn.recipes.captioning_tables import attention_table, failures, score_table
from probattn.recipes.picture_claims import CLAIMS_NOTE, POINTING_NOTE, Table
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.storage import write_atomically
from probattn.viz import Section, curve_plot, render_page, render_table
from probattn.viz.gallery import GalleryPicture, GalleryWord, word_strip

__all__ = ["write_report"]

_SCORES = (
    "Greedy captions unless a column says beam, weights at their plug-in value. BLEU is sacrebleu's on lower-cased "
    "words against all references of a picture; CIDEr, ROUGE-L and METEOR are pycocoevalcap's, times 100."
)
_ATTENTION = (
    "'ppl' is the perplexity of the references with plug-in weights, 'drawn ppl' with weights drawn as in training, "
    "'elbo_ppl' counts every KL at weight one. 'KL gradient' is the norm of the weighted KL's gradient over the "
    "likelihood's when it was last measured. 'mass on gold' is the weight on the regions that a word speaks of, 'hits' "
    "the share of words whose largest weight is on one, both along reference captions. Entropy (nats), Dist-1 and "
    "Dist-2 are those of sampled captions of a picture."
)
_CURVES = {"ppl": "perplexity", "bleu4": "BLEU-4 of greedy captions"}


def write_report(task: str, results: Sequence[RowResult], output: Path) -> str:
    """Write `report.html` and `table.md`; return the tables and where the report is, for the terminal."""
    broken = "".join(f"{line}\n" for line in failures(results))
    verdicts = "".join(f"\n{as_markdown(*table)}" for table in _verdicts(results).values())
    text = f"{as_markdown(*score_table(results, shows_published=False))}\n{as_markdown(*attention_table(results))}"
    text += verdicts + (f"\n{broken}" if broken else "")
    write_atomically(output / "table.md", text)
    write_atomically(output / "report.html", _page(task, results))
    return f"{text}\nReport: {output / 'report.html'}"


def _page(task: str, results: Sequence[RowResult]) -> str:
    finished = [result for result in results if "failed" not in result.facts]
    facts, seeds = (finished or results)[0].facts, sorted({result.seed for result in results})
    lead = (
        f"Corpus {facts['corpus']}, {facts.get('epochs', '?')} epochs ({facts.get('updates', '?')} updates) for every "
        f"row, seeds {seeds}. The same network, captions, updates and learning rate for all rows; rows differ in site, "
        "estimator and KL."
    )
    shows = facts["corpus"] != "scenes"  # whose captions are of another kind than the paper's
    note = "In brackets: the paper, on MS-COCO with boxes of a detector." if shows else ""
    sections = [
        Section("Captions", _SCORES, render_table(*score_table(results, shows_published=shows)), note),
        Section("Likelihood and attention", _ATTENTION, render_table(*attention_table(results))),
        *(Section(*title, render_table(*table)) for title, table in _verdicts(results).items()),
    ]
    broken = failures(results)
    if broken:
        text = "These runs ended with a loss or a gradient that was not finite. The update is kept and can be repeated."
        sections.append(Section("Rows that broke", text, render_table(["run"], [[line] for line in broken])))
    first_seed = [result for result in results if result.seed == seeds[0]]
    return render_page(f"probattn: {task}", lead, [*sections, *_curves(first_seed), *_captions(first_seed)])


def _verdicts(results: Sequence[RowResult]) -> dict[tuple[str, str], Table]:
    """By title and text: what several seeds say."""
    found = {
        ("Verdicts", CLAIMS_NOTE): ([], []) if results[0].facts["corpus"] == "scenes" else claims_table(results),
        ("Which attention points at what a word speaks of?", POINTING_NOTE): pointing_table(results),
    }
    return {title: table for title, table in found.items() if table[1]}


def _curves(results: Sequence[RowResult]) -> list[Section]:
    sections = []
    for metric, title in _CURVES.items():
        curves = {result.row: result.curves[metric] for result in results if result.curves.get(metric)}
        if curves:
            plot = curve_plot(curves, x="update", y=title, is_log=metric == "ppl")
            sections.append(Section(f"During training: {title}", "On the validation split, first seed.", plot))
    return sections


def _captions(results: Sequence[RowResult]) -> list[Section]:
    """What every row says of the same pictures."""
    having = [result for result in results if result.examples]
    if not having:
        return []
    examples = having[0].examples
    lines = [["reference", *(example["references"][0] for example in examples)]]
    lines += [[result.row, *(example["caption"] for example in result.examples)] for result in having]
    header = ["", *(example["picture"] for example in examples)]
    text = "The best caption of the beam. Attention over the pictures themselves: probattn gallery."
    return [Section("The same pictures", text, render_table(header, lines)), *_attention(having)]


def _attention(results: Sequence[RowResult]) -> list[Section]:
    """Weights behind every word of a picture's caption, for every row."""
    sections = []
    for number, result in enumerate(results):
        example = result.examples[0]
        if not example.get("grid") or not example["words"]:
            continue
        priors = example["prior"] or [()] * len(example["words"])
        words = [
            GalleryWord(word, posterior, prior=prior)
            for word, posterior, prior in zip(example["words"], example["posterior"], priors, strict=True)
        ]
        picture = GalleryPicture(example["picture"], words, GalleryPicture.of_grid(*example["grid"]))
        text = "Darker cells have more weight, relative to the largest of the word."
        sections.append(Section(f"Attention of {result.row}", text, word_strip(picture, key=f"p{number}")))
    return sections

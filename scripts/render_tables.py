"""Render the tables of the docs from `results/*.json`: numbers are never typed by hand.

python scripts/render_tables.py            # writes docs/generated/*.md
python scripts/render_tables.py --check    # fails where a page is not what the results say
"""

import json
import sys
from collections.abc import Collection
from pathlib import Path

from probattn.recipes.captioning import RECIPE as CAPTIONING
from probattn.recipes.captioning_claims import captioning_page
from probattn.recipes.findings import CLAIMS, findings_table
from probattn.recipes.gat import RECIPE as GRAPHS
from probattn.recipes.gat_search_plan import (
    CONFIRM_SEEDS,
    Graph,
    confirm_plan,
    confirm_table,
    regimes_plan,
    regimes_table,
    trials_of,
    weights_plan,
    weights_table,
)
from probattn.recipes.gat_tables import (
    accuracy_table,
    calibration_table,
    difference_table,
    gradient_table,
    uncertainty_table,
)
from probattn.recipes.generation_pages import generation_page, sweep_page
from probattn.recipes.generation_sweep import ROW, swept
from probattn.recipes.glue import RECIPE as GLUE
from probattn.recipes.glue_gains import STAR, across_tasks, gain_table, published_comparison
from probattn.recipes.glue_search import stored_table
from probattn.recipes.glue_tables import calibration_table as glue_calibration_table
from probattn.recipes.glue_tables import kl_table, main_table
from probattn.recipes.glue_tables import uncertainty_table as glue_uncertainty_table
from probattn.recipes.pilot_vae import RECIPE as PILOT
from probattn.recipes.question_generation import RECIPE as QUESTIONS
from probattn.recipes.recall import RECIPE as RECALL
from probattn.recipes.report import as_markdown, render_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.storage import read_results
from probattn.recipes.studies import status
from probattn.recipes.text_bounds import bounds_page
from probattn.recipes.text_cells import read_cells
from probattn.recipes.text_pages import augmentation_page, comparison_page, sensitivity_page
from probattn.recipes.text_vae import RECIPE as TEXT
from probattn.recipes.translation import RECIPE as TRANSLATION
from probattn.recipes.translation_claims import claims_table, published_table
from probattn.recipes.translation_gold import gold_table
from probattn.recipes.translation_kmax import curve_table, verdict_table
from probattn.recipes.translation_report import COLUMNS
from probattn.recipes.translation_sentences import sentence_picture
from probattn.recipes.vqa import RECIPE as VQA
from probattn.recipes.vqa_claims import vqa_page

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "generated"
PLOTS = ROOT / "docs" / "assets"
GENERATED_METRICS = ("ppl", "elbo_ppl", "bleu", "entropy", "aer", "posterior_aer", "exact_aer", "effective_kl_gradient")
LONGER_METRICS = ("ppl", "elbo_ppl", "bleu", "entropy", "posterior_entropy", "exact_entropy", "aer", "posterior_aer")
LEAST_BLEU = 37.0  # a shorter trial on Multi30k reached 36.3
GRAPH_NAMES: tuple[Graph, ...] = ("cora", "citeseer", "pubmed")
sys.path.insert(0, str(ROOT))  # a script finds no other folder than its own

from benchmarks.attention_plots import attention_plots  # noqa: E402
from benchmarks.attention_table import render_attention  # noqa: E402
from benchmarks.benchmark_table import render_benchmark  # noqa: E402


def estimators() -> str:
    """Bias and variance of the gradient estimators."""
    record = json.loads((ROOT / "results" / "estimators.json").read_text())
    lines = [
        "| estimator | bound | readouts | relative bias | noise of the bias | relative variance |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        bias, floor = row["relative_bias"], row["bias_noise_floor"]
        verdict = f"{bias:.3f}" if bias > 3.0 * floor else f"none seen (< {max(3.0 * floor, 1e-3):.3f})"
        lines.append(
            f"| `{row['estimator']}` | `{row['bound']}` | {row['readouts']} | {verdict} | {floor:.3f} | "
            f"{row['relative_variance']:.3f} |"
        )
    size = record["model"]
    note = (
        f"{record['repetitions']} gradients each on a random model with {size['examples']} x {size['steps']} "
        f"alignments over {size['slots']} slots, seed {record['seed']}, float64; relative to the exact gradient's "
        f"norm (bias) and squared norm (variance). Made by `{record['command']}`."
    )
    return "\n".join(lines) + f"\n\n{note}\n"


def stored(folder: Path, rows: list[str]) -> list[RowResult]:
    """All results of a folder, in the order of the recipe's rows."""
    return read_results([path for row in rows for path in sorted(folder.glob(f"{row}-seed*.json"))])


def recall() -> str:
    """The recall comparison."""
    results = stored(ROOT / "results" / "recall", RECALL.rows)
    seeds = sorted({result.seed for result in results})
    note = (
        f"Seeds {seeds}, {results[0].facts['updates']} updates, means and standard deviations over seeds; nats per "
        f"query on a fixed test set of 6,000 queries. Made by `probattn compare recall --num_seeds {len(seeds)} "
        "--output results/recall`."
    )
    return f"{render_markdown(results)}\n{note}\n"


def multi30k() -> str:
    """Translation of Multi30k, beside the papers' numbers, with verdicts on their claims."""
    results = stored(ROOT / "results" / "nmt_multi30k", TRANSLATION.rows)
    facts = results[0].facts
    others = sorted({result.row for result in results if result.facts["updates"] != facts["updates"]})
    who = "every row" if not others else f"all rows but {', '.join(others)}, which cannot be compared"
    note = (
        f"Multi30k de-en, {facts['epochs']} epochs ({facts['updates']} updates) for {who}, test2016; BLEU "
        f"{facts['signature']}; 'paper' is Deng et al.'s Table 1 and 3 on IWSLT14, for `bayesian-wc` BAM's Sec. 4.4 "
        "(where soft attention has 32.77) and Table 8 (parameters, seconds of a step on a V100); 'step / soft' is from "
        "the benchmark. Made by `probattn compare translation --scale multi30k --num_seeds 3 --output "
        "results/nmt_multi30k`."
    )
    claims = claims_table(results, step_ratios(), least_bleu=LEAST_BLEU)
    return f"{published_table(results, step_ratios())}\n{note}\n\n{claims}".rstrip("\n") + "\n"


def step_ratios() -> dict[str, float]:
    """Time of a training step over soft attention's, by row; skipping negligible alignments, as the scale does."""
    ratios = benchmark_ratios("Training step")
    return {name: ratios.get(f"{name}, skipping", ratio) for name, ratio in ratios.items() if "," not in name}


def benchmark_ratios(title: str) -> dict[str, float]:
    """The times of one table of the translation benchmark, by contestant."""
    tables = json.loads((ROOT / "results" / "bench_translation.json").read_text())["tables"]
    rows = next(table["rows"] for table in tables if table["title"] == title)
    return {row["name"]: row["ratio"] for row in rows}


def k_max() -> str:
    """One trained model under several ways of predicting: the K-max curve, its verdicts and the cross-tests."""
    paths = sorted((ROOT / "results" / "nmt_kmax").glob("*.json"))
    records = {path.stem: json.loads(path.read_text()) for path in paths}
    note = (
        "Multi30k, test2016, beam 10. Times are of single sittings on a machine that did other work too; the verdict "
        "on time is the benchmark's. 'paper' is Deng et al.'s Table 2. Made by `probattn eval "
        "results/nmt_multi30k/runs/<row>-seed0 --test_with soft exact kmax:1 ... --output "
        "results/nmt_kmax/<row>-seed0.json`."
    )
    verdicts = verdict_table(records, time_over_exact=k_max_time())
    return f"{curve_table(records)}\n{note}\n\n{verdicts}".rstrip("\n") + "\n"


def europarl() -> str:
    """Alignments of models trained on the WMT text against Europarl's gold links."""
    paths = sorted((ROOT / "results" / "nmt_europarl").glob("*.json"))
    if not paths:
        return "No results yet.\n"
    note = (
        "Europarl de-en, 100 sentence pairs with sure and possible links; models of the scale `wmt10k`, 10,000 pairs "
        "of WMT text. Made by `python -m probattn.recipes.studies run nmt_wmt10k` and `probattn eval "
        "results/nmt_wmt10k/runs/<row>-seed0 --gold_set de-en --output results/nmt_europarl/<row>-seed0.json`."
    )
    return f"{gold_table({path.stem: json.loads(path.read_text()) for path in paths})}\n{note}\n"


def k_max_time() -> float | None:
    """Time of a beam search that mixes over five alignments, over one that mixes over all; None if not measured."""
    times = benchmark_ratios("Decoding")
    names = ("beam 10, Enumerate(5)", "beam 10, Enumerate()")
    return times[names[0]] / times[names[1]] if all(name in times for name in names) else None


def generated(folder: str, metrics: Collection[str], settings: str = "") -> str:
    """Translation of the generated corpus, with alignment error rates or entropies."""
    results = stored(ROOT / "results" / folder, TRANSLATION.rows)
    if not results:
        return "No results yet.\n"
    seeds = sorted({result.seed for result in results})
    note = (
        f"Seeds {seeds}, {results[0].facts['updates']} updates; means and standard deviations over seeds. Made by "
        f"`probattn compare translation --rows {' '.join(dict.fromkeys(result.row for result in results))} --num_seeds "
        f"{len(seeds)}{settings} --output results/{folder}`."
    )
    columns = [column for column in COLUMNS if column.metric in metrics]
    return f"{render_markdown(results, columns)}\n{note}\n"


def graphs(name: str) -> str:
    """Graph attention on one graph: accuracy beside the paper's, what the KL does, calibration, uncertainty."""
    folder = ROOT / "results" / "gat" / name
    results = read_results([path for row in GRAPHS.rows if (path := folder / f"{row}.json").exists()])
    if not results:
        return f"No results for {name} yet.\n"
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    note = (
        f"{name.capitalize()}, public split, {facts['train_nodes']} labelled nodes, seeds {seeds[0]} to {seeds[-1]}; "
        "mean and standard error, differences paired by seed with p-values of a t-test, 'Holm p' adjusted for their "
        f"number; 'paper' is BAM's Table 1. Made by `probattn compare gat --scale {name} --num_seeds {len(seeds)} "
        f"--output results/gat/{name}`."
    )
    gradients = gradient_table(results)
    parts = [as_markdown(*accuracy_table(results)), note]
    parts += ["\n**The KL's gradient over the likelihood's**\n", as_markdown(*gradients)] if gradients[1] else []
    parts += ["\n**Plug-in predictions, lowest validation loss**\n", as_markdown(*calibration_table(results))]
    differences = difference_table(results)
    if differences[1]:
        parts += ["\n**Against plain attention, both rules, paired by seed; * where Holm's p is below 0.05**\n"]
        parts += [as_markdown(*differences)]
    parts += [f"\n**{facts['draws']} draws, lowest validation loss**\n", as_markdown(*uncertainty_table(results))]
    return "\n".join(parts).rstrip("\n") + "\n"


def graph_search(name: Graph) -> str:
    """What the searches on one graph tried and found, as far as they were run."""
    folder = ROOT / "results" / "gat" / "search"

    def found(part: str) -> dict[str, dict[str, float]]:
        path = folder / f"{name}-{part}.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        return {key: trial["metrics"] for key, trial in known.items()}

    best = folder / f"{name}-best.json"
    chosen = [tuple(pair) for pair in json.loads(best.read_text())] if best.exists() else []
    parts = []
    for title, part, plan, table in (
        ("Noise and KL weight of the rows -ours, validation nodes", "weights", weights_plan(name), weights_table),
        ("Regimes, validation nodes: against plain attention", "regimes", regimes_plan(), regimes_table),
        (f"Confirmation, test nodes, {len(CONFIRM_SEEDS)} new seeds", "confirm", confirm_plan(chosen), confirm_table),
    ):
        trials, known = trials_of(plan), found(part)
        if not trials or any(trial.key not in known for trial in trials):
            continue
        before = {"weights": [name], "regimes": [], "confirm": [chosen]}[part]
        parts += [f"**{title}** (`python -m probattn.recipes.gat_search {part} --graph {name}`)\n"]
        parts += [table(*before, known)]
    return "\n".join(parts).rstrip("\n") + "\n" if parts else f"No searches on {name} yet.\n"


def glue(name: str) -> str:
    """Fine-tuned MiniLM on one task: the metric beside the paper's, what the KL does, calibration, uncertainty."""
    folder = ROOT / "results" / "glue" / name
    results = read_results([path for row in GLUE.rows if (path := folder / f"{row}.json").exists()])
    if not results:
        return f"No results for {name} yet.\n"
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    note = (
        f"{name}, {facts['train_examples']} training and {facts['test_examples']} test examples, {facts['epochs']} "
        f"epochs, seeds {seeds[0]} to {seeds[-1]}; percent, mean and standard error, differences paired by seed with "
        "p-values of a t-test, 'Holm p' adjusted for their number; 'paper' is BAM's Table 5, of ALBERT; "
        f"{facts['precision']}. Made by `python -m probattn.recipes.studies run glue/{name}`."
    )
    kl = kl_table(results)
    parts = [as_markdown(*main_table(results)), note]
    parts += ["\n**The KL**\n", as_markdown(*kl)] if kl[1] else []
    parts += ["\n**Plug-in predictions**\n", as_markdown(*glue_calibration_table(results))]
    parts += [f"\n**{facts['draws']} draws, {facts['drawn_examples']} test examples**\n"]
    parts += [as_markdown(*glue_uncertainty_table(results))]
    gains, compared = gain_table(results), published_comparison(results)
    parts += [f"\n**What draws change**, minus the plain prediction of the same model; {STAR}\n"] if gains[1] else []
    parts += [as_markdown(*gains)] if gains[1] else []
    if compared[1]:
        parts += [f"\n**The paper's comparison**: rows on both minus soft on dropout; {STAR}\n", as_markdown(*compared)]
    return "\n".join(parts).rstrip("\n") + "\n"


def glue_tasks() -> str:
    """What random weights change in the metrics of all tasks."""
    found = {}
    for name in ("cola", "stsb", "mrpc", "rte"):
        folder = ROOT / "results" / "glue" / name
        if results := read_results([path for row in GLUE.rows if (path := folder / f"{row}.json").exists()]):
            found[name] = results
    note = (
        "Clean test examples, percent, paired by seed; * p < 0.05 of a t-test, adjusted (Holm) for the rows of a task."
    )
    return f"{as_markdown(*across_tasks(found))}\n{note}\n" if found else "No results yet.\n"


def glue_search() -> str:
    """Validation numbers of other noise and other weights of the KL, where they were searched."""
    folder = ROOT / "results" / "glue" / "search"
    parts = []
    for name in ("mrpc", "cola", "rte", "stsb"):
        table = stored_table(name, precision="bf16", output=folder)
        command = f"`python -m probattn.recipes.glue_search --task {name} --precision bf16`"
        parts += [f"**{name}**, one seed, validation examples only; {command}\n", table] if table else []
    return "\n".join(parts).rstrip("\n") + "\n" if parts else "No search yet.\n"


GENERATION = {
    "question_generation": ("squad", QUESTIONS),
    "dialogue": ("cornell", QUESTIONS),
    "pilot_vae": ("captions", PILOT),
}
"""By folder of results: the scale, and the recipe that has the rows."""


def generation(folder: Path = ROOT / "results") -> dict[Path, str]:
    """Text generation on each corpus, and the strength of the attention's KL: pages, and plots where there are results.

    Args:
        folder: Of results.
    """
    made = {}
    for name, (scale, recipe) in GENERATION.items():
        made[name] = generation_page(name, stored(folder / name, recipe.rows), scale=scale)
    soft = stored(folder / "question_generation", ["ved-dattn"])
    made["gamma"] = sweep_page(ROW, swept(folder / "question_generation" / "gamma"), soft[0] if soft else None)
    plots = {PLOTS / f"{name}.svg": plot for _, drawn in made.values() for name, plot in drawn.items()}
    return {PAGES / f"generation_{name}.md": page for name, (page, _) in made.items()} | plots


def text(scale: str) -> str:
    """Text models on one corpus."""
    folder = ROOT / "results" / f"text_{scale}"
    return comparison_page(scale, stored(folder, TEXT.rows), read_cells(folder / "fluency"))


def text_bounds(folder: Path = ROOT / "results") -> dict[str, str]:
    """Rows that train the summed bound, beside the language model: generated sentences, and Penn Treebank.

    Args:
        folder: Of results.
    """
    language_model = stored(folder / "text_ptb", ["lstm-lm"])
    treebank = [*language_model, *stored(folder / "text_bounds_ptb", TEXT.rows)]
    return {
        "text_bounds": bounds_page("generated sentences", stored(folder / "text_bounds", TEXT.rows)),
        "text_bounds_ptb": bounds_page("Penn Treebank", treebank),
    }


def text_studies() -> dict[Path, str]:
    """Sensitivity and augmentation of text models: pages, and plots where there are results."""
    results = ROOT / "results"
    dynamics = stored(results / "text_ptb", TEXT.rows)
    studies = {
        "text_sensitivity": sensitivity_page(read_cells(results / "text_sensitivity" / "captions"), dynamics),
        "text_augmentation": augmentation_page(read_cells(results / "text_augmentation" / "captions")),
    }
    plots = {PLOTS / f"{name}.svg": plot for _, made in studies.values() for name, plot in made.items()}
    return {PAGES / f"{name}.md": page for name, (page, _) in studies.items()} | plots


def captioning(scale: str) -> str:
    """Captions of pictures: scores beside the paper's, attention, rows that broke."""
    return captioning_page(scale, stored(ROOT / "results" / f"captioning_{scale}", CAPTIONING.rows))


def vqa(scale: str) -> str:
    """Questions about pictures: answers beside the papers', attention, uncertainty, claims."""
    return vqa_page(scale, stored(ROOT / "results" / f"vqa_{scale}", VQA.rows))


def findings() -> str:
    """Every claim of the four papers that our rows can judge."""
    results = {}
    for place in dict.fromkeys(claim.place for claim in CLAIMS):
        rows = {claim.row for claim in CLAIMS if claim.place == place}
        rows |= {claim.baseline for claim in CLAIMS if claim.place == place}
        folder = ROOT / "results" / place
        packed = [path for row in sorted(rows) if (path := folder / f"{row}.json").exists()]
        results[place] = read_results(packed) if packed else stored(folder, sorted(rows))
    header, lines = findings_table(results)
    judged = [line for line in lines if line[-1] != "not run"]
    note = f"All {len(lines)} differences have been measured."
    if len(judged) < len(lines):
        note = f"{len(judged)} of {len(lines)} differences have been measured; the others are left out of the table."
    return f"{as_markdown(header, judged)}\n{note}\n"


def benchmark(name: str) -> str:
    """Speed and memory."""
    return render_benchmark(json.loads((ROOT / "results" / f"bench_{name}.json").read_text()))


def attention() -> dict[Path, str]:
    """Speed and memory of dense attention: the tables, and the plots where there are results."""
    page, stored_record = PAGES / "bench_attention.md", ROOT / "results" / "bench_attention.json"
    if not stored_record.exists():
        return {page: "No results of dense attention yet.\n"}
    record = json.loads(stored_record.read_text())
    plots = attention_plots(record)
    links = "\n\n".join(f"![{name.rpartition('_')[2]} over n](assets/{name}.svg)" for name in plots)
    return {page: f"{links}\n\n{render_attention(record)}"} | {PLOTS / f"{name}.svg": plots[name] for name in plots}


def alignments() -> dict[Path, str]:
    """The picture on the first page: a sentence whose words change places."""
    rows = ("soft", "marginal", "variational-enum")
    results = {row: stored(ROOT / "results" / "nmt_longer", [row])[0] for row in rows}
    return {PLOTS / "alignments.svg": sentence_picture(results, 1)}


def main() -> None:
    """Write or check all pages."""
    is_check = "--check" in sys.argv[1:]
    stale = []
    pages = {
        "bench_graphs": benchmark("graphs"),
        "bench_minilm": benchmark("minilm"),
        "bench_text_models": benchmark("text_models"),
        "bench_translation": benchmark("translation"),
        **{f"captioning_{scale}": captioning(scale) for scale in ("flickr8k", "scenes")},
        "estimators": estimators(),
        "findings": findings(),
        **{f"gat_{name}": graphs(name) for name in GRAPH_NAMES},
        **{f"gat_search_{name}": graph_search(name) for name in GRAPH_NAMES},
        **{f"glue_{name}": glue(name) for name in ("mrpc", "cola", "rte", "stsb")},
        "glue_search": glue_search(),
        "glue_tasks": glue_tasks(),
        "nmt_europarl": europarl(),
        "nmt_generated": generated("nmt_generated", GENERATED_METRICS),
        "nmt_longer": generated("nmt_longer", LONGER_METRICS, " --set epochs=20"),
        "nmt_kmax": k_max(),
        "nmt_multi30k": multi30k(),
        "recall": recall(),
        "studies": status(ROOT / "results"),
        **text_bounds(),
        **{f"vqa_{scale}": vqa(scale) for scale in ("daquar", "scenes")},
        **{f"text_{scale}": text(scale) for scale in ("ptb", "captions", "yahoo")},
    }
    files = {PAGES / f"{name}.md": page for name, page in pages.items()} | attention() | generation() | text_studies()
    files |= alignments()
    for path, page in files.items():
        if is_check:
            stale += [] if path.exists() and path.read_text() == page else [str(path.relative_to(ROOT))]
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page)
    if stale:
        raise SystemExit(f"not what the results say: {stale}; run python scripts/render_tables.py")


if __name__ == "__main__":
    main()

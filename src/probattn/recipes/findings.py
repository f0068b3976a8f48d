"""The four papers' claims in one table: what each says, what our results say, and with how many seeds.

A claim is a difference between two rows of one comparison. With two seeds or more it is paired by seed and tested; with
one, or with two that agree and are not significant, it is only a sign. A verdict is at the 5% level, adjusted (Holm)
for the rows of the same comparison and metric. A claim that a row is hardly worse has a margin: it holds where the
whole 95% confidence interval is above that limit. Claims whose rows have not been run are listed as such.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probattn.recipes import gat_tables, generation_tables, glue_tables
from probattn.recipes.captioning_claims import CLAIMS as CAPTION_CLAIMS
from probattn.recipes.generation_claims import TOLERANCE
from probattn.recipes.paired import LEVEL, PairedDifference, by_seed, holm, paired_differences
from probattn.recipes.results import RowResult
from probattn.recipes.text_published import PUBLISHED as TEXT
from probattn.recipes.translation_claims import BAM, DENG
from probattn.recipes.vqa_claims import CLAIMS as VQA_CLAIMS

__all__ = ["CLAIMS", "Claim", "findings_table"]

Table = tuple[list[str], list[list[str]]]

_PERCENT = 100.0


@dataclass(frozen=True)
class Claim:
    """That a row is better, or another, than a baseline.

    Attributes:
        paper: Who says so.
        place: Folder of our results.
        text: What differs.
        row: Which row,
        baseline: from which.
        metric: Of the results.
        published: The paper's difference; its sign is the claim.
        scale: From our units to the paper's.
        digits: Behind the point.
        margin: How much lower the row may be, where the claim is that it is hardly lower; 0: it is a sign.
    """

    paper: str
    place: str
    text: str
    row: str
    baseline: str
    metric: str
    published: float
    scale: float = 1.0
    digits: int = 2
    margin: float = 0.0

    @property
    def pair(self) -> str:
        """The two rows."""
        return f"{self.row} − {self.baseline}"


def _translation() -> list[Claim]:
    soft, found = DENG["soft"], []
    for row, paper in DENG.items():
        for metric, value, old in (
            ("ppl", paper.ppl, soft.ppl),
            ("bleu", paper.bleu, soft.bleu),
            ("entropy", paper.entropy, soft.entropy),
        ):
            if row != "soft" and value is not None and old is not None:
                text = {"ppl": "perplexity", "bleu": "BLEU", "entropy": "entropy of the attention"}[metric]
                found.append(Claim("Deng", "nmt_multi30k", text, row, "soft", metric, value - old))
    gain = (BAM["bayesian-wc"].bleu or 0.0) - (BAM["soft"].bleu or 0.0)
    return [*found, Claim("BAM", "nmt_multi30k", "BLEU", "bayesian-wc", "soft", "bleu", gain)]


def _graphs() -> list[Claim]:
    metric = "gat/clean/mean/accuracy"
    return [
        Claim("BAM", f"gat/{graph}", "accuracy", row, "gat", metric, accuracy[name] - accuracy["gat"], _PERCENT)
        for graph, accuracy in gat_tables.PUBLISHED.items()
        for name, row in (("no-kl", "no-kl"), *((one, f"{one}-code") for one in ("lf", "lc", "wf", "wc")))
    ]


def _pretrained() -> list[Claim]:
    metrics = {"mrpc": "accuracy", "cola": "matthews", "rte": "accuracy", "stsb": "pearson"}
    found = []
    for task, metric in metrics.items():
        numbers = glue_tables.PUBLISHED[task]
        gain = numbers["wc"][0] - numbers["soft"][0]
        text = {"matthews": "Matthews' correlation", "pearson": "Pearson's correlation"}.get(metric, metric)
        found.append(Claim("BAM", f"glue/{task}", text, "wc", "soft", f"clean/mean/{metric}", gain, _PERCENT))
    return found


def _pictures() -> list[Claim]:
    asked = [
        Claim(
            "BAM" if one.row.startswith("mcan") else "Deng",
            f"vqa_{scale}",
            one.metric.replace("/mean/", ": ").replace("/drawn/", ": ").replace("nll", "NLL").replace("pavpu", "PAvPU"),
            one.row,
            one.baseline,
            one.metric,
            one.paper,
            one.scale,
            one.digits,
        )
        for scale in ("scenes", "daquar")
        for one in VQA_CLAIMS
        if one.paper is not None
    ]
    captioned = [
        Claim("BAM", "captioning_flickr8k", one.text, one.row, one.baseline, one.metric, one.paper)
        for one in CAPTION_CLAIMS
        if one.paper is not None
    ]
    return [*asked, *captioned]


def _generation() -> list[Claim]:
    found = []
    for place, corpus, rows in (
        ("question_generation", "squad", ("ved-vattn-0", "ved-vattn-h")),
        ("dialogue", "cornell", ("ved-vattn-h",)),
    ):
        numbers = generation_tables.PUBLISHED[corpus]
        for row in rows:
            for metric, title in (("entropy", "entropy"), ("dist1", "Dist-1"), ("dist2", "Dist-2")):
                gain = numbers[row][metric] - numbers["ved-dattn"][metric]
                found.append(Claim("Bahuleyan", place, title, row, "ved-dattn", metric, gain, digits=3))
            bleu = "sample_bleu4" if "sample_bleu4" in numbers[row] else "sample_bleu2"
            text = f"BLEU-{bleu[-1]} of samples at most {TOLERANCE:g} lower"
            gain = numbers[row][bleu] - numbers["ved-dattn"][bleu]
            found.append(Claim("Bahuleyan", place, text, row, "ved-dattn", bleu, gain, margin=TOLERANCE))
    pilot = generation_tables.PUBLISHED["captions"]
    gain = pilot["vae"]["entropy"] - pilot["vae-init"]["entropy"]
    return [*found, Claim("Bahuleyan", "pilot_vae", "entropy", "vae", "vae-init", "entropy", gain)]


def _text() -> list[Claim]:
    numbers = TEXT["ptb"]
    pairs = (("davam-128", "vae-anneal"), ("davam-512", "vae-anneal"), ("davam-512", "gavam"), ("gavam", "vae-anneal"))
    found = []
    for row, baseline in pairs:
        gain = numbers[row]["reconstruction"] - numbers[baseline]["reconstruction"]
        found.append(Claim("DAVAM", "text_ptb", "reconstruction (nats)", row, baseline, "reconstruction", gain))
    return found


CLAIMS: Sequence[Claim] = (*_translation(), *_graphs(), *_pretrained(), *_pictures(), *_generation(), *_text())
"""In the order of the tables."""


def findings_table(results: Mapping[str, Sequence[RowResult]]) -> Table:
    """One line per claim.

    Args:
        results: By folder; claims of folders or rows that are missing say "not run".
    """
    paired = {claim: _paired(claim, results.get(claim.place, ())) for claim in CLAIMS}
    lines = []
    for claim in CLAIMS:
        family = {
            other.pair: one.p_value
            for other, one in paired.items()
            if one is not None and (other.place, other.metric) == (claim.place, claim.metric)
        }
        tested = paired[claim]
        if tested is None:
            here, seeds, verdict = _sign(claim, results.get(claim.place, ()))
        else:
            here, seeds = tested.text(claim.digits, claim.scale), str(tested.count)
            verdict = _verdict(claim, tested, holm(family)[claim.pair])
        published = f"{claim.published:+.{claim.digits}f}"
        lines.append([claim.paper, claim.place, f"{claim.text}, {claim.pair}", published, here, seeds, verdict])
    return ["paper", "results", "difference", "paper says", "here", "seeds", "verdict"], lines


def _paired(claim: Claim, results: Sequence[RowResult]) -> PairedDifference | None:
    return paired_differences(results, claim.metric, baseline=claim.baseline).get(claim.row)


def _verdict(claim: Claim, tested: PairedDifference, p_value: float) -> str:
    if claim.margin > 0.0:
        above = claim.scale * tested.mean + claim.margin
        if abs(above) <= claim.scale * tested.half_width:
            return "undecided"
        return "holds" if above > 0.0 else "does not hold"
    is_same = (tested.mean > 0.0) == (claim.published > 0.0)
    if p_value < LEVEL:
        return "holds" if is_same else "the other way round"
    if tested.is_sign_of_two:
        return "same sign" if is_same else "other sign"
    return "no difference seen"


def _sign(claim: Claim, results: Sequence[RowResult]) -> tuple[str, str, str]:
    """Our difference with one seed, their number, and whether the sign is the paper's."""
    values = {row: by_seed(results, claim.metric, row) for row in (claim.row, claim.baseline)}
    shared = sorted(values[claim.row].keys() & values[claim.baseline].keys())
    if not shared:
        return "-", "0", "not run"
    difference = claim.scale * (values[claim.row][shared[0]] - values[claim.baseline][shared[0]])
    if claim.margin > 0.0:
        return f"{difference:+.{claim.digits}f}", "1", "so" if difference > -claim.margin else "not so"
    is_same = (difference > 0.0) == (claim.published > 0.0)
    return f"{difference:+.{claim.digits}f}", "1", "same sign" if is_same else "other sign"

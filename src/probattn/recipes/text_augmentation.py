"""Generated text as training text for a language model of a small corpus (DAVAM, Sec. IV-C.3 and Fig. 3).

    python -m probattn.recipes.text_augmentation --scale generated --output runs/augmentation
    PROBATTN_DATA=... python -m probattn.recipes.text_augmentation --scale captions --seeds '[0, 1, 2]' --workers 2

A language model is trained on a small corpus, alone or with 0.5 to 4 times as many generated sentences, and judged by
its perplexity on held-out captions. Generators: `davam-small` and `lstm-small` saw only the small corpus; `davam-all`
and `lstm-all` saw all 27,262 captions of Multi30k, the small corpus and the others, which therefore leak into what it
writes; `real` is no generator but further captions, the most that augmentation could give. The judged model is trained
until its validation no longer improves, in the same way whatever it is trained on (`text_augmentation_study`). The
words are the most frequent ones of all captions, the same in every cell, so that perplexities can be compared. A cell
is a JSON file in OUTPUT/<scale>; what is there is not trained again, and what was stopped goes on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli

from probattn.data.text import EncodedSentences
from probattn.metrics import exact_ppl
from probattn.recipes.later_settings import without_added
from probattn.recipes.recipe import Run
from probattn.recipes.report import as_markdown
from probattn.recipes.storage import write_atomically
from probattn.recipes.text_augmentation_study import GENERATORS, JUDGED, ROWS, SEE_ALL, STUDIES, Generator, Study
from probattn.recipes.text_augmentation_tables import augmentation_table
from probattn.recipes.text_cells import find_cell, fingerprint, read_cells, run_cells, store_cell, train_on
from probattn.recipes.text_data import TextCorpus, load_corpus
from probattn.recipes.text_drawing import Law
from probattn.recipes.text_eval import tally
from probattn.recipes.text_vae import RECIPE
from probattn.training import TrainResult

__all__ = ["Bench", "main"]


def main(
    scale: str = "captions",
    output: Path = Path("results/text_augmentation"),
    work: Path = Path("runs/text_augmentation"),
    sizes: Sequence[int] | None = None,
    generators: Sequence[Generator] = GENERATORS,
    seeds: Sequence[int] = (0,),
    workers: int = 1,
) -> None:
    """Train what is not there yet, and print the table.

    Args:
        scale: captions, or generated to see that it runs.
        output: Folder of the results.
        work: Folder of checkpoints and generated text.
        sizes: Some of the study's small corpora; all by default.
        generators: Some of davam-small, davam-all, lstm-small, lstm-all, real.
        seeds: Of weights and noise; the small corpora are the same.
        workers: Processes, one thread and one generator or cell each.
    """
    if scale not in STUDIES:
        raise SystemExit(f"there are the scales {list(STUDIES)}, got '{scale}'")
    study = STUDIES[scale]
    if sizes is not None and not set(sizes) <= set(study.sizes):
        raise SystemExit(f"the study of {scale} has the sizes {list(study.sizes)}, got {list(sizes)}")
    added: list[tuple[Generator | None, float]] = [(None, 0.0)]
    added += [(generator, times) for generator in generators for times in study.times]
    cells = [(size, *pair) for size in (study.sizes if sizes is None else sizes) for pair in added]
    for seed in seeds:
        bench = Bench(scale, study, work=work / scale, seed=seed)
        missing = [cell for cell in cells if find_cell(*bench.place(*cell, output / scale)) is None]
        # generators first, each once: several cells share it; in this order the longest come first
        trained = sorted({(one, 0 if one in SEE_ALL else size) for size, one, _ in missing if one in ROWS})
        for jobs in ([(size, one, None) for one, size in trained], missing):
            run_cells(_work, [(scale, work / scale, output / scale, seed, *job) for job in jobs], workers=workers)
    print(as_markdown(*augmentation_table(read_cells(output / scale))))


@dataclass(frozen=True)
class Bench:
    """The text of a study and what is trained on it, with one seed."""

    scale: str
    study: Study
    work: Path
    seed: int

    @cached_property
    def whole(self) -> TextCorpus:
        """All text, with the words that every cell uses."""
        own = {"corpus.vocabulary_size": self.study.vocabulary_size, "corpus.test_size": self.study.test_size}
        settings, _ = RECIPE.load(RECIPE.configs(JUDGED, self.scale), own)
        return load_corpus(settings.corpus)

    def place(self, size: int, generator: Generator | None, times: float, folder: Path) -> tuple[Path, str]:
        """The file of a cell, and the fingerprint that it has."""
        name = f"{size}-{generator or 'none'}-{times:g}-seed{self.seed}"
        mark = fingerprint(asdict(self.study), self.scale, name, self.whole.digest, *self._plain(generator))
        return folder / f"{name}.json", mark

    def judge(self, size: int, generator: Generator | None, times: float, folder: Path) -> None:
        """Train a language model on a small corpus and generated text."""
        path, mark = self.place(size, generator, times, folder)
        added = self._added(size, generator, round(times * size)) if generator is not None else ()
        corpus = self._corpus((*self.whole.texts["train"][:size], *added))
        writer, result = train_on(corpus, self._run(JUDGED, self.work / f"{path.stem}-{mark[:8]}"))
        found = tally(writer.model, corpus.encoded["test"])
        record = {
            "size": size,
            "generator": generator or "none",
            "times": times,
            "seed": self.seed,
            "scale": self.scale,
            "study": asdict(self.study),
            "test_ppl": exact_ppl(found.log_lik, found.tokens),
            "sentences": len(corpus.texts["train"]),
            **_effort(result),
            "writer": self._writer(size, generator),
            "new": 1.0 - self._share_known(added, self.whole.texts["train"][:size]),
            "leaked": self._share_known(added, (*self.whole.texts["valid"], *self.whole.texts["test"])),
            "examples": list(added[:5]),
        }
        store_cell(path, mark, record)
        print(f"{path.stem}: test perplexity {record['test_ppl']:.2f}")

    def _added(self, size: int, generator: Generator, count: int) -> tuple[str, ...]:
        """Further sentences: those of fewer times are the first of those of more."""
        if generator == "real":
            return self.whole.texts["train"][size : size + count]
        return self.generated(size, generator)[:count]

    def generated(self, size: int, generator: Generator) -> tuple[str, ...]:
        """All sentences of a generator, which is trained unless they are there; one that saw all has no size."""
        is_all = generator in SEE_ALL
        most = round(max(self.study.times) * max(self.study.sizes if is_all else (size,)))
        path = self._texts(size, generator)
        if not path.exists():
            seen = self.whole.texts["train"][: self.study.all_size if is_all else size]
            run = self._run(ROWS[generator], path.with_suffix(""), sees_all=is_all)
            writer, result = train_on(self._corpus(seen), run)
            # without the unknown word, every further generated sentence would make the judged model expect it less
            law = Law(word_temperature=self.study.word_temperature, has_unknown=True)
            texts = [one.text for block in writer.samples(most, law, seed=self.seed) for one in block]
            write_atomically(path.with_suffix(".json"), json.dumps(_effort(result)) + "\n")
            write_atomically(path, "\n".join(texts) + "\n")
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        if len(lines) != most:
            raise ValueError(f"{path} has {len(lines)} lines where {most} were generated; remove it, and run again")
        return tuple(lines)

    def _texts(self, size: int, generator: Generator) -> Path:
        """The file of a generator's sentences; beside it is one that says how it was trained."""
        name = f"{generator}-{'all' if generator in SEE_ALL else size}-seed{self.seed}"
        mark = fingerprint(asdict(self.study), self.whole.digest, *self._plain(generator))[:8]
        return self.work / f"{name}-{mark}.txt"

    def _writer(self, size: int, generator: Generator | None) -> dict[str, Any]:
        """How a generator was trained; nothing where none was."""
        if generator is None or generator not in ROWS:
            return {}
        found: dict[str, Any] = json.loads(self._texts(size, generator).with_suffix(".json").read_bytes())
        return found

    def _share_known(self, texts: Sequence[str], known: Sequence[str]) -> float:
        """Share of texts that are among known ones, word numbers compared: generated text has no rare words."""
        encode = self.whole.tokenizer.encode
        have = {tuple(encode(text)) for text in known}
        return sum(tuple(encode(text)) in have for text in texts) / max(1, len(texts))

    def _corpus(self, train: Sequence[str]) -> TextCorpus:
        """The same words and held-out text with other training text."""
        encoded = EncodedSentences.from_lines(train, self.whole.tokenizer, name="the training text of a cell")
        return replace(
            self.whole,
            texts={**self.whole.texts, "train": tuple(train)},
            encoded={**self.whole.encoded, "train": encoded},
        )

    def _run(self, row: str, folder: Path, *, sees_all: bool = False) -> Run:
        overrides = {**self.study.overrides(row, self.scale, sees_all=sees_all), "seed": self.seed}
        settings, plain = RECIPE.load(RECIPE.configs(row, self.scale), overrides)
        return Run(settings, plain, folder, show_progress=False)

    def _plain(self, generator: Generator | None) -> list[Mapping[str, Any]]:
        """Settings that a cell depends on."""
        rows = [JUDGED, *([ROWS[generator]] if generator is not None and generator in ROWS else [])]
        runs = [self._run(row, Path(), sees_all=generator in SEE_ALL) for row in rows]
        return [without_added(run.settings, dict(run.plain)) for run in runs]


def _effort(result: TrainResult) -> dict[str, Any]:
    """How long a model was trained, when it was at its best and how good it was then."""
    return {
        "valid_ppl": result.best_value,
        "updates": result.updates,
        "best_update": int(result.best.name.removeprefix("update-")),
        "epochs": result.epochs,
        "seconds": result.train_seconds,
    }


def _work(
    scale: str, work: Path, output: Path, seed: int, size: int, generator: Generator | None, times: float | None
) -> None:
    """One cell, or a generator alone, for which `times` is None."""
    bench = Bench(scale, STUDIES[scale], work=work, seed=seed)
    if times is not None:
        bench.judge(size, generator, times, output)
    elif generator is not None:
        bench.generated(size, generator)


if __name__ == "__main__":
    auto_cli(main, as_positional=False)

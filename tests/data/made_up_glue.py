"""Files with the layouts of GLUE's large tasks, and nothing in them."""

from pathlib import Path

__all__ = ["CLASSES", "LAYOUTS", "write_made_up"]

MNLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
LAYOUTS = {  # columns of train and dev set as GLUE distributes them
    "mnli": (f"{MNLI} sentence1 sentence2 label1 gold_label", f"{MNLI} sentence1 sentence2 label1 label2 gold_label"),
    "qnli": ("index question sentence label",) * 2,
    "qqp": ("id qid1 qid2 question1 question2 is_duplicate",) * 2,
}
CLASSES = {
    "mnli": ["contradiction", "entailment", "neutral"],
    "qnli": ["not_entailment", "entailment"],
    "qqp": ["0", "1"],
}


_TEXTS = ("sentence1", "sentence2", "question1", "question2", "question", "sentence")


def write_made_up(name: str, folder: Path, *, count: int) -> None:
    """Files with the layout of a task; the class of an example is its number modulo the number of classes."""
    (folder / "glue" / name.upper()).mkdir(parents=True)
    dev = "dev_matched.tsv" if name == "mnli" else "dev.tsv"
    for file, header in zip(("train.tsv", dev), LAYOUTS[name], strict=True):
        columns, lines = header.split(" "), []
        texts = [place for place, title in enumerate(columns) if title in _TEXTS]
        for number in range(count):
            cells = [f"{title} {number}" for title in columns]
            for side, place in zip(("first", "second"), texts, strict=True):
                cells[place] = f"{side} {number}"
            cells[-1] = CLASSES[name][number % len(CLASSES[name])]
            lines.append("\t".join(cells))
        (folder / "glue" / name.upper() / file).write_text("\n".join(["\t".join(columns), *lines]) + "\n")

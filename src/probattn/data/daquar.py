"""DAQUAR: questions about indoor photographs, with one answer each (Malinowski and Fritz, 2014).

| split | questions | pictures | different answers | answers known from train |
|---|---|---|---|---|
| train | 6,193 | 714 | 923 | |
| valid | 602 | 80 | 203 | 92.2 % |
| test | 5,673 | 653 | 870 | 90.2 % |

The official split of pictures in train and test; `valid` is a seeded tenth of the training *pictures*. Answers that
list several things ("chair, table") are one class each, and an answer is right where it is the same text: the usual
exact-match protocol, without the softer WUPS score. The name of the picture at the end of a question is taken out.

Types of answers: "number" (digits), "list" (several things), "colour", and "object" for all others.
The photographs are those of NYU Depth v2. Their features are 7 x 7 cells of a network's last layer, see
`probattn.data.image_features`.
"""

import re
from collections.abc import Mapping

from probattn.data.generated_deen.chooser import Chooser
from probattn.data.image_features import ImageFeatures, read_features
from probattn.data.parallel import read_lines
from probattn.data.picture_questions import PictureQuestion
from probattn.data.sources import Corpus, CorpusFile, locate, require_choice

__all__ = ["CORPUS", "NUM_QUESTIONS", "load", "load_features"]

CORPUS = Corpus(
    name="DAQUAR",
    homepage="https://www.mpi-inf.mpg.de/departments/computer-vision-and-machine-learning/research/vision-and-language/"
    "visual-turing-challenge",
    terms="research; cite the authors, and NYU Depth v2 for the photographs",
    twin="probattn.data.generated_scenes",
)

NUM_QUESTIONS = {"train": 6_193, "valid": 602, "test": 5_673}
"""Questions of each split."""

FEATURES = "daquar/effnet_lite0_7x7_pca96_int8.npz"
VALID_SHARE = 10  # one of so many training pictures
COLOURS = frozenset(
    {"beige", "black", "blue", "brown", "cyan", "gold", "golden", "gray", "green", "grey", "maroon", "orange", "pink"}
    | {"purple", "red", "silver", "tan", "teal", "violet", "white", "yellow"}
)
_PICTURE = re.compile(r"(?:\b(?:in|on|of)\s+)?(?:\b(?:the|this)\s+)?image\s?(\d+)")

# SHA-256 of the unpacked files.
SHA256 = {
    "all_qa_pairs.txt": "155702e229ac24e49bdde9791abd5f28469eea4615282ae0f570f4f9c0395dd5",
    "train_images_list.txt": "91d0269224e4131c7ddbfa1c1f429434f9e29ba507922bf72055bf3d7cab8cf3",
    "test_images_list.txt": "e7092892cc8049635e6b9465a7f5f6790119c32cfd3d7dd276b77ff6b6a952b3",
    "effnet_lite0_7x7_pca96_int8.npz": "9f0ffb5fec6aeeca290bbcea282e242e6f4b64becdae3ca8bdfbe2500fee3fec",
}


def load(split: str) -> tuple[PictureQuestion, ...]:
    """The questions of one split, as the file orders them.

    Args:
        split: "train", "valid" or "test".

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown split, or a file that is not the published one.
    """
    require_choice("split", split, NUM_QUESTIONS)
    lines = read_lines(_locate("all_qa_pairs.txt"))
    splits = _split_of_pictures()
    found = []
    for question, answer in zip(lines[0::2], lines[1::2], strict=True):
        parsed = parse(question, answer)
        if splits[parsed.picture] == split:
            found.append(parsed)
    return tuple(found)


def load_features() -> ImageFeatures:
    """(1449, 49, 96) features of all pictures.

    Raises:
        FileNotFoundError: They are not on this machine; the message says what to do.
    """
    return read_features(_locate("effnet_lite0_7x7_pca96_int8.npz"))


def parse(question: str, answer: str) -> PictureQuestion:
    """A question of the file, without the name of its picture.

    Example:
        >>> found = parse("what is on the left side of the image12 behind the door in the image12 ?", "a_lamp, cup")
        >>> found.picture, found.question, found.answers, found.kind
        ('image12.png', 'what is on the left side behind the door ?', ('a_lamp, cup',), 'list')
    """
    named = _PICTURE.search(question)
    if named is None:
        raise ValueError(f"expected the name of a picture such as image12 in the question {question!r}")
    words = " ".join(_PICTURE.sub(" ", question).split())
    return PictureQuestion(f"image{named.group(1)}.png", words, (answer.strip(),), kind=kind_of(answer.strip()))


def kind_of(answer: str) -> str:
    """The type of an answer."""
    if "," in answer:
        return "list"
    if answer.isdigit():
        return "number"
    return "colour" if answer in COLOURS else "object"


def _split_of_pictures() -> Mapping[str, str]:
    splits = {f"{name}.png": "test" for name in read_lines(_locate("test_images_list.txt"))}
    train = sorted(read_lines(_locate("train_images_list.txt")))
    left = list(train)
    chooser = Chooser("daquar/valid")
    for _ in range(round(len(train) / VALID_SHARE)):
        left.remove(chosen := chooser.pick(left))
        splits[f"{chosen}.png"] = "valid"
    return splits | {f"{name}.png": "train" for name in left}


def _locate(name: str) -> str:
    return str(locate(CorpusFile(CORPUS, f"daquar/{name}", sha256=SHA256[name])))

"""English captions of photographs as single sentences: Multi30k's English side and Flickr8k (Hodosh et al., 2013).

They stand in for the sentences of SNLI, whose premises are such captions, where text is encoded and decoded again
(Bahuleyan et al., 2018, the pilot study of Table 1). Multi30k has one caption an image, Flickr8k five.

| split | sentences | Multi30k | Flickr8k | words | types |
|---|---|---|---|---|---|
| train | 50,462 | 27,262 | 23,200 | 635,265 | 11,949 |
| valid | 5,778 | 986 | 4,792 | 70,469 | 3,922 |
| test | 5,971 | 1,000 | 4,971 | 72,318 | 3,877 |

Each corpus keeps its official split, but Flickr30k, where Multi30k's images come from, contains most of Flickr8k. An
image is known by the number in front of its name. Where the corpora disagree, the image stays where it is held out
(test before valid before train) and its captions in the other split are left out:

| left out | because the image is in | images | captions |
|---|---|---|---|
| Multi30k train | Flickr8k valid (867), Flickr8k test (871) | 1,738 | 1,738 |
| Multi30k valid | Flickr8k test | 28 | 28 |
| Flickr8k train | Multi30k valid (179), Multi30k test (173) | 352 | 1,760 |
| Flickr8k valid | Multi30k test | 36 | 180 |

No two splits share an image. For images that are in the same split of both, Multi30k's caption is nearly always one of
Flickr8k's five; the second copy is left out (5,040 in train, 28, 29). People write the same about different images all
the same: 41 sentences of valid and 61 of test, of 7.5 words on average, are also in train. Of the words of test, 0.7 %
are not.

All is lower-cased and split into words by the corpora's authors. What they did differently is made alike: Multi30k's
escapes are undone (`&apos;`, `&quot;`), n't is one word, and every sentence ends with a full stop, question or
exclamation mark (Flickr8k lacks it in 10 % of its captions).
Terms: both are for non-commercial research and education; ask before you redistribute anything.
"""

import html
import re
from collections.abc import Mapping

from probattn.data import multi30k
from probattn.data.parallel import read_lines, split_words
from probattn.data.sources import Corpus, CorpusFile, locate, require_choice

__all__ = ["FLICKR8K", "NUM_SENTENCES", "load", "tidy"]

FLICKR8K = Corpus(
    name="Flickr8k",
    homepage="https://hockenmaier.cs.illinois.edu/8k-pictures.html",
    terms="non-commercial research and education",
    twin="probattn.data.generated_questions (its source side)",
)

NUM_SENTENCES = {"train": 50_462, "valid": 5_778, "test": 5_971}
"""Sentences of each split."""

SPLITS = ("train", "valid", "test")  # the later one keeps an image that is in two
FLICKR8K_STEMS = {"train": "train", "valid": "dev", "test": "test"}
IMAGE_LISTS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/image_splits"

# SHA-256 of the unpacked files.
SHA256 = {
    "multi30k/image_splits/train.txt": "97ee57e160a46c7d0e75298ebf57967e1245698a6f8806436ff07e61d1a41221",
    "multi30k/image_splits/val.txt": "db26f03eaf833ec47bfaea129ed053b68cbcfc5d1f9a09c4cdf7c88fbfea7108",
    "multi30k/image_splits/test_2016_flickr.txt": "871e8ecafc66fb13e044ecccf669d04a865b4c58553227df86b933f0337a1563",
    "flickr8k/Flickr8k.token.txt": "1e1f3a371ba1a1bf742e6930521c037e046b2bf3fcc2390ba8405e0301ed7689",
    "flickr8k/Flickr_8k.trainImages.txt": "e330ddd5156a4c2d2e2b67bc587e70e588f2d132bd8a10dc54dcb71e58115d8e",
    "flickr8k/Flickr_8k.devImages.txt": "18ba829f47f6df1cb830bf7f0506e2ddf333818925299babbd1bbcaf50fdc504",
    "flickr8k/Flickr_8k.testImages.txt": "c0924146c131458ceba45da59670fe9520eadce1e5cafffa16a817672a9b1f17",
}


def load(split: str, *, may_download: bool = False) -> tuple[str, ...]:
    """The captions of one split, first Multi30k's, then Flickr8k's, as their files order them.

    Args:
        split: "train", "valid" or "test".
        may_download: Whether to fetch missing files of Multi30k; no address of Flickr8k's is known.

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown split, or a file that is not the published one.
    """
    require_choice("split", split, SPLITS)
    lists = {name: _multi30k_images(name, may_download=may_download) for name in SPLITS}
    more = {name: _flickr8k_images(name, may_download=may_download) for name in SPLITS}
    split_of = _split_of_images(lists, more)
    english = multi30k.load(split, source="de", target="en", may_download=may_download).target
    captions = list(zip(lists[split], english, strict=True))
    official = set(more[split])
    for line in read_lines(_locate("flickr8k/Flickr8k.token.txt", may_download)):
        name, caption = line.split("\t")
        if _number(name) in official:
            captions.append((_number(name), caption))
    found = ((image, tidy(caption)) for image, caption in captions if split_of[image] == split)
    return tuple(sentence for _, sentence in dict.fromkeys(found))  # many of Multi30k's are Flickr8k's own


def tidy(caption: str) -> str:
    r"""A tokenised caption of either corpus in the form of both.

    Example:
        >>> tidy("A man isn &apos;t in Bob &apos;s &quot; shop &quot; ,")
        'a man is n\'t in bob \'s " shop " .'
    """
    text = html.unescape(" ".join(split_words(caption.lower())))
    text = re.sub(r"n 't\b", " n't", text).rstrip(" ,;:")
    return text if re.search(r"[.!?]( \")?$", text) else f"{text} ."


def _split_of_images(*corpora: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Image -> the last of the splits that it is in."""
    return {image: name for name in SPLITS for corpus in corpora for image in corpus[name]}


def _multi30k_images(split: str, *, may_download: bool) -> tuple[str, ...]:
    path = f"multi30k/image_splits/{multi30k.STEMS[split]}.txt"
    return tuple(_number(name) for name in read_lines(_locate(path, may_download)))


def _flickr8k_images(split: str, *, may_download: bool) -> tuple[str, ...]:
    path = f"flickr8k/Flickr_8k.{FLICKR8K_STEMS[split]}Images.txt"
    return tuple(_number(name) for name in read_lines(_locate(path, may_download)))


def _number(name: str) -> str:
    """The number of a photograph: `1000268201` of `1000268201.jpg` and of `1000268201_693b08cb0e.jpg#0`."""
    found = re.match(r"\d+", name)
    if found is None:
        raise ValueError(f"expected the name of an image such as 1000268201.jpg, got {name!r}; the file is damaged")
    return found.group()


def _locate(path: str, may_download: bool) -> str:
    is_list = path.startswith("multi30k/")
    url = f"{IMAGE_LISTS}/{path.rpartition('/')[2]}" if is_list else None
    corpus = multi30k.CORPUS if is_list else FLICKR8K
    return str(locate(CorpusFile(corpus, path, sha256=SHA256[path], url=url), may_download=may_download))

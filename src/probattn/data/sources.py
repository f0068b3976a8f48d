"""How the files of a corpus are found: a folder of the user, a cache, a download.

The folder that the environment variable `PROBATTN_DATA` names comes first, then the cache (`~/.cache/probattn`, or
what `PROBATTN_CACHE` names). Downloads happen on request only, by an argument or by `PROBATTN_DOWNLOAD=1`, and come
from the official source. Wherever a file was found, the SHA-256 of its *unpacked* content must be the published one, so
it may be packed or plain.
"""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from probattn.core.arguments import require_choice
from probattn.data.parallel import BadLine, ParallelText, decompress, read_content, read_parallel

__all__ = [
    "Corpus",
    "CorpusFile",
    "cache_folder",
    "data_folder",
    "download",
    "load_pair",
    "locate",
    "require_choice",
    "write_atomically",
]

TIMEOUT_SECONDS = 60.0
PACKINGS = ("", ".gz", ".xz")


@dataclass(frozen=True)
class Corpus:
    """What a corpus is and where it comes from.

    Attributes:
        name: For messages.
        homepage: Where its authors present it.
        terms: What its use is bound to, in a sentence.
        twin: Where the generated corpus is that stands in for it.
    """

    name: str
    homepage: str
    terms: str
    twin: str = "probattn.data.generated_deen"


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus.

    Attributes:
        corpus: What it is part of.
        path: Below the data folder and below the cache, without the ending `.gz` or `.xz`.
        sha256: Of the unpacked content.
        url: Official address of the file, packed or plain; None where none is known.
    """

    corpus: Corpus
    path: str
    sha256: str
    url: str | None = None


def data_folder() -> Path | None:
    """The folder that `PROBATTN_DATA` names, or None.

    Raises:
        NotADirectoryError: The variable is set to something else.
    """
    name = os.environ.get("PROBATTN_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise NotADirectoryError(f"PROBATTN_DATA names {name}, which is not a folder; correct or unset it")
    return Path(name)


def cache_folder() -> Path:
    """The folder for downloads: what `PROBATTN_CACHE` names, else `~/.cache/probattn`. It need not exist."""
    name = os.environ.get("PROBATTN_CACHE")
    return Path(name) if name else Path.home() / ".cache" / "probattn"


def locate(file: CorpusFile, *, may_download: bool = False) -> Path:
    """Find a file of a corpus and check its content.

    Args:
        file: The file.
        may_download: Whether to get it from its official source if it is neither in the data folder nor in the cache;
            `PROBATTN_DOWNLOAD=1` in the environment says so for all files.

    Returns:
        Its path, which may end with `.gz` or `.xz`.

    Raises:
        FileNotFoundError: It is nowhere; the message lists the ways to get it.
        ValueError: Its content is not the published one.
        ConnectionError: The download failed.
    """
    for folder in (data_folder(), cache_folder()):
        for packing in PACKINGS if folder else ():
            path = Path(f"{folder}/{file.path}{packing}")
            if path.is_file():
                _verify(read_content(path), file, place=str(path))
                return path
    if may_download or os.environ.get("PROBATTN_DOWNLOAD") == "1":
        return download(file)
    raise FileNotFoundError(f"{file.path} of {file.corpus.name} is not on this machine. {_ways(file)}")


def download(file: CorpusFile) -> Path:
    """Get a file from its official source into the cache.

    The file appears under its name only when it is whole, checked and on disk: an interrupted download leaves nothing
    behind, and two processes may download at once.

    Raises:
        FileNotFoundError: No address is known.
        ConnectionError: The server could not be reached, has no such file, or ended the transfer early.
        ValueError: What came is not the published content.
    """
    if file.url is None:
        raise FileNotFoundError(f"{file.path} of {file.corpus.name} cannot be downloaded. {_ways(file)}")
    name = PurePosixPath(urlsplit(file.url).path)
    packing = name.suffix if name.suffix in PACKINGS else ""
    raw = _fetch(file.url)
    _verify(decompress(raw, file.url), file, place=file.url)
    path = Path(f"{cache_folder()}/{file.path}{packing}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, raw)
    return path


def load_pair(
    source: CorpusFile,
    target: CorpusFile,
    *,
    name: str,
    num_pairs: int,
    on_empty: BadLine = BadLine.ERROR,
    may_download: bool = False,
) -> ParallelText:
    """Read two files of a corpus as parallel text and check the number of pairs.

    Args:
        source: File of the source side.
        target: File of the target side.
        name: Of the text.
        num_pairs: How many pairs there must be, left-out ones not counted.
        on_empty: What to do with empty lines.
        may_download: As for `locate`.

    Raises:
        ValueError: There is another number of pairs, or what `locate` and `read_parallel` complain of.
    """
    paths = [locate(file, may_download=may_download) for file in (source, target)]
    text = read_parallel(paths[0], paths[1], name=name, on_empty=on_empty)
    if len(text) != num_pairs:
        raise ValueError(f"{name} has {len(text):,} pairs, expected {num_pairs:,}; {paths[0]} is not what it should be")
    return text


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that under its name there is the old content or the new one, never a part.

    The bytes go to a new file beside it and to the disk before the rename. If that fails (a full disk), the new file
    is removed and the old one is untouched.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _fetch(url: str) -> bytes:
    again = "Nothing was kept; try again"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        error.close()
        message = f"{url} answered HTTP {error.code} ({error.reason}): the file has moved or may not be fetched"
        raise ConnectionError(f"{message}. Get it by hand and set PROBATTN_DATA to its folder") from None
    except http.client.IncompleteRead as error:
        total = len(error.partial) + (error.expected or 0)
        raise ConnectionError(f"{url} ended after {len(error.partial):,} of {total:,} bytes. {again}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ConnectionError(f"{url} could not be fetched ({reason}). {again}, or set PROBATTN_DATA") from None


def _verify(content: bytes, file: CorpusFile, *, place: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise ValueError(
            f"{place} is not the published file of {file.corpus.name}: SHA-256 of its unpacked content is {digest}, "
            f"expected {file.sha256}. Get it again; read text of your own with read_parallel"
        )


def _ways(file: CorpusFile) -> str:
    folder = data_folder()
    state = f"it names {folder}, which has no {file.path}" if folder else "it is not set"
    if file.url is None:
        fetch = f"get it by hand from {file.corpus.homepage}; no address of the file is known"
    else:
        fetch = f"let it be downloaded from {file.url} into {cache_folder()} with PROBATTN_DOWNLOAD=1"
    return (
        f"Three ways: (1) set PROBATTN_DATA to a folder that holds it ({state}); (2) {fetch} "
        f"(terms: {file.corpus.terms}); (3) use the generated corpus in {file.corpus.twin}, which needs no files"
    )

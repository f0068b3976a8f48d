"""Finding corpus files: folder, cache, download from a server on this machine, and everything that can go wrong."""

import gzip
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from probattn.data.parallel import BadLine
from probattn.data.sources import (
    Corpus,
    CorpusFile,
    cache_folder,
    data_folder,
    download,
    load_pair,
    locate,
    require_choice,
    write_atomically,
)

CORPUS = Corpus(name="Toy", homepage="https://example.org/toy", terms="do as you like")
CONTENT = b"eine Zeile\nnoch eine\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = {"/plain.txt": CONTENT, "/packed.txt.gz": gzip.compress(CONTENT), "/wrong.txt": b"<html>moved</html>"}
        if self.path in body:
            self.answer(body[self.path], length=len(body[self.path]))
        elif self.path == "/short.txt":
            self.answer(CONTENT[:5], length=len(CONTENT))
        elif self.path == "/short.txt.gz":  # cut off, but the length says so too
            self.answer(gzip.compress(CONTENT)[:12], length=12)
        elif self.path == "/hangup.txt":
            self.connection.close()
        else:
            self.send_error(404)

    def answer(self, body: bytes, *, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *arguments: None  # type: ignore[method-assign]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


def corpus_file(url: str | None = None, *, path: str = "toy/a.txt", sha256: str = SHA256) -> CorpusFile:
    return CorpusFile(CORPUS, path, sha256=sha256, url=url)


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_data_folder_comes_before_cache(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_cache = put(cache, "toy/a.txt", CONTENT)
    assert locate(corpus_file()) == in_cache
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    assert locate(corpus_file()) == in_cache  # the folder is there, but has no such file
    in_folder = put(tmp_path, "toy/a.txt.gz", gzip.compress(CONTENT))
    assert locate(corpus_file()) == in_folder


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_folder() is None
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"PROBATTN_DATA names .*nowhere, which is not a folder"):
        locate(corpus_file())
    monkeypatch.delenv("PROBATTN_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "probattn"


def test_other_content_is_refused(cache: Path) -> None:
    put(cache, "toy/a.txt", CONTENT + b"x")
    with pytest.raises(ValueError, match=rf"a\.txt is not the published file of Toy.*expected {SHA256}.*read_parallel"):
        locate(corpus_file())


def test_missing_file_lists_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = (
        r"toy/a\.txt of Toy is not on this machine. Three ways: \(1\) set PROBATTN_DATA .*it is not set\); "
        r"\(2\) let it be downloaded from https://example.org/a.txt into .*cache with PROBATTN_DOWNLOAD=1 "
        r"\(terms: do as you like\); "
        r"\(3\) use the generated corpus in probattn\.data\.generated_deen"
    )
    with pytest.raises(FileNotFoundError, match=message):
        locate(corpus_file("https://example.org/a.txt"))
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"which has no toy/a\.txt\); \(2\) get it by hand from https://example"
    ):
        locate(corpus_file())


@pytest.mark.parametrize(("name", "ending"), [("plain.txt", ""), ("packed.txt.gz", ".gz")])
def test_download_goes_to_the_cache(address: str, cache: Path, name: str, ending: str) -> None:
    file = corpus_file(f"{address}/{name}")
    path = locate(file, may_download=True)
    assert path == cache / f"toy/a.txt{ending}"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert locate(corpus_file("https://example.org/unreachable")) == path  # the second time it is there


def test_the_environment_may_allow_downloads(address: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="PROBATTN_DOWNLOAD=1"):
        locate(corpus_file(f"{address}/plain.txt"))
    monkeypatch.setenv("PROBATTN_DOWNLOAD", "1")
    assert locate(corpus_file(f"{address}/plain.txt")) == cache / "toy/a.txt"


def test_download_from_a_file_address(tmp_path: Path, cache: Path) -> None:
    source = put(tmp_path, "origin.txt", CONTENT)
    assert download(corpus_file(source.as_uri())) == cache / "toy/a.txt"
    with pytest.raises(ConnectionError, match="could not be fetched"):
        download(corpus_file((tmp_path / "missing.txt").as_uri()))


def test_damaged_cache_is_told_and_a_download_replaces_it(address: str, cache: Path) -> None:
    put(cache, "toy/a.txt", b"half")
    with pytest.raises(ValueError, match="is not the published file"):
        locate(corpus_file(f"{address}/plain.txt"), may_download=True)
    assert download(corpus_file(f"{address}/plain.txt")).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("wrong.txt", ValueError, r"wrong\.txt is not the published file of Toy"),
        ("missing.txt", ConnectionError, r"missing\.txt answered HTTP 404 \(Not Found\).*set PROBATTN_DATA"),
        ("short.txt", ConnectionError, r"short\.txt ended after 5 of 21 bytes. Nothing was kept; try again"),
        ("short.txt.gz", ValueError, r"short\.txt\.gz cannot be unpacked"),
        ("hangup.txt", ConnectionError, r"hangup\.txt could not be fetched .*try again, or set PROBATTN_DATA"),
    ],
)
def test_failed_download_leaves_nothing(
    address: str, cache: Path, name: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        locate(corpus_file(f"{address}/{name}"), may_download=True)
    assert not [entry for entry in cache.rglob("*") if entry.is_file()]


def test_no_server_and_no_address() -> None:
    with pytest.raises(ConnectionError, match=r"http://127\.0\.0\.1:9/a could not be fetched"):
        download(corpus_file("http://127.0.0.1:9/a"))
    with pytest.raises(FileNotFoundError, match=r"cannot be downloaded. Three ways: .*no address of the file is known"):
        locate(corpus_file(None), may_download=True)


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "a.txt", b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_pair_is_read_and_counted(cache: Path) -> None:
    put(cache, "toy/a.txt", CONTENT)
    put(cache, "toy/a.txt.gz", b"never read")
    text = load_pair(corpus_file(), corpus_file(), name="toy", num_pairs=2)
    assert text.source == ("eine Zeile", "noch eine")
    with pytest.raises(ValueError, match=r"toy has 2 pairs, expected 3; .*a\.txt is not what it should be"):
        load_pair(corpus_file(), corpus_file(), name="toy", num_pairs=3)


def test_pair_with_an_empty_line(cache: Path) -> None:
    content = b"eine Zeile\n\n"
    put(cache, "toy/b.txt", content)
    put(cache, "toy/a.txt", CONTENT)
    gap = corpus_file(path="toy/b.txt", sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(ValueError, match=r"b\.txt, line 2: empty line"):
        load_pair(gap, corpus_file(), name="toy", num_pairs=1)
    assert load_pair(gap, corpus_file(), name="toy", num_pairs=1, on_empty=BadLine.SKIP).num_empty == 1


def test_choices() -> None:
    require_choice("split", "test", ["train", "test"])
    with pytest.raises(ValueError, match=r"split 'x' is unknown; Choose from train, test"):
        require_choice("split", "x", ["train", "test"])

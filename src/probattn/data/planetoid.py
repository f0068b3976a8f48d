"""Cora, Citeseer and Pubmed: citation graphs with bags of words (Sen et al., 2008; splits of Yang et al., 2016).

| name | nodes | undirected edges | features | classes | train | valid | test |
|---|---|---|---|---|---|---|---|
| cora | 2,708 | 5,278 | 1,433 | 7 | 140 | 500 | 1,000 |
| citeseer | 3,327 | 4,552 | 3,703 | 6 | 120 | 500 | 1,000 |
| pubmed | 19,717 | 44,324 | 500 | 3 | 60 | 500 | 1,000 |

Source: https://github.com/kimiyoung/planetoid, folder `data`. The files are pickles of Python 2; they are read with a
list of allowed names, so that nothing in them can run. Fifteen nodes of Citeseer are in no split and have no features;
theirs are zeros. Features are rows of counts or weights, divided by their sum as in GAT.
"""

import hashlib
import io
import lzma
import pickle
import tarfile
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probattn.data.graphs import NodeGraph, undirected
from probattn.data.parallel import read_content
from probattn.data.sources import Corpus, CorpusFile, data_folder, locate, require_choice

__all__ = ["CORPUS", "NUM_NODES", "load"]

CORPUS = Corpus(
    name="Planetoid citation graphs",
    homepage="https://github.com/kimiyoung/planetoid",
    terms="research; MIT licence of the repository",
    twin="probattn.data.graphs.block_model",
)

NUM_NODES = {"cora": 2_708, "citeseer": 3_327, "pubmed": 19_717}
"""Nodes of each graph."""

ADDRESS = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
NUM_VALID = 500

# SHA-256 of the files.
SHA256 = {
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
}


def load(name: str, *, may_download: bool = False) -> NodeGraph:
    """One of the graphs of the table above, with the public split.

    Args:
        name: "cora", "citeseer" or "pubmed".
        may_download: Whether to fetch missing files from the official source.

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown name, or a file that is not the published one.
    """
    require_choice("graph", name, NUM_NODES)
    content = _archive(name) or {
        part: read_content(locate(_file(name, part), may_download=may_download)) for part in PARTS
    }
    test = torch.tensor([int(line) for line in content["test.index"].split()])
    matrices = {part: _unpickle(content[part]) for part in PARTS if part != "test.index"}
    known, num_known = _dense(matrices["allx"]), len(matrices["ally"])
    num_nodes = max(num_known, int(test.max()) + 1)
    features = torch.zeros(num_nodes, known.shape[1])
    features[:num_known], features[test] = known, _dense(matrices["tx"])
    one_hot = torch.zeros(num_nodes, matrices["ally"].shape[1])
    one_hot[:num_known], one_hot[test] = _tensor(matrices["ally"]), _tensor(matrices["ty"])
    pairs = [(node, other) for node, others in matrices["graph"].items() for other in others]
    num_train = len(matrices["y"])
    return NodeGraph(
        features=features / features.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny),
        labels=one_hot.argmax(dim=-1),
        edges=undirected(torch.tensor(pairs).T, num_nodes),
        train=torch.arange(num_train),
        valid=torch.arange(num_train, num_train + NUM_VALID),
        test=test.sort().values,
        name=name,
    )


def _file(name: str, part: str) -> CorpusFile:
    stem = f"ind.{name}.{part}"
    return CorpusFile(CORPUS, f"planetoid/{stem}", sha256=SHA256[stem], url=f"{ADDRESS}/{stem}")


def _archive(name: str) -> dict[str, bytes] | None:
    """The files of a graph from `planetoid/planetoid.tar.xz` in the data folder, checked; None without it."""
    folder = data_folder()
    path = None if folder is None else folder / "planetoid" / "planetoid.tar.xz"
    if path is None or not path.is_file():
        return None
    content: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                stem = member.name.rsplit("/", 1)[-1]
                part = stem.removeprefix(f"ind.{name}.")
                if part in PARTS and part != stem:
                    opened = archive.extractfile(member)
                    content[part] = b"" if opened is None else opened.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise ValueError(f"{path} is damaged, or no archive ({error}); get it again") from error
    for part in PARTS:
        if hashlib.sha256(content.get(part, b"")).hexdigest() != SHA256[f"ind.{name}.{part}"]:
            raise ValueError(f"ind.{name}.{part} in {path} is missing or not the published file; get it again")
    return content


class _Sparse:
    """What a pickled scipy matrix (compressed rows) leaves behind: data, indices, indptr, _shape."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state


class _Unpickler(pickle.Unpickler):
    """Builds arrays, compressed rows, dictionaries and lists, and refuses everything else."""

    allowed: dict[tuple[str, str], Any] = {
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("scipy.sparse.csr", "csr_matrix"): _Sparse,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
        ("builtins", "list"): list,
    }

    def find_class(self, module: str, name: str) -> Any:
        """The class of a name on the list."""
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"{module}.{name} is not expected in this file")
        return self.allowed[module, name]


def _unpickle(content: bytes) -> Any:
    return _Unpickler(io.BytesIO(content), encoding="latin1").load()


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).float()


def _dense(matrix: _Sparse) -> Tensor:
    """(rows, columns) of compressed rows."""
    state = matrix.__dict__
    shape = state.get("_shape") or state["shape"]
    counts = torch.from_numpy(np.diff(state["indptr"]).astype(np.int64))
    rows = torch.repeat_interleave(torch.arange(shape[0]), counts)
    dense = torch.zeros(*shape)
    dense[rows, torch.from_numpy(state["indices"].astype(np.int64))] = _tensor(state["data"])
    return dense

"""A trained graph network that names the classes of nodes and says how sure it is; a folder on disk."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from probattn.data.graphs import NodeGraph
from probattn.metrics import mutual_information, top_two_p_value
from probattn.models.gat import GAT, neighbourhoods
from probattn.recipes.gat_eval import MODES, Inputs, compact, drawn_log_probs
from probattn.recipes.gat_settings import GatSettings, build_model, is_file_name
from probattn.recipes.storage import without_paths
from probattn.training import load_weights, save_model_folder

__all__ = ["NodeClassifier", "NodePrediction", "load_classifier"]

Mode = Literal["mean", "dropout", "noise", "both"]

SIZES_FILE = "sizes.json"


@dataclass(frozen=True)
class NodePrediction:
    """Of all nodes of a graph.

    Attributes:
        probabilities: (N, C) float64, the mean over draws.
        p_value: (N) of the test that the best two classes are equally probable; small is certain. None without draws.
        mutual_information: (N) nats between class and draw: how much the draws disagree. None without draws.
    """

    probabilities: Tensor
    p_value: Tensor | None = None
    mutual_information: Tensor | None = None

    @property
    def classes(self) -> Tensor:
        """(N) the most probable class."""
        return self.probabilities.argmax(dim=-1)


class NodeClassifier:
    """A network with its settings; `probattn.load(folder)` gives one.

    Args:
        model: The network; it is put into evaluation mode.
        settings: Of the row it was trained with.
        num_features: F of the graphs it reads.
    """

    def __init__(self, model: GAT, settings: GatSettings, *, num_features: int):
        self.model = model.eval()
        self.settings = settings
        self.num_features = num_features

    @property
    def is_random(self) -> bool:
        """Whether its attention weights are drawn."""
        return self.settings.site.posterior is not None

    def predict(self, graph: NodeGraph, *, mode: Mode = "mean", draws: int = 20, seed: int = 0) -> NodePrediction:
        """Classes of all nodes of a graph: the one it was trained on, or another with the same features.

        Args:
            graph: Its labels and splits are not looked at.
            mode: "mean": plug-in weights, no dropout; "dropout", "noise", "both": the mean over draws of dropout masks,
                of attention weights, or of both.
            draws: In the last three modes.
            seed: Of the draws.

        Raises:
            ValueError: An unknown mode, features of another width, or attention noise where weights are not random.
        """
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got '{mode}'")
        has_noise, has_dropout = MODES[mode]
        if has_noise and not self.is_random:
            raise ValueError(f"the attention of '{self.settings.row}' is not random; use mode 'mean' or 'dropout'")
        if graph.features.shape[1] != self.num_features:
            raise ValueError(
                f"the network was trained on {self.num_features} features of a node, {graph.name} has "
                f"{graph.features.shape[1]}"
            )
        is_drawn = has_noise or has_dropout
        if is_drawn and draws < 2:
            raise ValueError(f"mode '{mode}' wants at least 2 draws, got {draws}")
        support = neighbourhoods(graph.edges, graph.num_nodes)
        inputs = Inputs(compact(graph.features), support, graph.labels, valid=graph.valid, test=graph.test)
        count = draws if is_drawn else 1
        drawn = drawn_log_probs(
            self.model, inputs, has_noise=has_noise, has_dropout=has_dropout, draws=count, seed=seed
        ).exp()
        if not is_drawn:
            return NodePrediction(drawn[0])
        return NodePrediction(drawn.mean(dim=0), top_two_p_value(drawn), mutual_information(drawn))

    def save(self, folder: Path, plain: Mapping[str, Any], *, num_classes: int) -> Path:
        """Write config.json, model.safetensors and sizes.json; all or nothing."""
        sizes = {"num_features": self.num_features, "num_classes": num_classes}
        name = plain["graph"]["name"]
        graph = {**plain["graph"], "name": Path(name) if is_file_name(name) else name}  # a path holds from any folder
        config = {"recipe": "gat", "settings": without_paths({**plain, "graph": graph})}
        return save_model_folder(self.model, folder, config=config, files={SIZES_FILE: json.dumps(sizes).encode()})


def load_classifier(settings: GatSettings, folder: Path) -> NodeClassifier:
    """Open the folder that `NodeClassifier.save` wrote.

    Raises:
        ValueError: If a file is damaged.
    """
    path = folder / SIZES_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        num_features, num_classes = int(content["num_features"]), int(content["num_classes"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no sizes of a network, or was cut off ({error!r})") from error
    model = build_model(settings, num_features=num_features, num_classes=num_classes)
    load_weights(model, folder)
    return NodeClassifier(model, settings, num_features=num_features)

"""`probattn classify`: classes of a graph's nodes, and how sure a trained network is of them."""

import json
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command
from probattn.cli.models import open_model
from probattn.cli.output import Output
from probattn.data.graph_files import read_graph
from probattn.recipes.gat_classifier import NodeClassifier, NodePrediction
from probattn.recipes.gat_eval import MODES
from probattn.recipes.gat_settings import load_graph

__all__ = ["COMMAND"]

_DESCRIPTION = """Names the classes of a graph's nodes.

probattn classify MODEL                               the graph that the network was trained on
probattn classify MODEL --graph mine.npz              another one with the same features
probattn classify MODEL --mode both --draws 20        the mean over draws of attention and dropout, with p-values
probattn classify MODEL --mode noise --unsure 0.05    only nodes whose best two classes cannot be told apart

A line is: node, class, probability, and for modes with draws the p-value of the test that the best two classes are
equally probable (small is certain) and the mutual information between class and draw in nats."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of a run or of a trained model")
    parser.add_argument("--graph", type=Path, default=None, help=".npz file; by default the graph of the training")
    parser.add_argument("--mode", choices=list(MODES), default="mean", help="what is drawn")
    parser.add_argument("--draws", type=int, default=20, help="in the modes dropout, noise and both")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--unsure", type=float, default=None, help="only nodes with at least this p-value")
    parser.add_argument("--output", type=Path, default=None, help="file; the standard output by default")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="of the output")


def _run(arguments: Namespace) -> None:
    if arguments.unsure is not None and arguments.mode == "mean":
        raise ValueError("--unsure compares p-values, which want draws: add --mode noise, dropout or both")
    output = Output(arguments.output)
    classifier = open_model(arguments.model, NodeClassifier, "no network for nodes of a graph")
    graph = (
        load_graph(classifier.settings.graph)
        if arguments.graph is None
        else read_graph(arguments.graph, needs_labels=False)
    )
    found = classifier.predict(graph, mode=arguments.mode, draws=arguments.draws, seed=arguments.seed)
    nodes = range(graph.num_nodes)
    if arguments.unsure is not None and found.p_value is not None:
        nodes = (found.p_value >= arguments.unsure).nonzero().squeeze(1).tolist()
    line = _record if arguments.format == "json" else _line
    with output:
        output.put(line(found, node) for node in nodes)


def _line(found: NodePrediction, node: int) -> str:
    best = int(found.classes[node])
    parts = [str(node), str(best), f"{float(found.probabilities[node, best]):.4f}"]
    if found.p_value is not None and found.mutual_information is not None:
        parts += [f"{float(found.p_value[node]):.3g}", f"{float(found.mutual_information[node]):.4f}"]
    return "\t".join(parts)


def _record(found: NodePrediction, node: int) -> str:
    record = {
        "node": node,
        "class": int(found.classes[node]),
        "probabilities": [round(value, 6) for value in found.probabilities[node].tolist()],
        "p_value": None if found.p_value is None else float(found.p_value[node]),
        "mutual_information": None if found.mutual_information is None else float(found.mutual_information[node]),
    }
    return json.dumps(record)


COMMAND = Command("classes of a graph's nodes, with uncertainty", _DESCRIPTION, _add_arguments, _run)

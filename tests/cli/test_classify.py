"""A graph network from a file of one's own: train, open, classify."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import probattn
from probattn import cli
from probattn.data.graph_files import write_graph
from probattn.data.graphs import block_model
from probattn.recipes.gat_classifier import NodeClassifier
from probattn.training import CheckpointError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    write_graph(block_model(200, num_classes=3, signal=3.0), folder / "mine.npz")
    settings = [f"graph.name={folder / 'mine.npz'}", "optimiser.max_epochs=40", "evaluation.draws=3"]
    cli.main(["train", "gat/no-kl", *settings, "--output", str(folder / "run")])
    return folder / "run"


def lines_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    cli.main(["classify", *words])
    return capsys.readouterr().out.splitlines()


def test_the_saved_network_predicts_what_its_result_says(run: Path) -> None:
    classifier = probattn.load(run)
    assert isinstance(classifier, NodeClassifier) and classifier.is_random
    graph = block_model(200, num_classes=3, signal=3.0)
    found = classifier.predict(graph)
    accuracy = (found.classes == graph.labels)[graph.test].double().mean()
    result = json.loads((run / "result.json").read_text())
    assert float(accuracy) == pytest.approx(result["metrics"]["loss/clean/mean/accuracy"], abs=1e-4)
    assert float(accuracy) > 0.6 and found.p_value is None
    torch.testing.assert_close(found.probabilities.sum(dim=-1), torch.ones(200, dtype=torch.float64))


def test_draws_are_repeatable_and_differ_by_mode(run: Path) -> None:
    classifier, graph = probattn.load(run), block_model(200, num_classes=3, signal=3.0)
    noise = classifier.predict(graph, mode="noise", draws=5, seed=3)
    again = classifier.predict(graph, mode="noise", draws=5, seed=3)
    assert torch.equal(noise.probabilities, again.probabilities)
    assert noise.p_value is not None and noise.mutual_information is not None
    assert float(noise.mutual_information.max()) > 0.0
    dropout = classifier.predict(graph, mode="dropout", draws=5, seed=3)
    assert not torch.equal(noise.probabilities, dropout.probabilities)


def test_the_graph_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(block_model(200, num_classes=3, signal=3.0), tmp_path / "mine.npz")
    monkeypatch.chdir(tmp_path)
    settings = ["graph.name=mine.npz", "optimiser.max_epochs=1", "evaluation.draws=2"]
    cli.main(["train", "gat/gat", *settings, "--output", "run"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    # another graph of the same name must not take its place
    write_graph(block_model(120, num_classes=3, signal=3.0), elsewhere / "mine.npz")
    cli.main(["classify", "../run", "--output", "classes.tsv"])
    assert len((elsewhere / "classes.tsv").read_text().splitlines()) == 200


def test_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = lines_of(capsys, str(run))
    assert len(plain) == 200 and all(len(line.split("\t")) == 3 for line in plain)
    drawn = lines_of(capsys, str(run), "--mode", "both", "--draws", "4", "--format", "json")
    p_values = [json.loads(line)["p_value"] for line in drawn]
    unsure = lines_of(capsys, str(run), "--mode", "both", "--draws", "4", "--unsure", "0.05")
    assert len(unsure) == sum(value >= 0.05 for value in p_values) and 0 < len(unsure) < 200


def test_another_graph(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_graph(block_model(90, num_classes=3), tmp_path / "other.npz")
    assert len(lines_of(capsys, str(run), "--graph", str(tmp_path / "other.npz"))) == 90
    write_graph(block_model(90, num_classes=3, num_features=8), tmp_path / "narrow.npz")
    with pytest.raises(SystemExit, match="32 features of a node, narrow has 8"):
        cli.main(["classify", str(run), "--graph", str(tmp_path / "narrow.npz")])


def test_wrong_requests(run: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="want draws"):
        cli.main(["classify", str(run), "--unsure", "0.1"])
    with pytest.raises(SystemExit, match="at least 2 draws"):
        cli.main(["classify", str(run), "--mode", "both", "--draws", "1"])
    with pytest.raises(SystemExit, match="graph.name must be one of cora"):
        cli.main(["train", "gat/gat", "graph.name=corra", "--output", str(tmp_path / "run")])
    (run / "model" / "sizes.json").rename(tmp_path / "sizes.json")
    (run / "model" / "sizes.json").write_text("{")
    with pytest.raises(CheckpointError, match="sizes of a network"):
        probattn.load(run)
    (tmp_path / "sizes.json").replace(run / "model" / "sizes.json")


def test_plain_attention_has_no_noise(tmp_path: Path) -> None:
    settings = ["graph.num_nodes=160", "optimiser.max_epochs=2", "evaluation.draws=2"]
    cli.main(["train", "gat/gat", *settings, "--output", str(tmp_path / "run")])
    with pytest.raises(ValueError, match="not random"):
        probattn.load(tmp_path / "run").predict(block_model(160), mode="noise")


def test_a_graph_without_labels_is_classified(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = block_model(200, num_classes=3, signal=3.0)
    write_graph(graph, tmp_path / "whole.npz")
    np.savez(tmp_path / "bare.npz", features=graph.features.numpy(), edges=graph.edges.numpy())
    bare = lines_of(capsys, str(run), "--graph", str(tmp_path / "bare.npz"))
    assert bare == lines_of(capsys, str(run), "--graph", str(tmp_path / "whole.npz")) and len(bare) == 200
    with pytest.raises(SystemExit, match="lacks labels, train, valid, test"):
        cli.main(["train", "gat/no-kl", f"graph.name={tmp_path / 'bare.npz'}", "--output", str(tmp_path / "run")])

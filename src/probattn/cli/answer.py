"""`probattn answer`: answers of a trained network to questions about pictures."""

import json
from pathlib import Path

import numpy as np
from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command
from probattn.cli.models import open_model
from probattn.cli.output import Output, require_writable
from probattn.data.image_features import ImageFeatures, read_features
from probattn.data.picture_questions import read_questions
from probattn.recipes.storage import write_atomically
from probattn.recipes.vqa_answerer import Answer, Answerer
from probattn.recipes.vqa_report import read_picture
from probattn.viz.attention_maps import attention_map

__all__ = ["COMMAND"]

_DESCRIPTION = """Answers questions about pictures whose features are in a file.

probattn answer MODEL --features F.npz --image kitchen.jpg --question "what is on the table ?"
probattn answer MODEL --features F.npz --image kitchen.jpg --question "..." --draws 20        with a p-value
probattn answer MODEL --features F.npz --image kitchen.jpg --question "..." --map where.svg --picture kitchen.jpg
probattn answer MODEL --features F.npz --input questions.tsv --format json                    many questions

Features are those of the extractor that the network was trained with. A question is split at spaces. A line is: answer,
probability, p-value (with --draws; small is certain), and the next best answers."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of a run or of a trained model")
    parser.add_argument("--features", type=Path, required=True, help=".npz, .tsv or .h5 with the pictures' features")
    parser.add_argument("--image", default=None, help="name of the picture among the features")
    parser.add_argument("--question", default=None, help="about that picture")
    parser.add_argument("--input", type=Path, default=None, help=".tsv or .jsonl with many questions")
    parser.add_argument("--output", type=Path, default=None, help="file; the standard output by default")
    parser.add_argument("--num_best", type=int, default=3, help="answers to name")
    parser.add_argument("--draws", type=int, default=0, help="of dropout and attention, for p-values; 20 are usual")
    parser.add_argument("--map", type=Path, default=None, help="SVG of the attention over the picture")
    parser.add_argument("--picture", type=Path, default=None, help="the picture itself, to draw the map on")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="of the output")


def _run(arguments: Namespace) -> None:
    is_one = arguments.image is not None and arguments.question is not None
    if is_one == (arguments.input is not None) or (arguments.image is None) != (arguments.question is None):
        raise ValueError("give either --image and --question, or --input with many questions")
    if arguments.num_best < 1 or arguments.draws < 0 or arguments.draws == 1:
        raise ValueError(
            f"--num_best is at least 1 and --draws 0 or at least 2, got {arguments.num_best} and {arguments.draws}"
        )
    if (arguments.map is not None and not is_one) or (arguments.picture is not None and arguments.map is None):
        raise ValueError("--map is for one --image and --question; --picture is for --map")
    output = Output(arguments.output)
    if arguments.map is not None:
        require_writable(arguments.map, "--map")
    answerer = open_model(arguments.model, Answerer, "no model that answers questions about pictures")
    features = read_features(arguments.features)
    if is_one:
        questions, images = [arguments.question], [arguments.image]
    else:
        asked = read_questions(arguments.input, needs_answers=False)
        questions, images = [one.question for one in asked], [one.picture for one in asked]
    found = answerer.answer(questions, images, features=features, num_best=arguments.num_best, draws=arguments.draws)
    line = _record if arguments.format == "json" else _line
    with output:
        output.put(line(one, *about) for one, *about in zip(found, questions, images, strict=True))
    if arguments.map is not None:
        write_atomically(arguments.map, _map(found[0], features, arguments))


def _line(answer: Answer, question: str, image: str) -> str:
    others = ", ".join(f"{text} ({probability:.3f})" for text, probability in answer.others)
    parts = [answer.text, f"{answer.probability:.3f}"]
    parts += [] if answer.p_value is None else [f"p={answer.p_value:.2g}"]
    parts += [others] if others else []
    parts += [f"unknown words: {' '.join(answer.unknown_words)}"] if answer.unknown_words else []
    return "\t".join(parts)


def _record(answer: Answer, question: str, image: str) -> str:
    record = {
        "image": image,
        "question": question,
        "answer": answer.text,
        "probability": answer.probability,
        "p_value": answer.p_value,
        "others": [list(one) for one in answer.others],
        "unknown_words": list(answer.unknown_words),
        "weights": [round(float(weight), 5) for weight in answer.weights],
    }
    return json.dumps(record, ensure_ascii=False)


def _map(answer: Answer, features: ImageFeatures, arguments: Namespace) -> str:
    picture = None
    if arguments.picture is not None:
        picture = read_picture(arguments.picture)
        if picture is None:
            raise ValueError(f"--picture: no picture in {arguments.picture}, or it is damaged")
    weights, boxes = np.asarray(answer.weights), None
    if features.grid is not None:
        weights = weights.reshape(features.grid)
    elif features.boxes is not None:
        boxes = features.boxes[features.positions[arguments.image]].numpy()
    else:
        weights = weights[None]
    certain = "" if answer.p_value is None else f", p = {answer.p_value:.2g}"
    title = f"{arguments.question}\n{answer.text} ({answer.probability:.2f}{certain})"
    return attention_map(picture, weights, title=title, boxes=boxes, width=4.0)


COMMAND = Command("answer questions about pictures", _DESCRIPTION, _add_arguments, _run)

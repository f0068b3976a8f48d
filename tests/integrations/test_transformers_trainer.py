"""Converted models in a Trainer: accumulation, losses that it computes itself, and two ranks."""

import json
import multiprocessing
import os
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from probattn import Linear, Weibull, make_stochastic, record_latents, sampling
from probattn.core.noise import fold_seed
from tests.integrations.transformers_zoo import (
    BERT,
    HEADS,
    LAYERS,
    VOCABULARY,
    build,
    inputs_of,
    transformers,
    without_dropout,
)

from probattn.integrations.transformers import KlSchedule  # isort: skip

pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")
NEARLY_SOFT = Weibull(1e4, anchor="softmax")
"""Noise so small that it does not matter which was drawn."""


class Sentences(torch.utils.data.Dataset[dict[str, Any]]):
    """Two classes, told by the first token; or words to be continued, of very different numbers."""

    def __init__(self, *, is_text: bool = False):
        self.is_text = is_text

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = torch.randint(3, VOCABULARY, (6,), generator=torch.Generator().manual_seed(index))
        if not self.is_text:
            mask = (torch.arange(6) < 3 + index % 4).long()
            return {"input_ids": ids, "attention_mask": mask, "labels": int(ids[0] > 25)}
        mask = (torch.arange(6) < (2 if index % 8 < 4 else 6)).long()  # batches of four have 4 or 20 targets
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def rows(start: int, end: int, *, is_text: bool = False) -> dict[str, Tensor]:
    found = [Sentences(is_text=is_text)[index] for index in range(start, end)]
    return {key: torch.stack([torch.as_tensor(row[key]) for row in found]) for key in found[0]}


class InOrder(transformers.Trainer):  # type: ignore[misc]
    """Takes the examples in order, so that runs can be compared."""

    def _get_train_sampler(self, *args: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def bert(**options: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(**BERT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return make_stochastic(transformers.BertForSequenceClassification(config), NEARLY_SOFT, **options)


def trained(
    folder: Path,
    batch_size: int,
    accumulation: int,
    *,
    model: Any = None,
    compute_loss_func: Callable[..., Tensor] | None = None,
    has_schedule: bool = True,
    is_text: bool = False,
    **kwargs: Any,
) -> Any:
    """A Trainer after two updates on eight examples each."""
    model = bert(kl_weight=Linear(0.5, 1.0, steps=2)) if model is None else model
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        **{
            **{"max_steps": 2, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "logging_steps": 1},
            **{"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True},
            **{"dataloader_pin_memory": False, **kwargs},
        },
    )
    trainer = InOrder(
        model=model,
        args=arguments,
        train_dataset=Sentences(is_text=is_text),
        callbacks=[KlSchedule()] if has_schedule else [],
        compute_loss_func=compute_loss_func,
    )
    trainer.train()
    return trainer


def losses(trainer: Any) -> list[float]:
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def by_hand() -> float:
    """The first loss that a Trainer should have logged: one batch of eight before any update."""
    torch.manual_seed(0)
    config = transformers.BertConfig(**BERT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = transformers.BertForSequenceClassification(config)
    batch = rows(0, 8)
    likelihood = model.eval()(**batch).loss
    make_stochastic(model, NEARLY_SOFT, kl_per="example")
    with record_latents(model) as record:
        model(**batch)
    num_weights = LAYERS * HEADS * batch["attention_mask"].sum(dim=1).square()
    return (likelihood + 0.5 * (record.kl() / num_weights).mean()).item()


def with_kl(accumulation: int, num_ranks: int = 1) -> Callable[..., Tensor]:
    """The loss function that docs/transformers.md advises."""

    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        summed = torch.nn.functional.cross_entropy(outputs.logits, labels, reduction="sum")
        made: Tensor = summed / num_items_in_batch + outputs.kl_cost / (accumulation * num_ranks)
        return made

    return loss


class TestAccumulation:
    def test_of_classes(self, tmp_path: Path) -> None:
        whole, halves = trained(tmp_path, 8, 1), trained(tmp_path, 4, 2)
        assert losses(whole)[0] == pytest.approx(by_hand(), rel=1e-3)
        assert losses(halves) == pytest.approx(losses(whole), rel=1e-3)
        assert [line["kl_weight"] for line in whole.state.log_history if "loss" in line] == [0.5, 0.75]
        weights = [trainer.model.classifier.weight for trainer in (whole, halves)]
        torch.testing.assert_close(weights[0], weights[1], atol=1e-3, rtol=1e-2)
        predicted = whole.predict(Sentences())
        assert predicted.predictions.shape == (16, 2)
        with sampling(whole.model, False):
            assert whole.evaluate(Sentences())["eval_loss"] == pytest.approx(predicted.metrics["test_loss"], rel=1e-3)

    def test_of_words_of_unequal_numbers(self, tmp_path: Path) -> None:
        """GPT-2's loss would take `num_items_in_batch`: then the KL would not be divided by the number of batches.

        Losses and the weights after an update of plain gradient descent are those of a loop by hand over two batches,
        of which one has 4 targets and the other 20.
        """

        def model() -> Any:
            made = make_stochastic(build("gpt2", scale=1.5), NEARLY_SOFT, kl_weight=2.0)
            without_dropout(made)
            return made

        plain = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0, "max_steps": 1, "is_text": True}
        trainer = trained(tmp_path, 4, 2, model=model(), **plain)
        expected, total = model(), 0.0
        before = {key: parameter.detach().clone() for key, parameter in expected.named_parameters()}
        for start in (0, 4):
            batch = rows(start, start + 4, is_text=True)
            outputs = expected(**batch)
            with torch.no_grad():
                alone = build("gpt2", scale=1.5)(**batch).loss
            torch.testing.assert_close(outputs.loss, alone + outputs.kl_cost, rtol=1e-3, atol=1e-3)
            (outputs.loss / 2).backward()
            total += outputs.loss.item() / 2
        assert losses(trainer) == pytest.approx([total], rel=1e-4)
        for key, parameter in trainer.model.named_parameters():
            gradient = dict(expected.named_parameters())[key].grad
            step = 0.1 * (torch.zeros_like(parameter) if gradient is None else gradient)
            size = float(step.abs().max())
            assert float((parameter.detach() - (before[key] - step)).abs().max()) <= 1e-2 * size + 1e-6, key


class TestLossOfTheTrainer:
    def test_a_loss_function_adds_the_kl(self, tmp_path: Path) -> None:
        """One of the caller's own, as the documentation advises it: the Trainer sums over the batches of an update."""
        expected = trained(tmp_path, 8, 1)
        for batch_size, accumulation in ((8, 1), (4, 2)):
            trainer = trained(tmp_path, batch_size, accumulation, compute_loss_func=with_kl(accumulation))
            assert losses(trainer) == pytest.approx(losses(expected), rel=1e-3)
            weights = [one.model.classifier.weight for one in (trainer, expected)]
            torch.testing.assert_close(weights[0], weights[1], atol=1e-3, rtol=1e-2)

    def test_label_smoothing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="label_smoothing_factor makes the Trainer compute a loss of its own"):
            trained(tmp_path, 8, 1, label_smoothing_factor=0.1)

    def test_label_smoothing_without_the_callback_gets_a_warning(self, tmp_path: Path) -> None:
        """Which nobody needs with a constant weight, so nothing refuses it."""
        with pytest.warns(UserWarning, match="gradients came to the outputs and none to the KL.*set it to 0") as caught:
            trained(tmp_path, 4, 1, model=bert(), has_schedule=False, label_smoothing_factor=0.1, max_steps=4)
        assert len(caught) == 1

    def test_other_runs_get_none(self, tmp_path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            trained(tmp_path, 4, 1, model=bert(), has_schedule=False, max_steps=4)
            trained(tmp_path, 4, 1, model=bert(), has_schedule=False, max_steps=4, compute_loss_func=with_kl(1))


def gradients_of(model: Any) -> dict[str, Tensor]:
    return {key.removeprefix("module."): p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}


def on_one_of_two_ranks(rank: int, port: int, folder: Path) -> None:
    """What a forked rank does: trains, and tells losses, weights, gradients and the seeds of its noise."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in place.items()})
    trainer = trained(folder, 2, 2, ddp_find_unused_parameters=True)
    own = trained(folder, 2, 2, ddp_find_unused_parameters=True, compute_loss_func=with_kl(2, num_ranks=2))
    torch.manual_seed(9)
    model = make_stochastic(build("bert"), Weibull(2.0, anchor="softmax")).train()
    with record_latents(model) as record:
        outputs = DistributedDataParallel(model, find_unused_parameters=True)(**inputs_of("bert"))
    soft = bert(kl_weight=2.0).train()
    parallel = DistributedDataParallel(soft, find_unused_parameters=True)
    parallel(**rows(2 * rank, 2 * rank + 2)).loss.backward()
    torch.save(gradients_of(soft), folder / f"{rank}.pt")
    told = {
        "losses": losses(trainer),
        "own losses": losses(own),
        "weight": trainer.model.classifier.weight.sum().item(),
        "seed": int(record.latents[0].seed),
        "kl": outputs.kl.tolist(),
    }
    (folder / f"{rank}.json").write_text(json.dumps(told))


def test_two_ranks(tmp_path: Path) -> None:
    """They report the loss and have the gradients of one process on all examples, and noise of their own."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=on_one_of_two_ranks, args=(rank, port, tmp_path)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=240)
    assert [process.exitcode for process in ranks] == [0, 0]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    expected = losses(trained(tmp_path, 8, 1))
    assert first["losses"] == pytest.approx(expected, rel=1e-3)
    assert first["own losses"] == pytest.approx(expected, rel=1e-3)
    assert first["weight"] == second["weight"]
    assert second["seed"] == int(fold_seed(torch.tensor(first["seed"]), 1))  # noise of its own on every rank
    assert first["kl"] != second["kl"] and len(first["kl"]) == 2
    whole = bert(kl_weight=2.0).train()
    whole(**rows(0, 4)).loss.backward()
    gradients = gradients_of(whole)
    assert sum(".stochastic." in key for key in gradients) == 3 * LAYERS
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found.keys() == gradients.keys()
        for key, gradient in gradients.items():
            error, size = float((found[key] - gradient).abs().max()), float(gradient.abs().max())
            assert error <= 1e-2 * size + 1e-6, (key, error, size)

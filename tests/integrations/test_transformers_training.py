"""The KL in the loss of converted models: its size, schedule, recomputation, compilation, Trainer, two ranks."""

import json
import multiprocessing
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from probattn import Linear, Weibull, make_stochastic, record_latents, sampling, set_sampling
from probattn.core.noise import fold_seed
from tests.integrations.transformers_zoo import (
    BERT,
    HEADS,
    LAYERS,
    LENGTH,
    PADDED,
    VISION,
    ZOO,
    build,
    inputs_of,
    loss_of,
    transformers,
    without_dropout,
)

from probattn.integrations.transformers import KlSchedule, kl_weight, set_kl_step  # isort: skip

pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")
FAMILY = Weibull(2.0, anchor="softmax")


def converted(name: str, **kwargs: Any) -> Any:
    model = make_stochastic(build(name), FAMILY, **kwargs)
    without_dropout(model)
    return model


def gradients(model: Any, batch: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
    model.zero_grad()
    torch.manual_seed(5)
    outputs = model(**batch)
    loss_of(outputs).backward()
    return outputs, {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}


class TestLoss:
    @pytest.mark.parametrize("name", ZOO)
    def test_it_is_the_original_plus_the_cost(self, name: str) -> None:
        model, batch = converted(name, kl_weight=0.5, kl_per="example"), inputs_of(name)
        set_sampling(model, True, seed=1)
        outputs = model(**batch)
        torch.testing.assert_close(outputs.kl_cost, 0.5 * outputs.kl.mean())
        if "loss" in outputs:
            model.eval()
            torch.testing.assert_close(model(**batch).loss + outputs.kl_cost, outputs.loss)

    def test_cost_per_weight(self) -> None:
        model, batch = converted("bert", kl_weight=3.0), inputs_of("bert")
        outputs = model(**batch)
        num_weights = LAYERS * HEADS * torch.tensor([LENGTH**2, PADDED**2])
        torch.testing.assert_close(outputs.kl_cost, 3.0 * (outputs.kl / num_weights).mean())

    def test_cost_per_weight_of_causal_attention(self) -> None:
        model, batch = converted("llama"), inputs_of("llama")
        outputs = model(**batch)
        pairs = [length * (length + 1) // 2 for length in (LENGTH, PADDED)]
        torch.testing.assert_close(outputs.kl_cost, (outputs.kl / (LAYERS * HEADS * torch.tensor(pairs))).mean())

    def test_no_prior_no_cost(self) -> None:
        model, batch = converted("bert", prior=None), inputs_of("bert")
        outputs = model(**batch)
        assert torch.equal(outputs.kl, torch.zeros(2)) and outputs.kl_cost == 0

    def test_evaluation_has_no_kl_unless_someone_records(self) -> None:
        model, batch = converted("bert").eval(), inputs_of("bert")
        set_sampling(model, True, seed=1)
        outputs = model(**batch)
        assert list(outputs) == ["loss", "logits"]
        with record_latents(model) as record:
            recorded = model(**batch)
        assert torch.equal(outputs.loss, recorded.loss)
        torch.testing.assert_close(record.kl(), recorded.kl)

    def test_windows_of_one_image_are_one_example(self) -> None:
        """Swin attends inside windows, which it puts side by side into the batch."""
        config = transformers.SwinConfig(
            image_size=16, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=2
        )
        model = transformers.SwinForImageClassification(config)
        make_stochastic(model, FAMILY)
        with record_latents(model) as record:
            outputs = model(pixel_values=torch.randn(3, 3, 16, 16))
        assert outputs.kl.shape == (3,)
        torch.testing.assert_close(outputs.kl.sum(), sum(latent.kl.sum() for latent in record.latents))

    def test_answers_to_choose_from_are_one_example(self) -> None:
        model = transformers.BertForMultipleChoice(transformers.BertConfig(**BERT))
        make_stochastic(model, FAMILY)
        outputs = model(input_ids=torch.randint(3, 50, (2, 3, 4)), labels=torch.tensor([0, 2]))
        assert outputs.kl.shape == (2,)

    def test_two_towers_on_different_batches(self) -> None:
        text = transformers.CLIPTextConfig(**{**BERT, "num_hidden_layers": 1}, projection_dim=8, eos_token_id=2)
        vision = transformers.CLIPVisionConfig(**{**VISION, "num_hidden_layers": 1}, projection_dim=8)
        model = transformers.CLIPModel(
            transformers.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8)
        )
        make_stochastic(model, FAMILY)
        ids, images = torch.randint(3, 50, (2, 4)), torch.randn(3, 3, 16, 16)
        assert model(input_ids=ids, pixel_values=images[:2]).kl.shape == (2,)
        with pytest.raises(ValueError, match=r"attention ran on batches of \[2, 3\] rows for 2 examples"):
            model(input_ids=ids, pixel_values=images)


class TestSchedule:
    def test_it_follows_the_step(self) -> None:
        model, batch = converted("bert", kl_weight=Linear(0.0, 1.0, steps=4)), inputs_of("bert")
        set_sampling(model, True, seed=1)
        costs = []
        for step in (0, 1, 4, 9):
            set_kl_step(model, step)
            costs.append(model(**batch).kl_cost.item())
        assert costs[0] == 0 and kl_weight(model) == 1.0
        assert costs[2] == costs[3] == pytest.approx(4 * costs[1])

    def test_a_model_that_was_not_converted(self) -> None:
        with pytest.raises(ValueError, match="BertForSequenceClassification has no converted transformers model"):
            set_kl_step(build("bert"), 1)


class TestCheckpointing:
    @pytest.mark.parametrize("name", [name for name, row in ZOO.items() if row.checkpoints])
    def test_same_kl_and_gradients(self, name: str) -> None:
        model, batch = converted(name), inputs_of(name)
        expected, plain = gradients(model, batch)
        model.gradient_checkpointing_enable()
        with record_latents(model) as record:
            outputs, recomputed = gradients(model, batch)
        assert len(record.latents) == ZOO[name].calls
        assert torch.equal(outputs.kl, expected.kl)
        assert plain.keys() == recomputed.keys()
        for key, grad in plain.items():
            torch.testing.assert_close(recomputed[key], grad, atol=1e-4, rtol=1e-4, msg=key)

    @pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
    def test_reentrant_checkpointing_is_refused(self) -> None:
        model = converted("bert")
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
        with pytest.raises(RuntimeError, match="the KL has no gradient: reentrant checkpointing cuts it off"):
            model(**inputs_of("bert"))


def test_compiled_in_one_graph() -> None:
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**{**BERT, "num_hidden_layers": 1}))
    make_stochastic(model, FAMILY, kl_weight=Linear(0.5, 1.0, steps=2))
    without_dropout(model)
    batch = inputs_of("bert")
    set_sampling(model, True, seed=1)
    expected, plain = gradients(model, batch)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    outputs, traced = gradients(compiled, batch)
    torch.testing.assert_close(outputs.kl, expected.kl)
    torch.testing.assert_close(outputs.loss, expected.loss)
    for key, grad in plain.items():
        torch.testing.assert_close(traced[f"_orig_mod.{key}"], grad, msg=key)
    set_kl_step(compiled, 2)
    with torch._dynamo.config.patch(error_on_recompile=True):  # another weight is no other program
        torch.testing.assert_close(compiled(**batch).kl_cost, 2.0 * outputs.kl_cost)
    torch._dynamo.reset()


class Sentences(torch.utils.data.Dataset[dict[str, Any]]):
    """Two classes, told by the first token."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = torch.randint(3, 50, (6,), generator=torch.Generator().manual_seed(index))
        mask = (torch.arange(6) < 3 + index % 4).long()
        return {"input_ids": ids, "attention_mask": mask, "labels": int(ids[0] > 25)}


class InOrder(transformers.Trainer):  # type: ignore[misc]
    """Takes the examples in order, so that runs can be compared."""

    def _get_train_sampler(self, *args: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def trained(folder: Path, batch_size: int, accumulation: int, **kwargs: Any) -> Any:
    """A Trainer after two updates on eight examples each; noise is so small that it does not matter which."""
    torch.manual_seed(0)
    config = transformers.BertConfig(**BERT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = transformers.BertForSequenceClassification(config)
    family = Weibull(1e4, anchor="softmax")
    make_stochastic(model, family, kl_weight=Linear(0.5, 1.0, steps=2))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        max_steps=2,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        **{"logging_steps": 1, "report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True},
        **{"dataloader_pin_memory": False, **kwargs},
    )
    trainer = InOrder(model=model, args=arguments, train_dataset=Sentences(), callbacks=[KlSchedule()])
    trainer.train()
    return trainer


def losses(trainer: Any) -> list[float]:
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def by_hand() -> float:
    """The first loss that a Trainer should have logged: one batch of eight before any update."""
    torch.manual_seed(0)
    config = transformers.BertConfig(**BERT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = transformers.BertForSequenceClassification(config)
    rows = [Sentences()[index] for index in range(8)]
    batch = {key: torch.stack([torch.as_tensor(row[key]) for row in rows]) for key in rows[0]}
    likelihood = model.eval()(**batch).loss
    make_stochastic(model, Weibull(1e4, anchor="softmax"), kl_per="example")
    with record_latents(model) as record:
        model(**batch)
    num_weights = LAYERS * HEADS * batch["attention_mask"].sum(dim=1).square()
    return (likelihood + 0.5 * (record.kl() / num_weights).mean()).item()


def on_one_of_two_ranks(rank: int, port: int, folder: Path) -> None:
    """What a forked rank does: trains, and tells losses, weights and the seeds of its noise."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in place.items()})
    trainer = trained(folder, 2, 2, ddp_find_unused_parameters=True)
    torch.manual_seed(9)
    model = make_stochastic(build("bert"), FAMILY).train()
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    with record_latents(model) as record:
        outputs = parallel(**inputs_of("bert"))
    outputs.loss.backward()
    told = {
        "losses": losses(trainer),
        "weight": trainer.model.classifier.weight.sum().item(),
        "seed": int(record.latents[0].seed),
        "kl": outputs.kl.tolist(),
        "gradient": float(next(p.grad for key, p in model.named_parameters() if "out_weight" in key).abs().sum()),
    }
    (folder / f"{rank}.json").write_text(json.dumps(told))


class TestTrainer:
    def test_accumulation_reports_the_right_loss(self, tmp_path: Path) -> None:
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

    def test_two_ranks_report_the_right_loss(self, tmp_path: Path) -> None:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("fork")
        ranks = [context.Process(target=on_one_of_two_ranks, args=(rank, port, tmp_path)) for rank in range(2)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(timeout=120)
        assert [process.exitcode for process in ranks] == [0, 0]
        first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
        assert first["losses"] == pytest.approx(losses(trained(tmp_path, 8, 1)), rel=1e-3)
        assert first["weight"] == second["weight"] and first["gradient"] == second["gradient"] > 0
        assert second["seed"] == int(fold_seed(torch.tensor(first["seed"]), 1))  # noise of its own on every rank
        assert first["kl"] != second["kl"] and len(first["kl"]) == 2

    def test_label_smoothing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="label_smoothing_factor makes the Trainer compute a loss of its own"):
            trained(tmp_path, 8, 1, label_smoothing_factor=0.1)

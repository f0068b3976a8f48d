"""Converted models in the hands of others: accelerate, torch.export, another configuration, other outputs, threads."""

import copy
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probattn import Weibull, make_stochastic, set_sampling, undo
from probattn.integrations.places import Place
from tests.integrations.transformers_zoo import BERT, AroundBert, build, inputs_of, transformers, without_dropout

accelerate = pytest.importorskip("accelerate")
FAMILY = Weibull(1.0, anchor="softmax")


def wrapped_for_half_precision(model: nn.Module) -> Any:
    """As a Trainer with bf16=True leaves it."""
    return accelerate.Accelerator(cpu=True, mixed_precision="bf16").prepare(model)


@pytest.fixture(autouse=True)
def no_accelerator_stays() -> Any:
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # of another test's Trainer
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_a_copy_of_a_wrapped_model_has_its_own_weights() -> None:
    model = wrapped_for_half_precision(make_stochastic(build("bert"), FAMILY)).train()
    twin, batch = copy.deepcopy(model), inputs_of("bert")
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert bool(model(**batch).logits.any()) and not bool(twin(**batch).logits.any())
    assert "kl" in twin(**batch)
    with pytest.raises(pickle.PicklingError, match="a pickle would lose its KL; use save_pretrained"):
        pickle.dumps(model)


def test_the_wrapper_can_be_taken_off() -> None:
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.prepare(make_stochastic(build("bert"), FAMILY)).train()
    bare = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    assert "kl" in bare(**inputs_of("bert")) and undo(bare) is bare


def test_a_pickle_still_draws() -> None:
    model = make_stochastic(build("bert"), FAMILY).train()
    again, batch = pickle.loads(pickle.dumps(model)), inputs_of("bert")
    for one in (model, again):
        without_dropout(one)
        set_sampling(one, True, seed=3)
    assert torch.equal(model(**batch).loss, again(**batch).loss)


def test_export() -> None:
    model = make_stochastic(build("bert"), FAMILY).eval()
    set_sampling(model, False)
    ids = inputs_of("bert")["input_ids"]
    program = torch.export.export(model, (ids,))
    torch.testing.assert_close(program.module()(ids).logits, model(ids).logits)


def test_undo_where_the_configuration_was_replaced() -> None:
    """EncoderDecoderModel gives its parts configurations of its own."""
    encoder = transformers.BertModel(transformers.BertConfig(**BERT, attn_implementation="eager")).eval()
    ids, mask = inputs_of("bert")["input_ids"], torch.ones(2, inputs_of("bert")["input_ids"].shape[1], dtype=torch.long)
    mask[1, 3:] = 0
    expected = encoder(ids, attention_mask=mask).last_hidden_state
    make_stochastic(encoder, FAMILY)
    config = transformers.BertConfig(**BERT, is_decoder=True, add_cross_attention=True)
    transformers.EncoderDecoderModel(encoder=encoder, decoder=transformers.BertLMHeadModel(config))
    undo(encoder)
    assert torch.equal(encoder.eval()(ids, attention_mask=mask).last_hidden_state, expected)


def test_checkpoints_repeat_their_draws_without_the_generators_state() -> None:
    gradients = []
    for options in (None, {"use_reentrant": False, "preserve_rng_state": False}):
        torch.manual_seed(0)
        model = make_stochastic(build("gpt2"), FAMILY, None).train()
        without_dropout(model)
        if options is not None:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        torch.manual_seed(1)
        model(**inputs_of("gpt2")).loss.backward()
        gradients.append(torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None]))
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6, rtol=1e-4)


def test_threads_leave_no_checkpoint_of_theirs() -> None:
    model = make_stochastic(build("bert"), FAMILY, None).train()
    model.gradient_checkpointing_enable()

    def work() -> None:
        for _ in range(4):
            model(**inputs_of("bert")).loss.backward()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for layer in model.bert.encoder.layer:
        assert layer._gradient_checkpointing_func.func is torch.utils.checkpoint.checkpoint


class Plain(AroundBert):
    """Someone's model with an output that is no dataclass, or with more in it than its class knows."""

    is_plain = True

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Any:
        logits = self.logits_of(input_ids, attention_mask)
        loss = nn.functional.cross_entropy(logits, labels)
        if self.is_plain:
            return transformers.utils.ModelOutput(loss=loss, logits=logits)
        outputs = transformers.modeling_outputs.SequenceClassifierOutput(loss=loss, logits=logits)
        outputs["auxiliary"] = logits.sum()
        return outputs


@pytest.mark.parametrize("is_plain", [True, False])
def test_outputs_keep_what_they_have(is_plain: bool) -> None:
    model = Plain(transformers.BertConfig(**BERT))
    model.is_plain = is_plain
    outputs = make_stochastic(model, FAMILY).train()(**inputs_of("bert"))
    assert {"loss", "logits", "kl", "kl_cost", "task_loss"} <= set(outputs)
    assert is_plain or torch.equal(outputs["auxiliary"], outputs["logits"].sum())
    torch.testing.assert_close(outputs["loss"], outputs["task_loss"] + outputs["kl_cost"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("decoder.layers.0", True),
        ("text_decoder.layers.0", True),
        ("text_encoder.layers.0", False),
        ("decoders", False),
    ],
)
def test_some_decoder_is_a_decoder(path: str, expected: bool) -> None:
    assert Place(path, "cross", 0, 2, 4).is_decoder is expected


FIRST_PASS = """
import torch, probattn
module = probattn.MultiheadAttention(8, 2, batch_first=True, family=probattn.Weibull(10.0)).eval()
x = torch.randn(2, 4, 8)
run = torch.compile(lambda x: module.forward_with_latents(x, x, x)[0], fullgraph=True, backend="eager")
print(run(x).shape)
"""


def test_the_first_pass_of_a_process_can_be_a_compiled_one() -> None:
    found = subprocess.run([sys.executable, "-c", FIRST_PASS], capture_output=True, text=True, timeout=300)
    assert "torch.Size([2, 4, 8])" in found.stdout, found.stderr[-2000:]

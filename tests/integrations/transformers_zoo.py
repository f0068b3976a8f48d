"""Small models of `transformers` with random weights: one row for each architecture, and inputs for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="needs the extra probattn[transformers]")

VOCABULARY, HEADS, LAYERS = 50, 4, 2
PADDED = 5  # the second example has this many real tokens, the first all of them
LENGTH, TARGET_LENGTH, REAL_TARGETS = 7, 5, 3
BERT = {
    **{"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS},
    **{"intermediate_size": 48, "max_position_embeddings": 40, "pad_token_id": 1},
}
VISION = {
    **{"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 48},
    **{"image_size": 16, "patch_size": 4},
}
BART = {
    **{"vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": LAYERS, "decoder_layers": LAYERS},
    **{"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": 48},
    **{"decoder_ffn_dim": 48, "max_position_embeddings": 40, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1},
    **{"decoder_start_token_id": 2, "forced_eos_token_id": None},
}


class AroundBert(transformers.BertPreTrainedModel):  # type: ignore[misc]
    """Someone's model around BERT, whose `forward` is to come."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.bert = transformers.BertModel(config)
        self.head = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def logits_of(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        logits: Tensor = self.head(self.bert(input_ids, attention_mask=attention_mask).pooler_output)
        return logits


@dataclass(frozen=True)
class Architecture:
    """One row of the zoo.

    Attributes:
        build: Makes a model.
        inputs: "classes", "causal", "image" or "seq2seq".
        calls: Of attention in one forward pass.
        checkpoints: Whether transformers can recompute its layers.
    """

    build: Callable[[], Any]
    inputs: str
    calls: int = LAYERS
    checkpoints: bool = True


def distilbert() -> Any:
    config = transformers.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=LAYERS, n_heads=HEADS, hidden_dim=48, max_position_embeddings=40
    )
    return transformers.DistilBertForSequenceClassification(config)


def albert() -> Any:
    config = transformers.AlbertConfig(**{**BERT, "num_hidden_layers": 3}, embedding_size=16)
    return transformers.AlbertForSequenceClassification(config)


def gpt2() -> Any:
    config = transformers.GPT2Config(
        **{"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 40},
        **{"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1},
    )
    return transformers.GPT2LMHeadModel(config)


def llama() -> Any:
    config = transformers.LlamaConfig(
        **{"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS},
        **{"num_attention_heads": HEADS, "num_key_value_heads": 2, "max_position_embeddings": 40, "pad_token_id": 1},
    )
    return transformers.LlamaForCausalLM(config)


def t5() -> Any:
    config = transformers.T5Config(
        **{"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": LAYERS, "num_heads": HEADS},
        **{"decoder_start_token_id": 0, "pad_token_id": 0},
    )
    return transformers.T5ForConditionalGeneration(config)


def encoder_decoder() -> Any:
    encoder = transformers.BertConfig(**BERT)
    decoder = transformers.BertConfig(**BERT, is_decoder=True, add_cross_attention=True)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 2, 1
    return transformers.EncoderDecoderModel(config=config)


ZOO = {
    "bert": Architecture(
        lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**BERT)), "classes"
    ),
    "roberta": Architecture(
        lambda: transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**BERT)), "classes"
    ),
    "electra": Architecture(
        lambda: transformers.ElectraForSequenceClassification(transformers.ElectraConfig(**BERT, embedding_size=16)),
        "classes",
    ),
    "distilbert": Architecture(distilbert, "classes"),
    "albert": Architecture(albert, "classes", calls=3, checkpoints=False),
    "gpt2": Architecture(gpt2, "causal"),
    "llama": Architecture(llama, "causal"),
    "vit": Architecture(lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**VISION)), "image"),
    "clip-vision": Architecture(lambda: transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VISION)), "image"),
    "t5": Architecture(t5, "seq2seq", calls=3 * LAYERS),
    "bart": Architecture(
        lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**BART)), "seq2seq", calls=3 * LAYERS
    ),
    "marian": Architecture(
        lambda: transformers.MarianMTModel(transformers.MarianConfig(**BART)), "seq2seq", calls=3 * LAYERS
    ),
    "encoder-decoder": Architecture(encoder_decoder, "seq2seq", calls=3 * LAYERS),
}
CAUSAL = [name for name, row in ZOO.items() if row.inputs == "causal"]
SEQ2SEQ = [name for name, row in ZOO.items() if row.inputs == "seq2seq"]
TEXT = [name for name, row in ZOO.items() if row.inputs != "image"]


def build(name: str, attention: str = "eager", *, scale: float = 3.0) -> Any:
    """A model in evaluation mode; its matrices are scaled up, so that noise in its weights can be seen."""
    torch.manual_seed(11)
    model = ZOO[name].build().eval()
    model.set_attn_implementation(attention)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2 and parameter.requires_grad:  # positions of Marian are constants
                parameter.mul_(scale)
    return model


def inputs_of(name: str, *, labels: bool = True) -> dict[str, Tensor]:
    """A batch of two examples, of which the second is padded on the right."""
    kind = ZOO[name].inputs
    generator = torch.Generator().manual_seed(5)
    if kind == "image":
        made = {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)}
        return {**made, "labels": torch.tensor([0, 1])} if labels and name == "vit" else made
    ids = torch.randint(3, VOCABULARY, (2, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, PADDED:] = 0
    made = {"input_ids": ids, "attention_mask": mask}
    targets = torch.randint(3, VOCABULARY, (2, TARGET_LENGTH), generator=generator)
    if kind == "seq2seq" and not labels:
        return {**made, "decoder_input_ids": targets}
    if not labels:
        return made
    targets[1, REAL_TARGETS:] = -100
    of_kind = {"classes": torch.tensor([0, 1]), "causal": ids.masked_fill(mask == 0, -100), "seq2seq": targets}
    return {**made, "labels": of_kind[kind]}


def result_of(model: nn.Module, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
    """Logits, or hidden states where a model has no head."""
    outputs = model(**batch, **kwargs)
    found: Tensor = outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]
    return found


def loss_of(outputs: Any) -> Tensor:
    """What to differentiate: the loss, or the KL where a model has no head."""
    found: Tensor = outputs["loss"] if outputs.get("loss") is not None else outputs["kl_cost"]
    return found


def without_dropout(model: nn.Module) -> None:
    """Training mode, in which dropout does nothing."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "dropout_prob", "attention_probs_dropout_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def sites(model: Any) -> list[Any]:
    """The sites of a converted model."""
    from probattn.integrations.transformers.attention import StochasticAttention

    return [module for module in model.modules() if isinstance(module, StochasticAttention)]

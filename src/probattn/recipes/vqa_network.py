"""The network that the settings of a row describe, and the two ways of running it: training and prediction."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from probattn.core import Bound, Enumerate, Estimator, Evaluation
from probattn.data.glove import DIM as GLOVE_DIM
from probattn.data.glove import glove_rows
from probattn.data.words import vocabulary_words
from probattn.models.mcan import Mcan
from probattn.models.regions import RegionEncoder
from probattn.models.vqa import QuestionEncoder, RegionVqa, VqaInputs, VqaPrediction
from probattn.nn import FromScores, MultiheadAttention, sampling
from probattn.recipes.blueprints import Sizes
from probattn.recipes.vqa_data import Vocabulary
from probattn.recipes.vqa_settings import SITE, VqaSettings, VqaSizes

VqaModel = RegionVqa | Mcan


def build_model(settings: VqaSettings, vocabulary: Vocabulary, *, starts: bool = True) -> VqaModel:
    """The network with its initial weights, a function of the seed.

    Args:
        settings: Of the row.
        vocabulary: Words, answers, width of features.
        starts: Whether training starts from it, so that word vectors are wanted where the settings say so.
    """
    torch.manual_seed(settings.seed)
    build = _regions if settings.network == "regions" else _mcan
    model = build(settings, vocabulary)
    if starts and settings.corpus.uses_glove:
        _put_glove(model.question.embedding, vocabulary)
    return model


def _embedding(dim: int, vocabulary: Vocabulary) -> nn.Embedding:
    embedding = nn.Embedding(vocabulary.tokenizer.vocabulary_size, dim)
    nn.init.normal_(embedding.weight, std=0.3)
    return embedding


def _put_glove(embedding: nn.Embedding, vocabulary: Vocabulary) -> None:
    if embedding.embedding_dim != GLOVE_DIM:
        raise ValueError(
            f"corpus.uses_glove starts from vectors of {GLOVE_DIM} numbers, but words have {embedding.embedding_dim}; "
            f"set regions.embedding_dim={GLOVE_DIM} and mcan.embedding_dim={GLOVE_DIM}"
        )
    rows = glove_rows(vocabulary_words(vocabulary.tokenizer))
    with torch.no_grad():
        embedding.weight[rows.is_known] = rows.matrix[rows.is_known]


def _encoder(dim: int | None, vocabulary: Vocabulary) -> tuple[RegionEncoder | None, int]:
    """The layer over the regions' features, where there is one, and the width that the network sees."""
    if dim is None:
        return None, vocabulary.region_dim
    return RegionEncoder(vocabulary.region_dim, dim), dim


def _regions(settings: VqaSettings, vocabulary: Vocabulary) -> RegionVqa:
    sizes = settings.regions
    question = QuestionEncoder(_embedding(sizes.embedding_dim, vocabulary), sizes.question_dim)
    encoder, region_dim = _encoder(sizes.encoder_dim, vocabulary)
    state = torch.get_rng_state()  # the inference network must not change the first weights that rows share
    site = settings.site.build(
        SITE,
        VqaSizes(
            keys=region_dim,
            embedding=sizes.question_dim,
            answers=len(vocabulary.answers),
            answer_dim=sizes.answer_dim,
            hidden=sizes.attention_dim,
        ),
    )
    torch.set_rng_state(state)
    return RegionVqa(
        question,
        site,
        region_dim=region_dim,
        attention_dim=sizes.attention_dim,
        hidden_dim=sizes.hidden_dim,
        num_answers=len(vocabulary.answers),
        dropout=sizes.dropout,
        encoder=encoder,
    )


def _mcan(settings: VqaSettings, vocabulary: Vocabulary) -> Mcan:
    sizes, blueprint = settings.mcan, settings.site
    question = QuestionEncoder(_embedding(sizes.embedding_dim, vocabulary), sizes.dim)
    encoder, region_dim = _encoder(sizes.encoder_dim, vocabulary)

    def attention(name: str) -> MultiheadAttention:
        state = torch.get_rng_state()
        site = blueprint.build(name, Sizes(keys=sizes.dim // sizes.num_heads))
        torch.set_rng_state(state)
        if site.posterior is None:  # q = p: plain attention
            return MultiheadAttention(sizes.dim, sizes.num_heads, sizes.dropout, batch_first=True, name=name)
        if not isinstance(site.posterior, FromScores):
            raise ValueError("the posterior of multi-head attention is made from its scores; use blueprints.Scores")
        return MultiheadAttention(
            sizes.dim,
            sizes.num_heads,
            sizes.dropout,
            batch_first=True,
            family=site.posterior.family,
            prior=site.prior,
            estimator=settings.estimator,
            name=name,
        )

    return Mcan(
        question,
        attention,
        region_dim=region_dim,
        num_layers=sizes.num_layers,
        hidden_dim=sizes.hidden_dim,
        num_answers=len(vocabulary.answers),
        dropout=sizes.dropout,
        encoder=encoder,
    )


def sites_with_kl(model: VqaModel) -> tuple[str, ...]:
    """Names of the sites whose KL is not zero by design."""
    if isinstance(model, RegionVqa):
        return (SITE,) if model.weights.posterior is not None and model.weights.prior is not None else ()
    found = [module for module in model.modules() if isinstance(module, MultiheadAttention)]
    return tuple(module.name for module in found if module.prior is not None)


def is_random(model: VqaModel) -> bool:
    """Whether attention weights can be drawn at test time: multi-head attention with a family."""
    return isinstance(model, Mcan) and bool(model.site_names)


def run(model: VqaModel, inputs: VqaInputs, answers: Tensor, *, estimator: Estimator, bound: Bound) -> Evaluation:
    """Log-likelihoods and receipts, as in training."""
    if isinstance(model, RegionVqa):
        evaluation: Evaluation = model(inputs, answers, {SITE: estimator}, bound=bound)
    else:
        evaluation = model(inputs, answers)
    return evaluation


def answer(model: VqaModel, inputs: VqaInputs, *, estimator: Estimator, draws: bool = False) -> VqaPrediction:
    """The predicted answers; with plug-in weights unless attention is to be drawn."""
    if isinstance(model, RegionVqa):
        return model.predict(inputs, {SITE: estimator})
    with nullcontext() if draws else sampling(model, False):
        return model.predict(inputs)


class AnswerLogits(nn.Module):
    """A network as `probattn.predict` wants it: tensors in, logits out; what is random is switched from outside.

    Args:
        model: The network.
        estimator: How an answer is predicted, for a latent choice of region.
    """

    def __init__(self, model: VqaModel, estimator: Estimator):
        super().__init__()
        self.model = model
        self.estimator = estimator

    def forward(self, regions: Tensor, regions_mask: Tensor, words: Tensor, words_mask: Tensor) -> Tensor:
        """(B, A) log-probabilities, whose softmax is what they are."""
        inputs = VqaInputs(regions, regions_mask, words, words_mask)
        return answer(self.model, inputs, estimator=self.estimator, draws=True).log_probs


def nll_kind(settings: VqaSettings) -> str:
    """How the test likelihood is computed."""
    return "exact" if settings.network == "regions" and isinstance(settings.test_estimator, Enumerate) else "plug-in"

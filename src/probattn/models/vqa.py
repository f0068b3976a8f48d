"""Visual question answering with a latent choice of region (Deng et al., Sec. 4 and Appendix B).

A question is read by an LSTM, an additive score compares it with the regions of a picture, and [region; question] goes
through one hidden layer to the answer. The first layer is linear in the region, so regions are projected before one is
read; each of K particles then costs a hidden vector and a readout.

Size letters: K particles, B questions, R regions, D features of a region, T words, Q features of a question, H hidden,
A answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from probattn.core import Dense, Enumerate, Estimator, Evaluation, Mean, Memory
from probattn.core.bounds import Bound
from probattn.kernels import latent_cross_entropy
from probattn.models.draws import chunk_credit
from probattn.models.regions import RegionEncoder
from probattn.nn import Additive, Attention, AttentionOutput, Dropout, Site

__all__ = ["QuestionEncoder", "RegionVqa", "VqaInputs", "VqaPrediction", "require_width"]


@dataclass(frozen=True)
class VqaInputs:
    """Questions about pictures.

    Attributes:
        regions: (B, R, D) float32.
        regions_mask: (B, R) bool, False for padding.
        words: (B, T) int64.
        words_mask: (B, T) bool, False for padding, which is behind the words.
    """

    regions: Tensor
    regions_mask: Tensor
    words: Tensor
    words_mask: Tensor

    def __post_init__(self) -> None:
        if self.regions.dim() != 3 or self.words.dim() != 2 or len(self.regions) != len(self.words):
            raise ValueError(
                "expected regions (B, R, D) and words (B, T) of as many questions, got "
                f"{tuple(self.regions.shape)} and {tuple(self.words.shape)}"
            )


@dataclass(frozen=True)
class VqaPrediction:
    """What a network answers.

    Attributes:
        log_probs: (B, A), mixed over particles.
        weights: (B, R) expected attention over the picture.
    """

    log_probs: Tensor
    weights: Tensor


class QuestionEncoder(nn.Module):
    """Word embeddings and an LSTM.

    Args:
        embedding: (words, E).
        dim: Q.
    """

    def __init__(self, embedding: nn.Embedding, dim: int):
        super().__init__()
        self.embedding = embedding
        self.dim = dim
        self.lstm = nn.LSTM(embedding.embedding_dim, dim, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        """(B, T, Q) states of the LSTM; those behind the last word mean nothing."""
        states: Tensor = self.lstm(self.embedding(words))[0]
        return states

    def last(self, words: Tensor, mask: Tensor) -> Tensor:
        """(B, Q) states at the last word."""
        ends = (mask.sum(dim=-1) - 1).clamp(min=0)
        states: Tensor = self(words)
        return states[torch.arange(len(states), device=states.device), ends]


class RegionVqa(nn.Module):
    """score -> weights -> region -> relu(W [region; question]) -> answer.

    Args:
        question: Reads the question.
        weights: Site of the attention weights; its posterior may read the answer.
        region_dim: D.
        attention_dim: Hidden width of the score.
        hidden_dim: H.
        num_answers: A.
        dropout: Of the hidden layer; one mask is shared by all particles of a question.
        encoder: From regions as they come to (B, R, D), where those are too raw to be compared with a question; None:
            as they are (the paper).
    """

    def __init__(
        self,
        question: QuestionEncoder,
        weights: Site,
        *,
        region_dim: int,
        attention_dim: int,
        hidden_dim: int,
        num_answers: int,
        dropout: float = 0.5,
        encoder: RegionEncoder | None = None,
    ):
        super().__init__()
        self.question = question
        self.encoder = encoder
        self.input_dim = region_dim if encoder is None else encoder.feature_dim
        self.attention = Attention(Additive(question.dim, region_dim, hidden_dim=attention_dim), weights=weights)
        self.project_region = nn.Linear(region_dim, hidden_dim, bias=False)
        self.project_question = nn.Linear(question.dim, hidden_dim)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden_dim, num_answers)
        self.weights = weights

    def forward(
        self,
        inputs: VqaInputs,
        answers: Tensor,
        estimators: Mapping[str, Estimator],
        *,
        bound: Bound | None = None,
        use_posterior: bool = True,
    ) -> Evaluation:
        """Log-likelihood of answers under every particle.

        Args:
            inputs: Pictures and questions.
            answers: (B) int64.
            estimators: That of the site, by its name.
            bound: What the evaluation is for: gradients of the readout are then formed in chunks, and logits never
                kept. None: they are computed anew in the backward pass.
            use_posterior: False: draw from the predictive distribution, as if the answers were unknown.
        """
        output, hidden = self._attend(inputs, answers if use_posterior else None, estimators)
        draw = output.latents[0].draw
        credit = None
        if bound is not None:
            everything = torch.ones(draw.log_weight.shape[1:], dtype=torch.bool, device=answers.device)
            credit = chunk_credit(bound, draw, everything)
        log_lik = latent_cross_entropy(
            hidden, self.output.weight, bias=self.output.bias, target=answers, credit=credit
        )  # (K, B)
        return Evaluation(log_lik=log_lik.unsqueeze(-1), latents=output.latents)

    def predict(self, inputs: VqaInputs, estimators: Mapping[str, Estimator]) -> VqaPrediction:
        """Distribution of the answer under the site's predictive distribution, mixed over particles."""
        output, hidden = self._attend(inputs, None, estimators)
        log_probs = torch.log_softmax(self.output(hidden), dim=-1)  # (K, B, A)
        log_weight = output.latents[0].draw.log_weight  # (K, B, 1)
        mixed = log_probs[0] if len(log_probs) == 1 else torch.logsumexp(log_weight + log_probs, dim=0)
        return VqaPrediction(mixed, output.weights.squeeze(1))

    @torch.no_grad()
    def posterior_weights(self, inputs: VqaInputs, answers: Tensor) -> Tensor | None:
        """(B, R) weights of the inference network, which knows the answer; None where there is none."""
        site = self.weights
        if site.posterior is None or "target" not in site.posterior.needs:
            return None
        output, _ = self._attend(inputs, answers, {site.name: Mean()})
        value = output.latents[0].draw.value
        return None if value is None else value[0, :, 0]

    @torch.no_grad()
    def exact_posterior(self, inputs: VqaInputs, answers: Tensor) -> Tensor:
        """(B, R) p(z | picture, question, answer) ∝ p(z) f(answer | z), by enumeration."""
        evaluation = self(inputs, answers, {self.weights.name: Enumerate()}, use_posterior=False)
        draw = evaluation.latents[0].draw
        if draw.index is None:
            raise ValueError(
                "the exact posterior needs a choice of one region; this site's weights are not such a choice"
            )
        share = torch.softmax(draw.log_weight + evaluation.log_lik, dim=0).squeeze(-1)  # (K, B)
        return share.new_zeros(inputs.regions.shape[:2]).scatter_add(1, draw.index.squeeze(-1).T, share.T)

    def _attend(
        self, inputs: VqaInputs, answers: Tensor | None, estimators: Mapping[str, Estimator]
    ) -> tuple[AttentionOutput, Tensor]:
        """What was read, and (K, B, H) hidden vectors."""
        require_width(inputs.regions, self.input_dim)
        regions: Tensor = inputs.regions if self.encoder is None else self.encoder(inputs.regions)
        question = self.question.last(inputs.words, inputs.words_mask).unsqueeze(1)  # (B, 1, Q)
        mask = None if bool(inputs.regions_mask.all()) else inputs.regions_mask.unsqueeze(1)
        memory = Memory(keys=regions, values=self.project_region(regions), support=Dense(mask))
        target = None if answers is None else answers.unsqueeze(1)
        output: AttentionOutput = self.attention(question, memory, estimators=estimators, target=target)
        projected: Tensor = self.project_question(question)  # (B, 1, H)
        keep = self.dropout(torch.ones_like(projected))
        hidden = torch.relu(output.context + projected) * keep  # (K, B, 1, H)
        return output, hidden.squeeze(2)


def require_width(regions: Tensor, dim: int) -> None:
    """Refuse regions (B, R, D) whose features are not those that a network was built for.

    Raises:
        ValueError: If D is another number than `dim`.
    """
    if regions.shape[-1] != dim:
        raise ValueError(
            f"expected regions of {dim} features, got {regions.shape[-1]}; use features of the extractor that the "
            "network was trained with"
        )

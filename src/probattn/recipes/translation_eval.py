"""Evaluation of a translation model: likelihoods, BLEU, entropies, alignment error rates.

Size letters: B sentences, T target positions, S source positions.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from probattn.core import Bound, Elbo, Estimator, Evaluation, ImportanceWeighted, Marginal, Mean, Pathwise
from probattn.data.batches import TranslationBatch, decoding_batches, restore_order
from probattn.data.bpe import BOS, EOS, PAD, UNK
from probattn.decoding import Constraints, MaxLength, WuPenalty, beam_search
from probattn.metrics import alignment_error_rate, elbo_ppl, exact_ppl, links_from_weights
from probattn.metrics.bleu import bleu, chrf
from probattn.models.seq2seq import Seq2Seq
from probattn.models.seq2seq_stepper import Seq2SeqStepper
from probattn.recipes.translation_data import Corpus


@dataclass(frozen=True)
class DecodingSettings:
    """How translations are searched for."""

    beam_size: int = 5
    """Hypotheses of a sentence; 1 is greedy."""
    length_penalty: float = 1.0
    """Exponent of Wu et al.'s penalty ((5 + length) / 6); 0 for none."""
    eos_penalty: float = 0.0
    """Deng et al.'s code uses an undocumented 3.0."""
    max_sentences: int = 32
    """Sentences that are decoded together."""


@dataclass(frozen=True)
class Tally:
    """Sums over a split."""

    nats: float = 0.0
    kl: float = 0.0
    tokens: int = 0


def batches_of(corpus: Corpus, split: str, *, max_sentences: int = 64) -> Iterator[TranslationBatch]:
    """All pairs of a split, sorted by source length, in output ids."""
    text = corpus.encoded[split]
    order = sorted(range(len(text)), key=lambda row: int(text.source_lengths[row]))
    for start in range(0, len(order), max_sentences):
        yield to_output_ids(text.batch(order[start : start + max_sentences]), corpus)


def to_output_ids(batch: TranslationBatch, corpus: Corpus) -> TranslationBatch:
    """The same batch with target words numbered as the softmax numbers them."""
    outputs = corpus.outputs
    changed = {"target_in": outputs.to_output(batch.target_in), "target_out": outputs.to_output(batch.target_out)}
    return TranslationBatch(**{**vars(batch), **changed})


def run(
    model: Seq2Seq, batch: TranslationBatch, estimator: Estimator, *, bound: Bound | None, use_posterior: bool
) -> Evaluation:
    """The model's evaluation of a batch."""
    moved = batch.to(model.device)
    return model(
        moved.source,
        moved.source_mask,
        target_in=moved.target_in,
        target_out=moved.target_out,
        target_mask=moved.target_mask,
        estimators={model.weights.name: estimator},
        bound=bound,
        use_posterior=use_posterior,
    )


@torch.no_grad()
def likelihood(
    model: Seq2Seq, corpus: Corpus, split: str, *, estimator: Estimator, bound: Bound, use_posterior: bool
) -> Tally:
    """Sum of a bound over a split.

    Without the posterior it is the log-likelihood of the predictive distribution: exact for `Marginal` with
    `Enumerate`, and without a KL, which regularises training but is no part of a prediction.
    """
    nats = kl = 0.0
    tokens = 0
    for batch in batches_of(corpus, split):
        terms = bound(run(model, batch, estimator, bound=None, use_posterior=use_posterior))
        nats += float((terms.bound if use_posterior else terms.log_lik).sum())
        kl += sum(float(value.sum()) for value in terms.kl.values())
        tokens += int(batch.target_mask.sum())
    return Tally(nats=nats, kl=kl, tokens=tokens)


@torch.no_grad()
def expected_weights(model: Seq2Seq, batch: TranslationBatch, *, use_posterior: bool) -> Tensor:
    """(B, T, S) plug-in weights: of the predictive distribution, or of the inference network, which sees the target."""
    evaluation = run(model, batch, Mean(), bound=None, use_posterior=use_posterior)
    value = evaluation.latents[0].draw.value
    if value is None:
        raise ValueError("the site gave positions where weights were expected")
    return value[0]


def mean_entropy(model: Seq2Seq, corpus: Corpus, split: str, *, use_posterior: bool) -> float:
    """Mean entropy of the expected weights over target words, in nats (Deng et al., Table 3)."""
    total = count = 0.0
    for batch in batches_of(corpus, split):
        weights = expected_weights(model, batch, use_posterior=use_posterior)
        entropy = -torch.xlogy(weights, weights).sum(dim=-1)
        total += float(entropy[batch.target_mask].sum())
        count += float(batch.target_mask.sum())
    return total / count


def aer(model: Seq2Seq, corpus: Corpus, *, use_posterior: bool) -> float:
    """Alignment error rate on the test split, where gold links are known; a target subword links to one source word."""
    if corpus.gold is None:
        raise ValueError("this corpus has no gold alignments")
    text = corpus.encoded["test"]
    sentences = []
    for batch in batches_of(corpus, "test"):
        weights = expected_weights(model, batch, use_posterior=use_posterior)
        for row, number in zip(weights, batch.index.tolist(), strict=True):
            source_words = corpus.tokenizer.word_index(text.source[number])
            target_words = corpus.tokenizer.word_index(text.target[number])
            inside = row[: len(target_words), : len(source_words)]
            predicted = links_from_weights(inside, source_words, target_words)
            sure, possible = corpus.gold[number]
            sentences.append((predicted, sure, possible))
    return alignment_error_rate(sentences)


@torch.no_grad()
def translate(
    model: Seq2Seq,
    corpus: Corpus,
    source: Sequence[Sequence[int]],
    *,
    estimator: Estimator,
    settings: DecodingSettings,
    show_progress: bool = False,
) -> list[str]:
    """Best translation of each source sentence, as words."""
    stepper = Seq2SeqStepper(model, estimator)
    constraints = Constraints(bos=BOS, eos=EOS, max_length=MaxLength(factor=1.5, offset=10), forbidden=(PAD, BOS, UNK))
    batches = decoding_batches(source, max_sentences=settings.max_sentences)
    found: list[list[str]] = []
    for batch in tqdm(batches, desc="translating", disable=not show_progress):
        results = beam_search(
            stepper,
            batch,
            constraints=constraints,
            beam_size=settings.beam_size,
            length_penalty=WuPenalty(settings.length_penalty),
            eos_penalty=settings.eos_penalty,
        )
        tokens = [torch.tensor(best[0].tokens, dtype=torch.int64) for best in results]
        found.append([corpus.tokenizer.decode(corpus.outputs.to_full(words)) for words in tokens])
    return restore_order(batches, found, num_rows=len(source), empty="")


def evaluate_model(
    model: Seq2Seq,
    corpus: Corpus,
    *,
    estimator: Estimator,
    decoding: DecodingSettings,
    train_estimator: Estimator | None = None,
    split: str = "test",
) -> Mapping[str, float | str]:
    """All metrics of a trained model on a split.

    Args:
        model: In evaluation mode.
        corpus: Text and subwords.
        estimator: Of the predictive distribution.
        decoding: Search settings.
        train_estimator: For the ELBO column; None leaves it out.
        split: Which part of the corpus.
    """
    has_network = model.weights.posterior is not None and "target" in model.weights.posterior.needs
    test = likelihood(model, corpus, split, estimator=estimator, bound=predictive_bound(estimator), use_posterior=False)
    metrics: dict[str, float | str] = {
        "nll_per_token": -test.nats / test.tokens,
        "ppl": exact_ppl(test.nats, test.tokens),
        "tokens": test.tokens,
        "entropy": mean_entropy(model, corpus, split, use_posterior=False),
    }
    if train_estimator is not None:
        elbo = likelihood(model, corpus, split, estimator=train_estimator, bound=Elbo(), use_posterior=True)
        metrics |= {"elbo_ppl": elbo_ppl(elbo.nats, elbo.tokens), "kl_per_token": elbo.kl / elbo.tokens}
    if has_network:
        metrics["posterior_entropy"] = mean_entropy(model, corpus, split, use_posterior=True)
    if corpus.gold is not None and split == "test":
        metrics["aer"] = aer(model, corpus, use_posterior=False)
        if has_network:
            metrics["posterior_aer"] = aer(model, corpus, use_posterior=True)
    started = time.perf_counter()
    translations = translate(model, corpus, corpus.encoded[split].source, estimator=estimator, settings=decoding)
    references = list(corpus.texts[split].target)
    quality, characters = bleu(translations, references), chrf(translations, references)
    return {
        **metrics,
        "bleu": quality.score,
        "bleu_signature": quality.signature,
        "chrf": characters.score,
        "decoding_seconds": time.perf_counter() - started,
    }


def predictive_bound(estimator: Estimator) -> Bound:
    """Log-likelihood of a mixture over particles: exact if enumerated, a lower bound in expectation for samples."""
    return ImportanceWeighted() if isinstance(estimator, Pathwise) else Marginal()

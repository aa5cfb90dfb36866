"""Train the sample model: a small StructBERT zero-shot classifier, in ModelScope's layout.

    python -m sample_data.train_model [DIRECTORY]

Run it from the repository's root; without a directory the model is written to `model/` beside this script. It takes a
few minutes on two CPU cores. The seed is fixed, but another machine, thread count or version of torch gives other last
bits, and so another checkpoint of the same quality.

What it learns from is in `training_pairs`. Accuracy is measured on held-out texts, whose words and patterns training
never saw together, and on the sample news; the script fails when fewer than nine in ten held-out texts are labelled
right.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import torch
from transformers import BertConfig, BertForSequenceClassification

from sample_data.news_sentences import NewsWriter, Part
from sample_data.news_topics import TOPICS
from sample_data.training_pairs import (
    MAX_LENGTH,
    NO_TOPIC,
    SEED,
    TEMPLATE,
    Batch,
    Pair,
    PairMaker,
    training_examples,
    vocabulary,
)

_LABELS = tuple(topic.name for topic in TOPICS)
_REQUIRED_ACCURACY = 0.9
_BATCH_TOKENS = 3_000
_CONFIG = {
    "model_type": "structbert",
    "architectures": ["SbertForSequenceClassification"],
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "hidden_act": "gelu",
    # Every text is seen once, so there is nothing to memorise; and without dropout training is half as long.
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": MAX_LENGTH,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "num_labels": 3,
}
_CONFIGURATION = {
    "framework": "pytorch",
    "task": "zero-shot-classification",
    "preprocessor": {"type": "zero-shot-cls-tokenizer"},
    "model": {"type": "structbert"},
    "pipeline": {"type": "zero-shot-classification"},
}


class TopicHead(torch.nn.Module):
    """Says from the first layer what the text and the hypothesis are about; thrown away after training.

    Whether two halves match is hard to learn while neither means anything yet: without this head the loss stays on a
    plateau for most of the time.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(hidden_size, NO_TOPIC + 1)

    def forward(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean loss of the topics of both halves.

        Args:
            hidden: The first layer's output, (pairs, longest, hidden) float32.
            batch: The pairs.

        Returns:
            A scalar.
        """
        second = batch.token_type_ids
        loss = torch.zeros(())
        for mask, topics in (
            (batch.attention_mask - second, batch.text_topics),
            (second, batch.hypothesis_topics),
        ):
            mean = (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
            loss = loss + torch.nn.functional.cross_entropy(self.linear(mean), topics) / 2
        return loss


def train(model: BertForSequenceClassification, maker: PairMaker) -> None:
    """Train the model in place: each example once, with a warm-up and a cosine decay of the learning rate."""
    rng = random.Random(SEED)
    batches = list(maker.training_batches(training_examples(), rng, _BATCH_TOKENS))
    head = TopicHead(model.config.hidden_size)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 50, 0.5 + 0.5 * math.cos(math.pi * step / len(batches)))
    )
    model.train()
    losses = []
    for step, batch in enumerate(batches, start=1):
        width = batch.input_ids.shape[1]
        positions = torch.arange(width)
        if rng.random() < 0.3:
            # Few texts are long. Moved to a later place, short ones train the embeddings of later positions too.
            positions[1:] += rng.randrange(MAX_LENGTH - width + 1)
        output = model(
            input_ids=batch.input_ids,
            token_type_ids=batch.token_type_ids,
            attention_mask=batch.attention_mask,
            position_ids=positions[None],
            output_hidden_states=True,
        )
        loss = torch.nn.functional.cross_entropy(output.logits, batch.kinds, label_smoothing=0.02)
        optimizer.zero_grad()
        (loss + head(output.hidden_states[1], batch)).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 100 == 0:
            print(f"step {step} of {len(batches)}: loss {sum(losses[-100:]) / 100:.4f}", flush=True)
    model.eval()


def accuracy(
    model: BertForSequenceClassification, maker: PairMaker, texts: Sequence[tuple[str, str]], template: str = TEMPLATE
) -> float:
    """Return the share of (text, topic) whose topic has the largest entailment logit among the nine labels."""
    tokenised = sorted(((maker.token_ids(text), topic) for text, topic in texts), key=lambda item: len(item[0]))
    num_right = 0
    for start in range(0, len(tokenised), 16):
        group = tokenised[start : start + 16]
        batch = maker.batch([Pair(ids, template.format(label)) for ids, _ in group for label in _LABELS])
        with torch.inference_mode():
            logits = model(
                input_ids=batch.input_ids, token_type_ids=batch.token_type_ids, attention_mask=batch.attention_mask
            ).logits
        best = logits[:, 0].reshape(len(group), len(_LABELS)).argmax(dim=1).tolist()
        num_right += sum(_LABELS[index] == topic for index, (_, topic) in zip(best, group, strict=True))
    return num_right / len(texts)


def held_out_texts(num_headlines: int, num_bodies: int) -> list[tuple[str, str]]:
    """Return headlines and bodies of the held-out part with their topics."""
    writer = NewsWriter(SEED, Part.HELD_OUT)
    headlines = [(writer.headline(topic), topic.name) for topic in writer.rng.choices(TOPICS, k=num_headlines)]
    bodies = [(writer.body(topic, 500), topic.name) for topic in writer.rng.choices(TOPICS, k=num_bodies)]
    return headlines + bodies


def save(model: BertForSequenceClassification, directory: Path) -> None:
    """Write configuration and weights as ModelScope does, the persistent buffer of position ids included."""
    config = {**_CONFIG, "vocab_size": model.config.vocab_size}
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    (directory / "configuration.json").write_text(json.dumps(_CONFIGURATION, indent=1) + "\n", encoding="utf-8")
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    state["bert.embeddings.position_ids"] = torch.arange(MAX_LENGTH)[None]
    torch.save(state, directory / "pytorch_model.bin")


def main() -> None:
    """Train, save and measure the sample model."""
    parser = argparse.ArgumentParser(description="Train the sample model.")
    parser.add_argument("directory", nargs="?", type=Path, default=Path(__file__).parent / "model")
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    tokens = vocabulary([example.text for example in training_examples()])
    (directory / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    maker = PairMaker(directory / "vocab.txt")

    started = time.monotonic()
    torch.manual_seed(SEED)
    sizes = {name: value for name, value in _CONFIG.items() if name not in ("model_type", "architectures")}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokens), **sizes))
    train(model, maker)
    save(model, directory)
    num_weights = sum(weight.numel() for weight in model.parameters())
    print(f"trained {num_weights:,} weights in {time.monotonic() - started:.0f} s")

    texts = held_out_texts(1350, 150)
    held_out = accuracy(model, maker, texts)
    print(f"held-out texts right: {held_out:.4f}")
    print(f"held-out texts right with the template {{}}: {accuracy(model, maker, texts, '{}'):.4f}")
    print(f"held-out bodies right: {accuracy(model, maker, texts[1350:]):.4f}")
    news = pl.read_parquet(Path(__file__).parent / "news.parquet").drop_nulls("topic")
    print(f"sample news right: {accuracy(model, maker, news.select('text', 'topic').rows()):.4f}")
    if held_out < _REQUIRED_ACCURACY:
        sys.exit(f"the model labels fewer than {_REQUIRED_ACCURACY:.0%} of the held-out texts right")


if __name__ == "__main__":
    main()

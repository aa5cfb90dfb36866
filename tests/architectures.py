"""Tiny random classifiers of the padded path in transformers' layout, each with its family's own tokenizer class.

Nothing is fetched: the vocabularies are trained on the sentences below, and the weights are drawn from a seed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: Tokens of a pair at most, and the positions that each network has.
MAX_LENGTH = 64
LABELS = ("文化", "体育", "finance", "science and technology")
TEMPLATE = "这篇文章的标题是{}"
#: Chinese, English and both, of one token and of more than any network takes, with white space where it is not usual.
TEXTS = (
    "央行宣布降息25个基点",
    "The home team wins the cup after extra time.",
    "国产大模型 open-source release 发布会，今天 at 10:30!",
    "短",
    "a",
    "  leading and trailing blanks  ",
    "第一行\n第二行\ttab",
    "教育部发布新规定，加强学校体育课，" * 12,
    "Shares fell on Monday; analysts blame rates. " * 10,
    "新片票房创纪录 🙂",
)
NAMES = ("contradiction", "neutral", "entailment")
ARCHITECTURES = ("roberta", "xlm-roberta", "deberta-v2", "modernbert", "electra", "distilbert", "albert", "bart")


def write_architecture(
    folder: Path, model_type: str, names: Sequence[str] = NAMES, *, seed: int = 0, **changes: Any
) -> Path:
    """Write a checkpoint: config.json, model.safetensors, tokenizer.json and tokenizer_config.json."""
    import torch
    import transformers

    tokenizer = _tokenizer(model_type)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    special = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    classes = {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    sizes = _sizes(model_type)
    config = transformers.CONFIG_MAPPING[model_type](
        vocab_size=len(tokenizer) + 3, **{**special, **classes, **sizes, **changes}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)](config).eval()
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                # Not as transformers draws them, nearly 0 and 1: a mix-up would go unseen.
                parameter.normal_(mean=1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0, std=0.2)
    network.save_pretrained(folder)
    return folder


def change_json(path: Path, **changes: Any) -> None:
    """Write other values into a JSON file; None removes a key."""
    values = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}), encoding="utf-8")


def _sizes(model_type: str) -> dict[str, Any]:
    usual = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": MAX_LENGTH,
    }
    special: dict[str, dict[str, Any]] = {
        # Two rows of positions are the padding's and the one before it.
        "roberta": usual | {"max_position_embeddings": MAX_LENGTH + 2, "type_vocab_size": 1},
        "xlm-roberta": usual | {"max_position_embeddings": MAX_LENGTH + 2, "type_vocab_size": 1},
        "deberta-v2": usual
        | {
            "relative_attention": True,
            "position_biased_input": False,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "type_vocab_size": 0,
        },
        "modernbert": usual
        | {"local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 2, "sep_token_id": 3},
        "electra": usual | {"embedding_size": 8},
        "distilbert": {
            "dim": 16,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 32,
            "max_position_embeddings": MAX_LENGTH,
        },
        "albert": usual | {"embedding_size": 8},
        "bart": {
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": MAX_LENGTH,
        },
    }
    return special[model_type]


def _tokenizer(model_type: str) -> Any:
    import transformers

    roberta = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    makers: dict[str, Callable[[], Any]] = {
        "roberta": lambda: transformers.RobertaTokenizer(**_byte_level(roberta), model_max_length=MAX_LENGTH),
        "bart": lambda: transformers.BartTokenizer(**_byte_level(roberta), model_max_length=MAX_LENGTH),
        "xlm-roberta": lambda: transformers.XLMRobertaTokenizer(
            vocab=[*_unigram(["<s>", "<pad>", "</s>", "<unk>"], "<unk>"), ("<mask>", 0.0)], model_max_length=MAX_LENGTH
        ),
        "deberta-v2": lambda: transformers.DebertaV2Tokenizer(
            vocab=[*_unigram(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], "[UNK]"), ("[MASK]", 0.0)],
            model_max_length=MAX_LENGTH,
        ),
        "albert": lambda: transformers.AlbertTokenizer(
            vocab=_unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], "<unk>"),
            model_max_length=MAX_LENGTH,
            # transformers 5 leaves token types out where nothing says that they are wanted: see its issue 48128.
            model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        ),
        "electra": lambda: transformers.ElectraTokenizer(vocab=_characters(bert), model_max_length=MAX_LENGTH),
        "distilbert": lambda: transformers.DistilBertTokenizer(vocab=_characters(bert), model_max_length=MAX_LENGTH),
        "modernbert": lambda: _modernbert(bert),
    }
    return makers[model_type]()


def _byte_level(special: list[str]) -> dict[str, Any]:
    """Train a byte-level BPE vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(pair) for pair in model["merges"]]}


def _unigram(special: list[str], unknown: str) -> list[tuple[str, float]]:
    """Train SentencePiece's kind of vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token=unknown, show_progress=False)
    tokenizer.train_from_iterator([*TEXTS, TEMPLATE, *LABELS], trainer)
    return [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]


def _characters(special: list[str]) -> dict[str, int]:
    """Make a WordPiece vocabulary of characters and of their continuations."""
    characters = sorted({one for text in (*TEXTS, TEMPLATE, *LABELS) for one in text.lower() if one.strip()})
    tokens = [*special, *characters, *(f"##{one}" for one in characters if one.isascii()), "home", "team", "rates"]
    return {token: index for index, token in enumerate(tokens)}


def _modernbert(special: list[str]) -> Any:
    """ModernBERT has no tokenizer class of its own: byte-level BPE in transformers' general one."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    trained = _byte_level(special)
    tokenizer = Tokenizer(models.BPE(vocab=trained["vocab"], merges=trained["merges"]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    ids = {token: trained["vocab"][token] for token in ("[CLS]", "[SEP]")}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=list(ids.items())
    )
    names = {
        name: f"[{name[:-6].upper()}]" for name in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **names,
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
    )

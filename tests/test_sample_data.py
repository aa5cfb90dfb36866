"""The sample news and the sample model are what their README says, and the scripts beside them still make them."""

import csv
import json
import unicodedata
from pathlib import Path

import polars as pl
import pytest
import torch
from tokenizers import BertWordPieceTokenizer

import sample_data.make_news
from sample_data.make_news import write_news
from sample_data.news_sentences import NewsWriter, Part, words_for
from sample_data.news_topics import TOPICS
from sample_data.training_pairs import training_examples

SAMPLES = Path(sample_data.make_news.__file__).parent
MODEL = SAMPLES / "model"


def content(text: str) -> str:
    """Return the text without white space and without invisible characters."""
    return "".join(char for char in text if unicodedata.category(char)[0] not in "ZC")


@pytest.fixture(scope="module")
def news() -> pl.DataFrame:
    """The shipped Parquet file."""
    return pl.read_parquet(SAMPLES / "news.parquet")


@pytest.fixture(scope="module")
def texts(news: pl.DataFrame) -> list[str]:
    """The shipped texts that say something."""
    return [text for text in news["text"].drop_nulls() if content(text)]


def test_csv_and_parquet_hold_the_same_rows(news: pl.DataFrame) -> None:
    """The CSV has the Parquet file's rows in its order; null and empty text are both an empty field."""
    with (SAMPLES / "news.csv").open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == news.columns
    assert [tuple(row) for row in rows] == [
        tuple("" if value is None else str(value) for value in row) for row in news.rows()
    ]


def test_csv_is_plain_utf8() -> None:
    """No byte order mark, no carriage return, and a last line that ends."""
    data = (SAMPLES / "news.csv").read_bytes()
    assert not data.startswith(b"\xef\xbb\xbf")
    assert b"\r" not in data
    assert data.endswith(b"\n")


def test_the_scripts_make_the_shipped_news(news: pl.DataFrame, tmp_path: Path) -> None:
    """Running the script again gives the same CSV bytes and the same Parquet rows."""
    write_news(tmp_path)
    assert (tmp_path / "news.csv").read_bytes() == (SAMPLES / "news.csv").read_bytes()
    assert pl.read_parquet(tmp_path / "news.parquet").equals(news)


def test_news_have_the_stated_columns_and_sizes(news: pl.DataFrame, texts: list[str]) -> None:
    """At least 5,000 texts over nine topics, 6 to 900 characters, short on average; small files."""
    assert news.schema == {"id": pl.String, "date": pl.Date, "text": pl.String, "topic": pl.String}
    assert len(texts) >= 5000
    lengths = [len(text) for text in texts]
    assert min(lengths) >= 6
    assert 512 < max(lengths) <= 900
    assert sum(lengths) / len(lengths) <= 45
    counts = news.drop_nulls("topic")["topic"].value_counts()
    assert set(counts["topic"]) == {topic.name for topic in TOPICS}
    assert counts["count"].to_numpy().min() >= 500
    assert sum((SAMPLES / name).stat().st_size for name in ("news.csv", "news.parquet")) < 1_500_000


def test_news_are_as_untidy_as_promised(news: pl.DataFrame, texts: list[str]) -> None:
    """Ids repeat or are missing; texts are duplicated, empty, blank, and hold what breaks naive readers."""
    ids = news["id"].drop_nulls()
    assert ids.str.contains(r"^0\d{5}$").all()
    assert 0 < ids.len() - ids.n_unique() < 50
    assert 0 < news["id"].null_count() < 50
    assert 0.02 < 1 - len(set(texts)) / len(texts) < 0.04
    assert 5 <= news["text"].null_count() < 50
    assert 5 <= (news["text"] == "").sum() < 50
    blank = [text for text in news["text"].drop_nulls() if text and not content(text)]
    assert 5 <= len(blank) < 50
    assert any(text.isspace() for text in blank)
    assert "\u200b" in blank
    for char in '🔥🫡🩷ＡＢＣ１２３，！",\n':
        assert any(char in text for text in texts), char
    assert any("NBA" in text for text in texts)


def test_only_blank_texts_have_no_topic(news: pl.DataFrame) -> None:
    """A row has a true label exactly when its text says something."""
    assert all(bool(content(text or "")) == (topic is not None) for text, topic in news.select("text", "topic").rows())


def test_training_never_saw_a_shipped_text(texts: list[str]) -> None:
    """The sample model's training texts and the shipped texts are disjoint."""
    trained = {example.text for example in training_examples()}
    assert trained.isdisjoint(texts)


def test_words_of_a_pattern_are_split_between_the_parts() -> None:
    """Each pattern has a third of a slot's words held out, and another third than another pattern has."""
    topic = TOPICS[0]
    held_out = words_for("{actor}", topic, "actor", Part.HELD_OUT)
    assert len(held_out) == len(topic.actor) // 3
    assert sorted(held_out + words_for("{actor}", topic, "actor", Part.TRAIN)) == sorted(topic.actor)
    assert set(held_out) != set(words_for("{actor}！", topic, "actor", Part.HELD_OUT))


def test_a_writer_depends_on_its_seed_alone() -> None:
    """Two writers with one seed write the same texts, within the lengths they promise."""
    first, second = NewsWriter(7, Part.HELD_OUT), NewsWriter(7, Part.HELD_OUT)
    for topic in TOPICS:
        for num_chars in (1, 400, 5000):
            body = first.body(topic, num_chars)
            assert body == second.body(topic, num_chars)
            assert 100 <= len(body) <= 900
        headlines = [first.headline(topic) for _ in range(50)]
        assert headlines == [second.headline(topic) for _ in range(50)]
        assert all(6 <= len(headline) <= 40 for headline in headlines)


def test_topics_are_rich_enough() -> None:
    """Each topic has at least sixty words, none twice within a slot, and fifteen patterns of its own."""
    for topic in TOPICS:
        slots = [topic.words(slot) for slot in ("actor", "action", "object", "place")]
        assert sum(map(len, slots)) >= 60
        assert all(len(set(words)) == len(words) for words in slots)
        assert len(topic.headlines) + len(topic.bodies) >= 15


def test_model_is_laid_out_as_modelscope_does() -> None:
    """The directory is below 6 MB and holds the four files; the weights load without unpickling objects."""
    files = {path.name: path.stat().st_size for path in MODEL.iterdir()}
    assert set(files) == {"config.json", "configuration.json", "vocab.txt", "pytorch_model.bin"}
    assert sum(files.values()) < 6_000_000
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "structbert"
    assert config["architectures"] == ["SbertForSequenceClassification"]
    assert config["num_labels"] == 3
    assert "id2label" not in config
    state = torch.load(MODEL / "pytorch_model.bin", weights_only=True)
    assert all(name.startswith(("bert.", "classifier.")) for name in state)
    assert all(bool(tensor.isfinite().all()) for tensor in state.values())
    assert state["classifier.weight"].shape == (3, config["hidden_size"])
    words = state["bert.embeddings.word_embeddings.weight"]
    assert words.shape == (config["vocab_size"], config["hidden_size"])


def test_vocabulary_spells_the_sample_news(texts: list[str]) -> None:
    """Special tokens stand where a Chinese BERT has them, no token repeats, and hardly any character is unknown."""
    tokens = (MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert tokens[0] == "[PAD]"
    assert tokens[100:104] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(set(tokens)) == len(tokens)
    tokenizer = BertWordPieceTokenizer(str(MODEL / "vocab.txt"), lowercase=True)
    ids = [token for text in texts for token in tokenizer.encode(text, add_special_tokens=False).ids]
    assert ids.count(100) / len(ids) < 0.002

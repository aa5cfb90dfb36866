"""Write the sample news, `news.parquet` and `news.csv`: the same 6,000 rows in both.

    python -m sample_data.make_news [DIRECTORY]

Run it from the repository's root; without a directory the files are written beside this script. Texts come from
`news_sentences`, from the part that the sample model was not trained on. The rows are as untidy as real ones: ids
repeat or are missing, some texts are exact duplicates, empty, or nothing but white space, and some hold emoji,
full-width forms, English, quotation marks, commas and line breaks. Two runs write the same bytes with the same version
of Polars.
"""

import argparse
import csv
import datetime as dt
import random
from pathlib import Path

import polars as pl

from sample_data.news_sentences import NewsWriter, Part
from sample_data.news_topics import TOPICS

NUM_ROWS = 6_000
_NUM_DUPLICATES = 180
_NUM_REPEATED_IDS = 15
_NUM_MISSING_IDS = 12
_NUM_EMPTY = 12  # and as many nulls
_BLANKS = (
    " ",
    "　",
    "\t",
    "   ",
    " \n ",
    "\u200b",
    "\ufeff",
    "\u200d\u200b",
    "　　 ",
    "\u00a0",
    "\u2003\u200c",
    "\u2060",
)
_BODY_SHARE = 0.1
_DECORATED_SHARE = 0.18
_FIRST_DAY = dt.date(2024, 1, 1)
_SEED = 20240101

Row = tuple[str | None, str | None]  # text and topic; a text without content has no topic


def make_rows() -> list[Row]:
    """Return the texts and their topics, in the order of the files."""
    writer = NewsWriter(_SEED, Part.HELD_OUT)
    rng = writer.rng
    rows: list[Row] = [("", None)] * _NUM_EMPTY
    rows += [(None, None)] * _NUM_EMPTY
    rows += [(blank, None) for blank in _BLANKS]
    num_written = NUM_ROWS - _NUM_DUPLICATES - len(rows)
    written: dict[str, str] = {}
    while len(written) < num_written:
        topic = rng.choice(TOPICS)
        if rng.random() < _BODY_SHARE:
            # Most bodies are short, so that the sample is scored quickly; one in eight is longer than 512 characters.
            text = writer.body(topic, 100 + int(800 * rng.random() ** 5))
        else:
            text = writer.headline(topic)
            if rng.random() < _DECORATED_SHARE:
                text = writer.decorate(text)
        written.setdefault(text, topic.name)
    rows += written.items()
    rows += rng.sample(list(written.items()), _NUM_DUPLICATES)
    rng.shuffle(rows)
    return rows


def make_frame() -> pl.DataFrame:
    """Return the sample news with the columns id, date, text and topic."""
    rows = make_rows()
    rng = random.Random(_SEED)
    ids: list[str | None] = [f"{number:06d}" for number in range(1, NUM_ROWS + 1)]
    chosen = rng.sample(range(1, NUM_ROWS), _NUM_REPEATED_IDS + _NUM_MISSING_IDS)
    for index in chosen[:_NUM_REPEATED_IDS]:
        ids[index] = f"{index:06d}"  # the id of the row before
    for index in chosen[_NUM_REPEATED_IDS:]:
        ids[index] = None
    dates = [_FIRST_DAY + dt.timedelta(days=rng.randrange(366)) for _ in rows]
    return pl.DataFrame(
        {"id": ids, "date": dates, "text": [text for text, _ in rows], "topic": [topic for _, topic in rows]},
        schema={"id": pl.String, "date": pl.Date, "text": pl.String, "topic": pl.String},
    )


def write_news(directory: Path) -> None:
    """Write `news.parquet` and `news.csv` into a directory that exists."""
    frame = make_frame()
    frame.write_parquet(directory / "news.parquet", compression="zstd", compression_level=19)
    with (directory / "news.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(frame.columns)
        writer.writerows(frame.rows())


def main() -> None:
    """Write the two files and say how large they are."""
    parser = argparse.ArgumentParser(description="Write the sample news.")
    parser.add_argument("directory", nargs="?", type=Path, default=Path(__file__).parent)
    directory = parser.parse_args().directory
    write_news(directory)
    for name in ("news.parquet", "news.csv"):
        print(f"{directory / name}: {NUM_ROWS} rows, {(directory / name).stat().st_size} bytes")


if __name__ == "__main__":
    main()

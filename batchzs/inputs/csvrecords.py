"""CSV and TSV records, line by line: the authority on where records begin, which are damaged, and what they hold.

RFC 4180, as Python's csv module reads it in strict mode: quoted fields may hold delimiters, line ends and doubled
quotes; a quote inside an unquoted field is an ordinary character. What Python's csv cannot tell is added here: an
unquoted empty field is null, a quoted empty one is an empty string.

- Blank lines are no records, in files of one column too (a writer that means an empty field there writes `""`).
- A lone carriage return outside quotes damages its record: it is an old line end to some readers, text to others.
- Damage that stays within one physical line is a problem of that record. A record that runs over several lines and
  does not end well began with an unclosed quote: the file is refused, naming the line where the record began. (Two
  stray quotes may also enclose whole lines and read as one well-formed record; no reader can tell that from a text
  with line ends in it.)
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchzs.errors import InputError
from batchzs.inputs.pieces import RowProblem
from batchzs.inputs.rows import BAD_ENCODING, BAD_RECORD, SeekPoint
from batchzs.inputs.textlines import MAX_RECORD_BYTES, UNDECODABLE, encoding_hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.inputs.textlines import LineFeed

    Fields = Sequence[str | None]  # one record; None: an unquoted empty field, or one that damage took


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How fields are divided."""

    delimiter: str
    quote: str | None  # None: quotes are ordinary characters


@dataclass(frozen=True, slots=True)
class CsvBlock:
    """Consecutive records."""

    start: SeekPoint
    records: list[Fields]  # each as many fields as expected, damaged ones filled up with None
    problems: dict[int, RowProblem]  # by index into `records`
    texts: list[str]  # the physical lines that hold the records
    num_blank_lines: int


class CsvRecords:
    """Reads records from a feed of lines."""

    def __init__(self, feed: LineFeed, dialect: CsvDialect, *, name: str, encoding: str) -> None:
        """Read from the feed's present place.

        Args:
            feed: The lines.
            dialect: How fields are divided.
            name: The file, as messages call it.
            encoding: The encoding, as messages call it.
        """
        self._feed = feed
        self._name = name
        self._encoding = encoding
        self._dialect = dialect
        self._field = _field_pattern(dialect)
        self._empty_quoted = 2 * dialect.quote if dialect.quote else None
        csv.field_size_limit(2 * MAX_RECORD_BYTES)  # of the process; the feed's own limit is what stops a record
        self._reader = csv.reader(
            feed.lines(),
            delimiter=dialect.delimiter,
            quotechar=dialect.quote,
            quoting=csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
            strict=True,
        )

    def read_first(self) -> Fields | None:
        """Read one record of any number of fields, such as the header; None at the end of the file.

        Raises:
            InputError: It is damaged: without it the file makes no sense.
        """
        block = self.read_block(0, 1, 1, num_fields=None)
        if block.problems:
            hint = encoding_hint(self._feed.broken_line) if self._feed.broken_at is not None else ""
            raise InputError(block.problems[0].reason + hint)
        return block.records[0] if block.records else None

    def read_block(self, first_row: int, max_records: int, max_bytes: int, *, num_fields: int | None) -> CsvBlock:
        """Read the next records: until there are `max_records`, or `max_bytes` are passed, or the file ends.

        Args:
            first_row: The number of the first record in its file.
            max_records: How many records at most.
            max_bytes: After how many bytes no other record is begun.
            num_fields: How many fields a record has to have; None: any.

        Raises:
            InputError: A quote is not closed.
        """
        feed, reader = self._feed, self._reader
        records: list[Fields] = []
        problems: dict[int, RowProblem] = {}
        num_blank_lines = 0
        feed.start_block()
        start = SeekPoint(first_row, feed.offset, feed.num_lines + 1)
        while len(records) < max_records and feed.offset - start.offset_bytes < max_bytes:
            first_text, line = len(feed.texts), feed.num_lines + 1
            feed.start_record()
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error as exc:
                problems[len(records)] = self._damaged(line, exc)
                fields = self._split(feed.texts[first_text])[0]
            else:
                if not row:  # a blank line
                    num_blank_lines += 1
                    if not records:
                        feed.start_block()
                        start = SeekPoint(first_row, feed.offset, feed.num_lines + 1)
                    continue
                fields = self._with_nulls(row, feed.texts[first_text:]) if "" in row else row
            if feed.broken_at is not None:
                problems[len(records)] = self._undecodable(line, feed.broken_at)
                fields = [None if field is not None and UNDECODABLE in field else field for field in fields]
            if num_fields is not None and len(fields) != num_fields:
                problems.setdefault(len(records), self._ragged(line, len(fields), num_fields))
                fields = [*fields, *[None] * num_fields][:num_fields]
            records.append(fields)
        return CsvBlock(start, records, problems, feed.texts, num_blank_lines)

    def _damaged(self, line: int, error: csv.Error) -> RowProblem:
        """Return the problem of a record that the csv module refuses; raise where it ran over several lines."""
        if self._feed.exhausted or self._feed.num_lines > line:
            raise InputError(
                f"{self._name}:{line}: a quote that opens here is not closed in its place; close it, or set"
                " input.csv.quote to null if quotes are ordinary characters",
            ) from error
        if "\r" in self._feed.texts[-1].rstrip("\r\n"):
            what = "a carriage return outside quotes, or characters after a closing quote"
        else:
            what = "characters after a closing quote"
        return RowProblem(BAD_RECORD, f"{self._name}:{line}: {what}")

    def _undecodable(self, line: int, offset: int) -> RowProblem:
        return RowProblem(BAD_ENCODING, f"{self._name}:{line}: the byte at offset {offset} is not {self._encoding}")

    def _ragged(self, line: int, found: int, expected: int) -> RowProblem:
        return RowProblem(BAD_RECORD, f"{self._name}:{line}: found {found} fields, expected {expected}")

    def _with_nulls(self, fields: list[str], texts: list[str]) -> Fields:
        """Turn empty fields into None where they are not quoted."""
        text = "".join(texts)
        if self._empty_quoted is None or self._empty_quoted not in text:
            return [field or None for field in fields]
        exact, whole = self._split(text)
        return exact if whole else [field or None for field in fields]

    def _split(self, text: str) -> tuple[Fields, bool]:
        """Split one record into fields, up to the first damaged one; say whether there was none."""
        quote = self._dialect.quote or ""
        fields: list[str | None] = []
        position = 0
        while match := self._field.match(text, position):
            quoted, plain, end = match.groups()
            fields.append(quoted.replace(2 * quote, quote) if quoted is not None else plain or None)
            if end != self._dialect.delimiter:
                return fields, True
            position = match.end()
        return fields, False


def _field_pattern(dialect: CsvDialect) -> re.Pattern[str]:
    """Match one field and what ends it, exactly as a strict csv reader divides a record that it accepts."""
    delimiter = re.escape(dialect.delimiter)
    if dialect.quote is None:
        return re.compile(rf"((?!))?([^{delimiter}\r\n]*+)({delimiter}|[\r\n]*\Z)")
    quote = re.escape(dialect.quote)
    quoted = rf"{quote}((?:[^{quote}]++|{quote}{quote})*+){quote}"
    plain = rf"([^{delimiter}{quote}\r\n][^{delimiter}\r\n]*+|)"
    return re.compile(rf"(?:{quoted}|{plain})({delimiter}|[\r\n]*\Z)")

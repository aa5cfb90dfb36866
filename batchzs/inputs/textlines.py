"""Physical lines of text files: bytes to decoded lines, in a stream, with the position of each.

A line ends at a line feed and nowhere else: U+2028, U+0085 and a lone carriage return are part of a text. Lines are
cut before decoding, because a damaged character must not take the line end, or the next record, with it; that works
for encodings in which the byte 0x0A is always a line feed (UTF-8, GB18030, Big5, ...), and for UTF-16 and UTF-32 by
whole code units. What a line means (CSV, JSON) is for other modules.
"""

from __future__ import annotations

import codecs
import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from batchzs.errors import InputError
from batchzs.text_encodings import is_read_by_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from batchzs.inputs.rows import FoundFile

#: A record above this is taken for an unclosed quote, or for a file that has no records.
MAX_RECORD_BYTES = 64 * 2**20
#: Stands in a decoded line for bytes that are no text. No strict decoder gives a lone surrogate, so it is unmistakable.
UNDECODABLE = "\udc80"

_CHUNK_BYTES = 2**20
_MARK_ERRORS = "batchzs-mark"
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return UNDECODABLE, error.end


codecs.register_error(_MARK_ERRORS, _mark)


@dataclass(frozen=True, slots=True)
class TextCodec:
    """How one file's bytes become lines."""

    name: str  # the codec, with its byte order
    unit_bytes: int  # of a code unit: 1, but 2 for UTF-16 and 4 for UTF-32
    mark_bytes: int  # of the byte-order mark that the file begins with


def detect_codec(path: Path, encoding: str) -> TextCodec:
    """Settle how a file is decoded, from the job's encoding and the file's first bytes.

    UTF-16 and UTF-32 without a byte-order mark are taken as little-endian.

    Raises:
        InputError: The encoding is unknown or cannot be read line by line, or the file says that it is in another one.
    """
    name = _canonical(encoding)
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except OSError as exc:
        raise InputError(f"{path}: cannot be read: {exc.strerror}") from exc
    if name in ("utf-16", "utf-32"):
        big_endian = {"utf-16": codecs.BOM_UTF16_BE, "utf-32": codecs.BOM_UTF32_BE}[name]
        name += "-be" if head.startswith(big_endian) else "-le"
    if not name.startswith("utf-32"):  # its little-endian mark begins like that of UTF-16
        for mark, marked in _BYTE_ORDER_MARKS:
            if head.startswith(mark) and marked != name:
                raise InputError(
                    f"{path}: begins with the byte-order mark of {marked}, the job says {encoding}",
                    key="input.encoding",
                )
    try:
        own_mark = "\ufeff".encode(name)
    except UnicodeEncodeError:
        own_mark = b""  # GBK and Big5 have none
    return TextCodec(
        name=name,
        unit_bytes=len("\n".encode(name)),
        mark_bytes=len(own_mark) if own_mark and head.startswith(own_mark) else 0,
    )


def _canonical(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        can_be_read = is_read_by_lines(name)
    except LookupError as exc:  # also codecs that are no text encodings, such as rot13
        raise InputError(f"input.encoding: {encoding!r} is not an encoding that Python knows") from exc
    if not can_be_read:
        raise InputError(f"input.encoding: files in {encoding!r} cannot be read line by line; convert them to UTF-8")
    return "utf-8" if name == "utf-8-sig" else name


class HashingReader:
    """A file that is read once from its first to its last byte, and that is digested on the way."""

    def __init__(self, stream: BinaryIO, on_progress: Callable[[int], None] | None) -> None:
        self._stream = stream
        self._digest = hashlib.blake2b(digest_size=32)
        self._on_progress = on_progress
        self.num_bytes = 0

    def read(self, size: int, /) -> bytes:
        """Read on, at most `size` bytes."""
        chunk = self._stream.read(size)
        self._digest.update(chunk)
        self.num_bytes += len(chunk)
        if self._on_progress is not None and chunk:
            self._on_progress(len(chunk))
        return chunk

    def advance(self, end: int) -> None:
        """Read on until `end` bytes of the file, or all, were read."""
        while self.num_bytes < end and self.read(min(_CHUNK_BYTES, end - self.num_bytes)):
            pass

    def finish(self, found: FoundFile) -> str:
        """Read what is left, and return the digest of the whole file.

        Raises:
            InputError: The file is not as long as discovery found it.
        """
        while self.read(_CHUNK_BYTES):
            pass
        if self.num_bytes != found.size_bytes:
            raise InputError(f"{found.path}: changed while it was read")
        return self._digest.hexdigest()


class LineFeed:
    """Hands out a stream's decoded lines, and knows where it stands.

    Attributes:
        offset: Of the first byte after the lines handed out so far.
        num_lines: Physical lines of the file before that byte.
        texts: The lines handed out since `start_block`.
        broken_at: File offset of the first undecodable byte since `start_record`; None where all was text.
        broken_line: The raw line with that byte.
        exhausted: Whether a line was asked for and there was none.
    """

    def __init__(self, stream: HashingReader | io.BytesIO, codec: TextCodec, *, name: str) -> None:
        """Start at the stream's present place, which `start_at` names."""
        self._stream = stream
        self._codec = codec
        self._name = name
        self.offset = 0
        self.num_lines = 0
        self.texts: list[str] = []
        self.broken_at: int | None = None
        self.broken_line = b""
        self.exhausted = False
        self._record_line = 1
        self._limit = MAX_RECORD_BYTES

    def start_at(self, offset: int, num_lines: int) -> None:
        """Say which place of the file the stream's next byte is."""
        self.offset = offset
        self.num_lines = num_lines
        self.start_block()
        self.start_record()

    def start_block(self) -> None:
        """Forget the lines handed out so far."""
        self.texts = []

    def start_record(self) -> None:
        """Take the next line as a record's first one."""
        self._limit = self.offset + MAX_RECORD_BYTES
        self._record_line = self.num_lines + 1
        self.broken_at = None

    def lines(self) -> Iterator[str]:
        """Yield lines with their ends. Undecodable bytes give `UNDECODABLE` and set `broken_at`.

        Raises:
            InputError: The record under way is larger than `MAX_RECORD_BYTES`.
        """
        name = self._codec.name
        offset = self.offset
        for raw_lines in self._raw_lines():
            for raw in raw_lines:
                try:
                    text = raw.decode(name)
                except UnicodeDecodeError as exc:
                    text = raw.decode(name, _MARK_ERRORS)
                    if self.broken_at is None:
                        self.broken_at = offset + exc.start
                        self.broken_line = raw
                offset += len(raw)
                self.offset = offset
                self.num_lines += 1
                if offset > self._limit:
                    self._refuse_record()
                self.texts.append(text)
                yield text
        self.exhausted = True

    def _raw_lines(self) -> Iterator[list[bytes]]:
        """Yield the lines of one chunk after the other, each with its end."""
        pending: list[bytes] = []
        num_pending = 0
        while chunk := self._stream.read(_CHUNK_BYTES):
            pending.append(chunk)
            num_pending += len(chunk)
            if b"\n" in chunk:
                *whole, rest = _split(b"".join(pending), self._codec)
                yield whole
                pending = [rest]
                num_pending = len(rest)
            if num_pending > MAX_RECORD_BYTES:
                self._refuse_record()
        if num_pending:
            yield [b"".join(pending)]

    def _refuse_record(self) -> None:
        raise InputError(
            f"{self._name}:{self._record_line}: the record that begins here is larger than"
            f" {MAX_RECORD_BYTES // 2**20} MiB: probably a quote that is not closed, or no line ends",
        )


def _split(data: bytes, codec: TextCodec) -> list[bytes]:
    r"""Cut bytes after each line feed; the last part, maybe empty, has none.

    >>> _split("甲\n乙".encode("utf-16-le"), TextCodec("utf-16-le", 2, 0))[0].decode("utf-16-le")
    '甲\n'
    """
    if codec.unit_bytes == 1:
        lines = io.BytesIO(data).readlines()  # cuts at line feeds alone, unlike bytes.splitlines
        return lines if not lines[-1].endswith(b"\n") else [*lines, b""]
    order = ">" if codec.name.endswith("be") else "<"
    whole = len(data) - len(data) % codec.unit_bytes
    units = np.frombuffer(data[:whole], dtype=f"{order}u{codec.unit_bytes}")
    ends = ((np.flatnonzero(units == ord("\n")) + 1) * codec.unit_bytes).tolist()
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def encoding_hint(raw_line: bytes) -> str:
    """Guess what an undecodable line is written in, as the ending of a message; "" where nothing fits.

    >>> encoding_hint("央行宣布降准".encode("gb18030"))
    '; its bytes read well as gb18030: set input.encoding'
    """
    for name in ("utf-8", "gb18030", "big5"):
        try:
            text = raw_line.decode(name)
        except UnicodeDecodeError:
            continue
        if text.encode(name) == raw_line and any("一" <= char <= "鿿" for char in text):
            return f"; its bytes read well as {name}: set input.encoding"
    return ""

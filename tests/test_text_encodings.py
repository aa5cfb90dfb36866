"""Encodings of text files: what the reader cannot read is refused with the job."""

from __future__ import annotations

import encodings.aliases
from typing import TYPE_CHECKING

import pytest

from batchzs.errors import InputError
from batchzs.inputs.textlines import detect_codec
from batchzs.text_encodings import checked_encoding

if TYPE_CHECKING:
    from pathlib import Path

#: Every codec that this Python has, and some names that are none.
ODD_NAMES = ("utf-8-sig", "idna", "punycode", "utf-9", "a\0", "汉")
NAMES = sorted({*encodings.aliases.aliases.values(), *ODD_NAMES})


@pytest.mark.parametrize("name", ["hz", "HZ-GB-2312", "iso2022_jp", "utf-7", "cp037"])
def test_what_cannot_be_read_by_lines_is_refused(name: str) -> None:
    """Codecs that shift within a line, and those in which a line ends otherwise; the message says what to do."""
    with pytest.raises(ValueError, match=f'"{name}" cannot be read line by line; convert them to UTF-8'):
        checked_encoding(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_job_and_the_reader_agree(name: str, tmp_path: Path) -> None:
    """What the job takes the reader takes; what the reader refuses never gets there."""
    path = tmp_path / "甲 [1].csv"
    path.write_bytes(b"")
    try:
        codec = checked_encoding(name)
    except ValueError:
        if name not in {"idna", "punycode", "raw_unicode_escape", "unicode_escape"}:
            with pytest.raises((InputError, ValueError)):
                detect_codec(path, name)
        return
    assert detect_codec(path, codec).unit_bytes in {1, 2, 4}

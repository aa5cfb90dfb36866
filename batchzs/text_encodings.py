"""Encodings that text files may have: those that Python knows and whose lines can be cut before they are decoded.

Pure, and a leaf: the job file refuses the others before any file is opened, and `inputs.textlines` goes by the same.
"""

from __future__ import annotations

import codecs

from batchzs.located import quoted

#: Codecs that Python calls text encodings and no file is written in.
_NO_FILE_ENCODINGS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
_STATEFUL = ("utf-7", "hz", "iso2022")  # a line of these cannot be decoded without those before it


def checked_encoding(name: str) -> str:
    """Find an encoding that text files are written in.

    Returns:
        Python's name of it.

    Raises:
        ValueError: there is none of this name, with some that there are; or its files cannot be read line by line.
    """
    try:
        codec = codecs.lookup(name).name
        "".encode(name)  # refuses codecs from bytes to bytes, such as base64
    except (LookupError, ValueError):  # ValueError: what no codec's name can hold
        codec = ""
    if not codec or codec in _NO_FILE_ENCODINGS:
        raise ValueError(
            f"found {quoted(name)}, expected an encoding of text files: utf-8, gb18030, gbk, big5, utf-16, "
            "utf-16-le, utf-16-be, latin-1, or another one that Python knows"
        )
    if not is_read_by_lines(codec):
        raise ValueError(f"files in {quoted(name)} cannot be read line by line; convert them to UTF-8")
    return codec


def is_read_by_lines(codec: str) -> bool:
    """Whether lines can be cut before they are decoded.

    Args:
        codec: Python's name of a text encoding.

    >>> is_read_by_lines("gb18030"), is_read_by_lines("utf-16-le"), is_read_by_lines("hz"), is_read_by_lines("cp037")
    (True, True, False, False)
    """
    if codec.startswith(_STATEFUL):
        return False
    return codec.startswith(("utf-16", "utf-32")) or codec == "utf-8-sig" or '\n\r",'.encode(codec) == b'\n\r",'

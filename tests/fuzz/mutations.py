"""Ways to damage bytes, from a seed: what disks, editors, other programs and people do to files."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

#: Where a fuzz test begins and how long it goes on; both may be set from outside to look further.
FIRST_SEED = int(os.environ.get("FUZZ_SEED", "0"))
BUDGET_S = float(os.environ.get("FUZZ_SECONDS", "100"))

#: Bytes that mean something to one format or another.
_PIECES = (
    *(b'"', b'""', b",", b"\t", b";", b"\n", b"\r\n", b"\r", b"\0", b"\\", b"\\u", b"\\ud800", b"'", b"#", b": "),
    *(b"{", b"}", b"[", b"]", b"{}", b"null", b"NaN", b"Infinity", b"-", b"0", b"-1", b"1e999", b"9" * 25, b"true"),
    *(b"\xff", b"\xfe", b"\xff\xfe", b"\xef\xbb\xbf", b"\xe4\xbd", b"\x80", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80"),
    *("\u2028".encode(), "\x85".encode(), "\ufeff".encode(), "央行".encode("gb18030"), "央行".encode("utf-16-le")),
    *(b"PAR1", b"&a", b"*a", b"<<", b"!!python/object", b"|", b">", b"%", b"@", b"`", b"~", b"../", b"x" * 300),
)


def seeds() -> Iterator[int]:
    """Yield seeds, one after the other, until the time is over."""
    deadline_s = time.monotonic() + BUDGET_S
    seed = FIRST_SEED
    while time.monotonic() < deadline_s:
        yield seed
        seed += 1


def mutate(draw: random.Random, content: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Damage some bytes in one to four ways."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = _mutate_once(draw, content, others)
    return content


def _mutate_once(draw: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    place, other = sorted(draw.choices(range(len(content) + 1), k=2))
    before, between, after = content[:place], content[place:other], content[other:]
    match draw.randrange(9):
        case 0:  # a flipped bit
            between = bytes([between[0] ^ 1 << draw.randrange(8)]) + between[1:] if between else b""
        case 1:  # something put in
            before += draw.choice(_PIECES)
        case 2:  # something put over something
            piece = draw.choice(_PIECES)
            between = piece + between[len(piece) :]
        case 3:  # a torn end
            between = after = b""
        case 4:  # a lost part
            between = between[draw.choice((1, 4, 64, 4096)) :]
        case 5:  # a part twice
            between += between[:4096]
        case 6:  # a block of zeros, as after a power failure
            length = min(len(between), draw.choice((1, 16, 512)))
            between = bytes(length) + between[length:]
        case 7:  # lines in another order
            lines = between.splitlines(keepends=True)
            draw.shuffle(lines)
            between = b"".join(lines)
        case _:  # a part of another file
            source = draw.choice(others) if others else content
            start = draw.randrange(len(source) + 1)
            before += source[start : start + draw.choice((1, 16, 256))]
    return before + between + after

"""Text made safe to show: no character of it ends a line, moves a cursor, or turns the reading direction.

File names and texts are other people's. Printed as they are, an ESC in one could rewrite what a terminal showed before,
and a line end could begin a line of a log that nobody logged.
"""

from __future__ import annotations

import json
import re

#: Control characters (line ends and terminals' escape sequences), Unicode's line separators, what turns the direction
#: of reading so that a name looks like another one, and halves of characters, which no terminal can show.
_ACTING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str) -> str:
    r"""Write a text so that it stays on its line and does nothing to a terminal.

    >>> one_line("a.csv\n\x1b[31mred 科技")
    'a.csv\\n\\x1b[31mred 科技'
    """
    return _ACTING.sub(lambda match: ascii(match.group())[1:-1], text)


def escaped(text: str) -> str:
    r"""Write a text as `one_line` does, and a backslash twice, so that the text can be told from the escapes.

    >>> escaped("a\x1b[2J\n甲\u202e\\")
    'a\\x1b[2J\\n甲\\u202e\\\\'
    """
    return one_line(text.replace("\\", "\\\\"))


def json_line(value: object) -> str:
    r"""Write a value as JSON in one line, every character that could act on a terminal as an escape of JSON's.

    >>> json_line({"text": "甲\x9b2J"})
    '{"text": "甲\\u009b2J"}'
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    # Such a character can only stand inside a string: JSON's own signs are all printable.
    return _ACTING.sub(lambda match: json.dumps(match.group())[1:-1], text)

"""Characters that XML and HTML hold."""

from __future__ import annotations

import re
from html import escape

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def xml_characters(text: str) -> str:
    """The text with U+FFFD in the place of control characters and others that XML or HTML does not allow."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(text: str) -> str:
    """The text as it stands in an element or an attribute of XML or HTML."""
    return escape(xml_characters(text))

"""Texts in XML: books as Standard Ebooks mark them up, articles as PLOS does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lines import one_line
from lxml import etree

XHTML, EPUB = "{http://www.w3.org/1999/xhtml}", "{http://www.idpf.org/2007/ops}type"
_FEWEST_WORDS = {"chapter": 100, "article": 150}
_NO_CHAPTER = re.compile(
    "titlepage|imprint|colophon|uncopyright|halftitle|endnotes|loi|dedication|epigraph|dramatis|glossary|bibliography"
    "|toc|index"
)
_NO_PROSE = re.compile(
    "verse|poem|song|hymn|noteref|z3998:letter|sender|signature|salutation|dateline|bridgehead|epigraph|drama"
)
_DATE = re.compile(
    r"(?:published|written|completed|serialized)\s+(?:between|in|from)\s+(\d{4}(?:\s*(?:and|to|–|-)\s*\d{4})?)"
)
_FORMULA, _CITATION = "\ue002", "\ue003"  # what replaces them
_BESIDE_TEXT = (
    "fig",
    "table-wrap",
    "disp-formula",
    "supplementary-material",
    "boxed-text",
    "inline-formula",
    "xref",
)
_CITATIONS = re.compile(rf"\s*[\[(](?:[{_CITATION},;–\- ]|see|reviewed in|e\.g\.|and)*[\])]")


# Books.


def ebook_documents(book: str, opf: str, files: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    """Give the chapters of a book or, of a collection, its stories, in the order of the spine.

    ``files`` are the chapters by path; ``opf`` is the description of the book.
    """
    chapters = {path.rpartition("/")[2]: content for path, content in files.items()}
    title, author = (_found(rf"<dc:{name}[^>]*>(.*?)</dc:{name}>", opf) for name in ("title", "creator"))
    colophon = one_line("".join(etree.fromstring(chapters["colophon.xhtml"]).itertext()))
    date = _DATE.search(colophon)
    names = {key: name for name, key in re.findall(r'<item [^>]*?href="text/([^"]+)"[^>]*?id="([^"]+)"', opf)}
    for key in re.findall(r'<itemref[^>]*idref="([^"]+)"', opf):
        name = names.get(key, key)
        if name not in chapters or _NO_CHAPTER.search(name):
            continue
        stem = name.removesuffix(".xhtml")
        for number, paragraphs in enumerate(_parts(book, name, chapters[name]), 1):
            if sum(len(paragraph.split()) for paragraph in paragraphs) < _FEWEST_WORDS["chapter"]:
                continue
            yield {
                "work": f"{book}/{stem}" if _is_collection(book) else book,
                "title": f"{title}: {stem}" + (f" {number}" if number > 1 else ""),
                "author": author,
                "date": date[1].replace(" and ", "-") if date else "",
                "licence": "US public domain, CC0",
                "text": "\n\n".join(paragraphs),
            }


def _is_collection(book: str) -> bool:
    return book.endswith("short-fiction")


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return "" if found is None else found[1]


def _parts(book: str, name: str, content: bytes) -> Iterator[list[str]]:
    """The paragraphs of a chapter, or of each article of a file of a collection."""
    body = etree.fromstring(content).find(XHTML + "body")
    kind = body.get(EPUB) or ""
    if ("bodymatter" not in kind and "introduction" not in name) or re.search("verse|poem|drama|poetry", kind):
        return
    articles = list(body.iter(XHTML + "article")) if _is_collection(book) else []
    for part in articles or [body]:
        yield list(_ebook_paragraphs(part))


def _ebook_paragraphs(root: Any) -> Iterator[str]:
    for element in list(root.iter(*(XHTML + tag for tag in ("a", "table", "figure", "header", "hgroup")))):
        if element.tag != XHTML + "a" or "noteref" in (element.get(EPUB) or ""):
            _replace(element, "")
    for paragraph in root.iter(XHTML + "p"):
        kin = [paragraph, *paragraph.iterancestors()]
        is_prose = not any(_NO_PROSE.search(one.get(EPUB) or "") for one in kin)
        text = one_line("".join(paragraph.itertext())) if is_prose else ""
        if text and paragraph.find(f".//{XHTML}br") is None:
            yield text


def _replace(element: Any, text: str) -> None:
    """Put a text instead of an element."""
    parent, before, left = element.getparent(), element.getprevious(), text + (element.tail or "")
    if before is not None:
        before.tail = (before.tail or "") + left
    else:
        parent.text = (parent.text or "") + left
    parent.remove(element)


# Articles.


def article_document(name: str, content: bytes) -> dict[str, str] | None:
    """Read an article; None for one that is neither CC BY nor CC0, and for one with little prose."""
    parser = etree.XMLParser(load_dtd=False, no_network=True, resolve_entities=False)
    root = etree.fromstring(content, parser)
    permissions = root.find(".//permissions")
    licence = _licence("" if permissions is None else etree.tostring(permissions).decode())
    body = root.find(".//body")
    paragraphs = [] if not licence or body is None else list(_article_paragraphs(body))
    if sum(len(paragraph.split()) for paragraph in paragraphs) < _FEWEST_WORDS["article"]:
        return None
    title = one_line("".join(root.find(".//article-title").itertext()))
    authors = [one.text for one in root.findall(".//contrib[@contrib-type='author']/name/surname") if one.text]
    doi = root.findtext(".//article-id[@pub-id-type='doi']")
    return {
        "work": name,
        "title": f"{title} (doi:{doi})",
        "author": ", ".join(authors),
        "date": root.findtext(".//pub-date/year") or "",
        "licence": licence,
        "text": "\n\n".join(paragraphs),
    }


def _licence(permissions: str) -> str:
    """The licence that an article states; "" if it is not one of those that are taken."""
    if re.search("by-nc|by-nd|NonCommercial", permissions, re.IGNORECASE):
        return ""
    if "publicdomain" in permissions:
        return "CC0"
    is_by = "Creative Commons Attribution" in permissions or "licenses/by/" in permissions
    return "CC BY" if is_by else ""


def _article_paragraphs(body: Any) -> Iterator[str]:
    for element in list(body.iter(*_BESIDE_TEXT)):
        _replace(element, _in_place_of(element))
    for paragraph in body.iter("p"):
        text = one_line("".join(paragraph.itertext()))
        if _FORMULA in text or len(text.split()) < 15:
            continue
        text = _CITATIONS.sub("", text).replace(_CITATION, "")
        text = re.sub(r"\s*\((?:Figs?|Figure|Tables?)[^()]*\)", "", text)
        text = re.sub(r"\s+([.,;:])", r"\1", text)
        letters = sum(character.isalpha() or character.isspace() for character in text) / len(text)
        if letters > 0.92 and not re.search(r"https?://|[<>=±×∼]", text):
            yield text


def _in_place_of(element: Any) -> str:
    if element.tag in ("inline-formula", "disp-formula"):
        return _FORMULA
    if element.get("ref-type") == "bibr":
        return _CITATION
    return one_line("".join(element.itertext())) if element.tag == "xref" else ""

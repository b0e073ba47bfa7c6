"""Texts of 1990 and after, source by source: encyclopaedia, talk, health, software, economics, textbooks, news.

Each reader takes what is prose, a paragraph at a time. HOLE stands for what a paragraph has lost (a formula, code, a
template): modern_english.py leaves such a sentence out.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from lines import one_line
from lxml import etree
from lxml import html as lxml_html
from markdown import is_english, paragraphs_of

Document = Mapping[str, str]
HOLE = "\ue000"
GOVERNMENT = "US government work, public domain"
_END = re.compile(r"[.!?][\"'”’)]*$")
_ADDRESS = re.compile(r"https?://|www\.")


class Repositories(Protocol):
    """Where the texts of a repository are read from."""

    def texts(self, repository: str, pattern: str) -> Iterator[tuple[str, str]]:
        """Path and text of every file whose path matches."""


Reader = Callable[[Repositories], Iterator[Document]]


def _document(
    work: str, title: str, author: str, date: str, licence: str, paragraphs: Iterable[str], *, fewest: int
) -> Iterator[Document]:
    """Give one document, or none if its paragraphs have fewer words than wanted."""
    paragraphs = list(paragraphs)
    if sum(len(paragraph.split()) for paragraph in paragraphs) >= fewest:
        yield {
            "work": work,
            "title": title,
            "author": author,
            "date": date,
            "licence": licence,
            "text": "\n\n".join(paragraphs),
        }


def _is_one_of(key: str, number: int) -> bool:
    """Thin out: tell whether a document is among one of so many."""
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % number == 0


def _is_prose(line: str, fewest: int, *, english: bool = True) -> bool:
    """Tell whether a paragraph has enough words and ends as a sentence does, in English."""
    return len(line.split()) >= fewest and _END.search(line) is not None and (not english or is_english(line.split()))


def _rewrite(text: str, rules: Iterable[tuple[str, str | Callable[[re.Match[str]], str]]]) -> str:
    for pattern, instead in rules:
        text = re.sub(pattern, instead, text)
    return text


# Wikipedia, as WikiExtractor leaves it: templates are gone, so what they have left out must be found.

_WIKI_END = re.compile(
    r"^(See also|References|External links|Notes|Further reading|Bibliography|Discography|Filmography|Sources"
    r"|Footnotes|Selected works|Publications|Track listing|Awards|Statistics)\.$"
)
_WIKI_ARTICLE = re.compile(r'<doc id="(\d+)" url="[^"]*" title="([^"]*)">\n(.*?)</doc>', re.DOTALL)
_WIKI_LIST = re.compile(
    r"(?:List|Lists|Index|Outline|Timeline|Glossary|Comparison|Results) |.*\(disambiguation\)|\d{4}.*(?:season|in )"
)
_WIKI_MARKUP = re.compile(r"^[*#:;|!{•–-]|https?://|ISBN|\|\||style=")
_BEFORE_HOLE = "of|at|in|about|approximately|is|than|the|by|from|to|a|an|and|covers|over"
_WIKI_RULES = (
    (r"\(\s*[;,:]+\s*", "("),
    (r"\s*\(\s*(?:[;,:]\s*)*\)", ""),
    (r"\[\[|\]\]|'''?|\[\d+\]", ""),
    (r"(?<=[a-z,])  +(?=\S)|(?<=[a-z0-9]) +(?=[,;.](?:\s|$))|(?<=\w)\(\s*(?=[,.])", HOLE),
    (
        rf"\b(?:{_BEFORE_HOLE}) ?(?=[,;.](?:\s|$))(?<! in)(?<! to)(?<! by)(?<! from)(?<! over)(?<! about)",
        HOLE,
    ),
)


def wikipedia(repository: str, pattern: str, thinned: int, date: str) -> Reader:
    """Give the reader of articles of 350 words and more, one in so many."""

    def read(repositories: Repositories) -> Iterator[Document]:
        for _, text in repositories.texts(repository, pattern):
            for number, title, body in _WIKI_ARTICLE.findall(text):
                if not _is_one_of(f"wiki:{number}", thinned) or len(body) < 2600 or _WIKI_LIST.match(title):
                    continue
                paragraphs = list(_wiki_paragraphs(body))
                if len(paragraphs) >= 4 and sum(len(one.split()) for one in paragraphs) > 35 * len(paragraphs):
                    name, who = html.unescape(title), "Wikipedia contributors"
                    yield from _document(number, name, who, date, "CC BY-SA 3.0", paragraphs, fewest=350)

    return read


def _wiki_paragraphs(body: str) -> Iterator[str]:
    for line in body.split("\n")[2:]:
        if _WIKI_END.match(line.strip()):
            return
        if not _is_prose(line.strip(), 12, english=False) or _WIKI_MARKUP.search(line):
            continue
        line = one_line(_rewrite(html.unescape(line).strip(), _WIKI_RULES))
        num_plain = sum(character.isalpha() or character.isspace() for character in line)
        if is_english(line.split()) and num_plain > 0.88 * len(line):
            yield line


# Talk: the podcasts of Changelog Media, a paragraph a turn.

_SHOWS = {"afk": 1, "backstage": 2, "bigtent": 3, "brainscience": 1, "founderstalk": 1, "friends": 4, "gotime": 8}
_SHOWS |= {"jsparty": 8, "news": 1, "podcast": 4, "practicalai": 4, "rfc": 1, "shipit": 8, "spotlight": 1}
"""Episodes of each show are thinned to one in so many."""
_SPEAKER = re.compile(r"\*\*(.{1,60}?):\*\*\s*")
_NO_SPEECH = re.compile(r"break|jingle|sponsor|ad\b|clip|song|music|voiceover", re.IGNORECASE)
_NO_TURN = re.compile(r"[#>|\-*\d]|```|<|!\[|Break|\(")
_TURN_RULES = (
    (r"(?i)\[unintelligible[^\]]*\]", HOLE),
    (r"\s*\[[^\]()]{0,60}\](?!\()", ""),
    (r"\[([^\]]*)\]\([^)]*\)", r"\1"),
    (r"\*\*|`|(?<!\w)[*_]|[*_](?!\w)|<[^>]*>|~~", ""),
)


def changelog(repositories: Repositories) -> Iterator[Document]:
    """Transcripts of podcasts on software, without advertisements."""
    for name, text in repositories.texts("thechangelog/transcripts", r"^\w+/.*\.md$"):
        show = name.split("/")[0]
        if show not in _SHOWS or not _is_one_of(name, _SHOWS[show]):
            continue
        paragraphs, people = [], dict[str, None]()
        for block in re.split(r"\n\s*\n", text):
            block = block.replace("\\[", "[").replace("\\]", "]").replace("\\", "").strip()
            if speaker := _SPEAKER.match(block):
                block = block[speaker.end() :]
                people[speaker[1]] = None
                if _NO_SPEECH.search(speaker[1]):
                    continue
            if _NO_TURN.match(block):
                continue
            line = re.sub(r"\s*\.\.\.\s*", " ... ", one_line(_rewrite(block, _TURN_RULES)))
            if _is_prose(line, 2, english=False) and not _ADDRESS.search(line):
                paragraphs.append(line.strip())
        title, who = name.removesuffix(".md"), ", ".join(list(people)[:6])
        yield from _document(name, title, who, "", "CC BY-SA 4.0", paragraphs, fewest=200)


# Health: answers of the institutes of health of the USA (MedQuAD).

_ANSWER_RULES = (
    (r"^\s*Summary\s*:\s*", ""),
    (
        r"\(?\[\d+(?:,\s*\d+)*\]\)?|\(Watch the video[^)]*\)|\(Video narration[^)]*\)|\(To enlarge[^)]*\)",
        "",
    ),
)
_ANSWER_HEADING = re.compile(r"^(?:What (?:is|are|causes)[^?]{0,80}\?|Key Points|Incidence and Mortality)\s*")
_ANSWER_LINK = re.compile(
    r"https?://|www\.|\S+@\S+|click|Human Phenotype Ontology|MedlinePlus|NIH: |Orphanet|hyperlink"
    r"|Genetic Testing Registry|resource",
    re.IGNORECASE,
)


def medquad(repositories: Repositories) -> Iterator[Document]:
    """Answers to questions on diseases."""
    for name, text in repositories.texts("abachaa/MedQuAD", r"^[1-9]_.*\.xml$"):
        try:
            root = etree.fromstring(text.encode())
        except etree.XMLSyntaxError:
            continue
        paragraphs = []
        for answer in root.iter("Answer"):
            for block in re.split(r"\n\s*\n|\n\s*-\s|\s{4,}|\s{2,}-\s", _rewrite(answer.text or "", _ANSWER_RULES)):
                line = _ANSWER_HEADING.sub("", one_line(block))
                if _is_prose(line, 7) and re.match(r"[A-Z\"(]", line) and not _ANSWER_LINK.search(line):
                    paragraphs += [line] if line.count(" - ") <= 2 else []
        focus, source = root.findtext("Focus") or "", root.get("source") or ""
        yield from _document(name, focus, source, "to 2017", "CC BY 4.0", paragraphs, fewest=60)


# Textbooks.


def _without_formulas(text: str) -> str:
    """Formulas and code out of Markdown: a letter, a number or a name stays, anything else leaves a hole."""

    def formula(found: re.Match[str]) -> str:
        inside = found[1].strip()
        return inside if re.fullmatch(r"[A-Za-z]|[\d.,]+%?", inside) else HOLE

    def code(found: re.Match[str]) -> str:
        return found[1] if re.fullmatch(r"[\w.\- ]{1,25}", found[1]) and not found[1].startswith("r ") else HOLE

    text = re.sub(r"\$\$.*?\$\$", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"\$([^$\n]{1,200}?)\$", formula, text)
    text = re.sub(r"\\begin\{.*?\\end\{\w+\*?\}", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"(?ms)^(```|~~~).*?^\1.*?$", "", text)
    return re.sub(r"`([^`\n]+)`", code, text)


_SEEN_ELSEWHERE = r"Figures?|Fig\.|Tables?|Sections?|Chapters?"
_QUARTO_RULES = (
    (rf"\s*\((?:see |See |e\.g\., )?(?:{_SEEN_ELSEWHERE}) ?\\?@(?:ref\([^)]*\)|[\w:-]+)\)", ""),
    (r"\s*\[(?:see |e\.g\., ?)?-?@[^\]]*\]|\s*:cite:[`\w.\-]*|\s*:label:\S*", ""),
    (r"\\?@ref\([^)]*\)|:(?:num|eq)?ref:\S*|:citet:\S*|@[A-Za-z][\w:-]+|\^\[[^\]]*\]", HOLE),
    (r"\\([%$_])", r"\1"),
    (r"\\[a-zA-Z]+|\\", HOLE),
)


def quarto(repository: str, pattern: str, author: str, date: str) -> Reader:
    """Give the reader of a book of chapters in R Markdown, Quarto or d2lbook."""

    def read(repositories: Repositories) -> Iterator[Document]:
        for name, text in repositories.texts(repository, pattern):
            title = re.search(r"(?m)^title:\s*[\"']?(.*?)[\"']?\s*$", text)
            title = title or re.search(r"(?m)^#\s+(.*?)(?:\s*\{.*)?$", text)
            text = re.sub(r"(?s)\A---\s*\n.*?\n---\s*\n", "", text)
            text = _rewrite(_without_formulas(text), _QUARTO_RULES)
            paragraphs = [one for one in paragraphs_of(text) if one.count(HOLE) < 6]
            named = f"{repository.split('/')[1]}: {title[1] if title else name}"
            yield from _document(name, named, author, date, "CC BY-SA 4.0", paragraphs, fewest=100)

    return read


def _letter_or_hole(found: re.Match[str]) -> str:
    return found[1] if re.fullmatch(r"[A-Za-z]|[\d.,]+", found[1].strip()) else HOLE


_LATEX_RULES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(?<!\\)%.*", ""),
    (r"(?s)<%.*?%>", "\n\n"),
    (r"\\(?:begin|end)\{(?:quote|quotation|important|lessimportant)\}", "\n\n"),
    (r"(?s)\\begin\{(\w+\*?)\}.*?\\end\{\1\}", "\n\n"),
    (
        r"\\(?:index|label|footnote|marg|sidenote|indexl|vspace|hspace|noindent|pagebreak|formatlikesection)\{[^{}]*\}",
        "",
    ),
    (r"\\(?:emph|textit|textbf|vocab|textsc|uline|text|textup|intertext|mygamma)\{([^{}]*)\}", r"\1"),
    (r"\\eg\s*|\\sssec|\\(?:noindent|smallskip|medskip|bigskip|pagebreak|newpage|clearpage)\b", ""),
    (
        r"\\(?:sub)*section\*?\{[^{}]*\}|\\(?:my|yours)?\w*section\w*(?:\[[^\]]*\])?\{[^{}]*\}(?:\{[^{}]*\})?",
        "\n\n",
    ),
    (r"(?s)\\\[.*?\\\]|\$\$.*?\$\$", HOLE),
    (r"\$([^$]{1,200}?)\$", _letter_or_hole),
    (r"~|\\ ", " "),
    (r"\\-|\\/", ""),
    (r"\\([%&])", r"\1"),
)


def light_and_matter(repositories: Repositories) -> Iterator[Document]:
    """Chapters of textbooks of physics in LaTeX; they share paragraphs, which are taken once."""
    pattern = r"^(?!.*(?:hw|answers|photocredits|hwans|/end/)).*\.rbtex$"
    seen: set[str] = set()
    for name, text in repositories.texts("bcrowell/lm", pattern):
        paragraphs = []
        for block in re.split(r"\n\s*\n", _rewrite(text, _LATEX_RULES)):
            line = one_line(block)
            is_plain = line.count("\\") <= 3 and line.count(HOLE) <= 4 and not re.match(r"[a-z]\s*/|Problem|\\", line)
            if is_plain and line.lower() not in seen and _is_prose(line, 12):
                seen.add(line.lower())
                paragraphs.append(line)
        yield from _document(
            name, f"lm: {name}", "Benjamin Crowell", "1998-2021", "CC BY-SA 3.0", paragraphs, fewest=150
        )


# Software.

_NO_CHAPTER = re.compile(r"intro\d*\.html|bib\d?\.html|index|contrib|preface")
_NO_PARAGRAPH = (
    "//pre|//table|//*[@class='figure']|//*[@class='footnotes']|//*[@class='figcaption']|//p[@class='caption']"
)
_REFERENCE = re.compile(r"\s*\((?:see |See )?(?:Figure|Table|Section|Chapter) ?[\d.]+\)|\s*\[[A-Za-z+]{1,6}\d{0,2}\]|↩")


def aosabook(repositories: Repositories) -> Iterator[Document]:
    """Chapters of The Architecture of Open Source Applications."""
    for name, text in repositories.texts("aosabook/aosabook", r"^docs/en/(v1|v2|posa|500L)/[\w.-]+\.html$"):
        if _NO_CHAPTER.search(name):
            continue
        root = lxml_html.fromstring(text)
        title = one_line(root.findtext(".//title") or "")
        authors = root.xpath("//*[contains(@class,'chapterAuthor') or contains(@class,'author')]")
        for bad in root.xpath(_NO_PARAGRAPH):
            bad.drop_tree()
        for code in root.xpath("//code|//span[contains(@class,'math')]"):
            if not re.fullmatch(r"[\w.\-]{1,30}", code.text_content()):
                for child in list(code):
                    code.remove(child)
                code.text = HOLE
        lines = (_REFERENCE.sub("", one_line(block.text_content())) for block in root.xpath("//p"))
        prose = (line for line in lines if _is_prose(line, 8))
        paragraphs = [line for line in prose if not re.search(r"https?://|^Figure|^Table|Creative Commons", line)]
        who = one_line(authors[0].text_content()) if authors else ""
        yield from _document(name, title, who, "2011-2016", "CC BY 3.0", paragraphs, fewest=300)


_PEP_RULES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r":(?:pep|PEP):`(?:[^`<]*<)?(\d+)[^`]*`", r"PEP \1"),
    (r":[\w:]+:`~?!?([^`<]*?)(?:\s*<[^`]*)?`", r"\1"),
    (r"`([^`<]*?)\s*<[^`>]*>`_{0,2}", r"\1"),
    (r"``([^`]+)``", lambda found: found[1] if re.fullmatch(r"[\w.\-]{1,25}", found[1]) else HOLE),
    (r"`([^`]+)`_{0,2}|\*\*|(?<!\w)\*|\*(?!\w)", lambda found: found[1] or ""),
    (r"\s*\[[#\w]+\]_", ""),
)


def peps(repositories: Repositories) -> Iterator[Document]:
    """One in two of the Python Enhancement Proposals that say that they are in the public domain or CC0."""
    for name, text in repositories.texts("python/peps", r"^peps/pep-\d+\.rst$"):
        licence = text[-1500:].lower()
        if not _is_one_of(name, 2) or ("public domain" not in licence and "cc0" not in licence):
            continue
        title = re.search(r"(?m)^Title:\s*(.*)$", text)
        author = re.search(r"(?ms)^Author:\s*(.*?)\n\S", text)
        date = re.search(r"(?m)^Created:\s*\S*?(\d{4})", text)
        text = re.sub(r"(?s)\nReferences\n=+\n.*|\nCopyright\n=+\n.*", "", text)
        paragraphs = [line for block in re.split(r"\n\s*\n", text)[1:] for line in _pep_paragraph(block)]
        who = one_line(re.sub(r"<[^>]*>", "", author[1])) if author else ""
        told = one_line(title[1]) if title else name
        yield from _document(name, told, who, date[1] if date else "", "public domain or CC0", paragraphs, fewest=150)


def _pep_paragraph(block: str) -> Iterator[str]:
    is_markup = re.match(r"\s|\.\.|[+=|>-]|\[\d|:", block) and not re.match(r"[-*] ", block)
    if is_markup or re.search(r"\n[=\-~^'\"*#+]{3,}\s*$", block):
        return
    if item := re.match(r"(?:[-*]|\d+\.|#\.)\s+", block):
        block = block[item.end() :]
        if re.search(r"\n\s*[-*] ", block):
            return
    line = one_line(re.sub(r"::$", ":", _rewrite(block, _PEP_RULES)))
    line = re.sub(r"(\w)_(?=\W|$)", r"\1", line)
    if _is_prose(line, 8) and not re.search(r"https?://|\S@\S|PEP: ", line):
        yield line


def opensource_guide(repositories: Repositories) -> Iterator[Document]:
    """Articles of the Open Source Guides."""
    repository = "github/opensource.guide"
    for name, text in repositories.texts(repository, r"^_articles/[a-z-]+\.md$"):
        title = re.search(r"(?m)^title:\s*[\"']?(.*?)[\"']?\s*$", text)
        title = title or re.search(r"(?m)^#*\s*\**([A-Z].*?)\**\s*$", text)
        text = re.sub(r"\^\d+\^?|\[\d+\]|<sup>.*?</sup>", "", text)
        named, who = f"opensource.guide: {title[1] if title else name}", "GitHub and contributors"
        paragraphs = paragraphs_of(_without_formulas(text))
        yield from _document(name, named, who, "2017-2025", "CC BY 4.0", paragraphs, fewest=150)


# News and the state of the world.

_NO_NEWS = re.compile(r"https?://|Wikinews|please|\(\(|^(?:Image|File|Photo|Credit)\b")
_DAY = re.compile(r"^(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, \w+ \d+, \d{4}\s*")


def wikinews(repositories: Repositories) -> Iterator[Document]:
    """Articles of Wikinews."""
    csv.field_size_limit(10**8)
    for _, text in repositories.texts("vanatteveldt/wikinews", r"^data/.*\.csv$"):
        for row in csv.DictReader(io.StringIO(text)):
            body = row.get("text") or ""
            lines = (one_line(line).replace("((WN)) ", "").replace("((WSS)) ", "") for line in re.split(r"\n+", body))
            prose = [line for line in (_DAY.sub("", line) for line in lines) if _is_prose(line, 8, english=False)]
            paragraphs = [line for line in prose if not _NO_NEWS.search(line)]
            title = one_line(row.get("title") or row.get("headline") or "")
            work, date = title or str(len(body)), (row.get("date") or "")[:10]
            yield from _document(work, title, "Wikinews contributors", date, "CC BY 2.5", paragraphs, fewest=60)


_ACRONYMS = {"NATO", "ASEAN", "OPEC", "UNESCO", "ECOWAS", "SWAPO", "MERCOSUR", "UNHCR", "CARICOM", "USSR", "UNCLOS"}
_ACRONYMS |= {"ISIS", "FARC", "COVID", "COVID-19"}
_CAPITALS = re.compile(r"(?<=[a-z.,] )(?:[A-Z]{2,3} )?[A-Z][A-Z'-]{3,}(?:-[A-Z]+)*\b(?! (?:Dynasty|Pact))")


def factbook(repositories: Repositories) -> Iterator[Document]:
    """Countries of The World Factbook."""
    for name, text in repositories.texts("factbook/factbook.json", r"^[a-z-]+/[a-z]{2}\.json$"):
        paragraphs = []
        for value in _strings(json.loads(text)):
            for block in re.split(r"<br\s*/?>|</?p>|\n+", value):
                line = one_line(html.unescape(re.sub(r"<[^>]+>", "", block)))
                line = re.sub(r"^(?:note(?: \d)?|overview|definition):\s*", "", line)
                line = _CAPITALS.sub(lambda found: found[0] if found[0] in _ACRONYMS else found[0].title(), line)
                if _is_prose(line, 14) and re.match(r"[A-Z]", line) and line.count(";") < 3:
                    paragraphs.append(line)
        yield from _document(name, f"The World Factbook: {name}", "CIA", "to 2026", GOVERNMENT, paragraphs, fewest=60)


def _strings(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for value in node.values():
            yield from _strings(value)
    elif isinstance(node, str):
        yield node


# Economics and politics.

_FED_FILES = "fed_speeches/bog_fed_speeches/bog_fed_speeches_(tdy|20\\d\\d)|fomc_meetings/fomc_meetings_(tdy|20\\d\\d)"
_FOOTNOTE = re.compile(r"(?<=[a-z][.,;:”\"])\d{1,2}(?=\s|$)|(?<=[a-z)])\d{1,2}(?=[.,;]?(?:\s|$))")
_NO_SPEECH_LINE = re.compile(
    r"https?://|Return to text|PDF|^Accessible|^At the |videoconference"
    r"|thank .{0,60} for (?:their|her|his) (?:assistance|help|comments)"
)


def fed(repositories: Repositories) -> Iterator[Document]:
    """Speeches of governors of the Federal Reserve, and minutes of its Open Market Committee."""
    seen: set[str] = set()
    for _, text in repositories.texts("wbzhang233/FOMCSpeechScraper", rf"^data/({_FED_FILES})\.json$"):
        for node in _speeches(json.loads(text)):
            url = node.get("url") or ""
            if "federalreserve.gov" not in url or url in seen:
                continue
            seen.add(url)
            body = re.split(r"\n\s*(?:References|\*\*\*|_{5,}|1\. )", node["content"], maxsplit=1)[0]
            lines = (_FOOTNOTE.sub("", one_line(block)) for block in re.split(r"\n+", body))
            paragraphs = [line for line in lines if _is_prose(line, 12) and not _NO_SPEECH_LINE.search(line)]
            year = re.search(r"(?:19|20)\d\d", node.get("date") or url)
            work, title = url.rsplit("/", 1)[1], f"{node.get('title') or ''} ({url})"
            who = node.get("speaker") or "Federal Open Market Committee"
            yield from _document(work, title, who, year[0] if year else "", GOVERNMENT, paragraphs, fewest=250)


def _speeches(node: Any, key: str = "") -> Iterator[dict[str, Any]]:
    if isinstance(node, dict) and isinstance(node.get("content"), str):
        if key != "statement":
            yield node
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _speeches(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from _speeches(value, key)


_CHAIR = re.compile(
    r"^The (?:Acting )?(?:Chairman|Chair|Speaker|Presiding Officer|Clerk|President|Vice President)(?: pro tempore)?"
    r"(?: \([^)]*\))?\.\s*",
    re.IGNORECASE,
)
_MEMBER = re.compile(
    r"^(?:The )?(?:Mr|Mrs|Ms|Miss|Dr|PRESIDING|ACTING|SPEAKER|CHAIRMAN|PRESIDENT|VICE|CLERK)\b[^.]{0,60}?[A-Z]{2,}"
    r"(?: of [A-Z]\w+(?: \w+)?)?(?: pro tempore)?(?: \([^)]*\))?\.\s*"
)
_TITLED = re.compile(r"^(?:Mr|Mrs|Ms)\. [A-Z][A-Za-z]*[A-Z]{2,}(?: of [A-Z]\w+(?: \w+)?)?\.\s*")
_NAMED = re.compile(r"\((?:Mr|Mrs|Ms)\. [^)]*\)|\b([A-Z]{3,})\b(?=[,.']| of| for| and)")
_AGENCIES = {"NASA", "CAFTA", "FBI", "CIA", "DHS", "USA", "NATO", "GAO", "EPA", "FEMA", "PATRIOT", "COLA", "BRAC"}
_AGENCIES |= {"NAFTA", "NCI", "NIH"}


def congress(repositories: Repositories) -> Iterator[Document]:
    """Speeches of the Congressional Record."""
    files = r"^tests/test_files/CREC-[\d-]+/json/.*\.json$"
    for name, text in repositories.texts("unitedstates/congressional-record", files):
        data = json.loads(text)
        paragraphs, people = [], dict[str, None]()
        for part in data.get("content") or []:
            if part.get("kind") != "speech":
                continue
            if part.get("speaker"):
                people[part["speaker"]] = None
            body = re.sub(r"\s*\[\[Page \w+\]\]\s*", "\n", part.get("text") or "")
            for block in re.split(r"\n(?= {2,4}\S)|\n\s*\n", body):
                if re.match(r"\s{5,}", block.strip("\n")):
                    continue
                line = _turn(one_line(re.sub(r"(?<=\w)-\n\s*", "-", block)))
                if _is_prose(line, 6) and "____" not in line and not line.isupper():
                    paragraphs.append(line.replace("``", '"').replace("''", '"'))
        day = re.search(r"CREC-(\d{4}-\d\d-\d\d)", name)
        title, who = one_line(str(data.get("title") or "")), ", ".join(list(people)[:8])
        yield from _document(name, title, who, day[1] if day else "", GOVERNMENT, paragraphs, fewest=100)


def _turn(line: str) -> str:
    """A turn without the name of who speaks, and names of members not in capitals."""
    line = _CHAIR.sub("", line)
    for title in ("Mr", "Mrs", "Ms"):  # whose full stop ends no name
        line = line.replace(f"{title}. ", f"{title}\0")
    line = _TITLED.sub("", _MEMBER.sub("", line).replace("\0", ". "))
    return _NAMED.sub(lambda found: found[1].title() if found[1] and found[1] not in _AGENCIES else found[0], line)


SOURCES: dict[str, Reader] = {
    "wikipedia-2014": wikipedia("ZhouYii/PatchedDistro", r"^data/A[A-I]/wiki_\d+$", 6, "2014"),
    "wikipedia-2021": wikipedia("Vibhas-hs-edu/WikiTasks", r"^text/AA/wiki_\d+$", 3, "2021"),
    "changelog": changelog,
    "medquad": medquad,
    "aosabook": aosabook,
    "learning-statistics": quarto("djnavarro/rbook", r"^bookdown/0\d\.\d\d-.*\.Rmd$", "Danielle Navarro", "2013-2019"),
    "crump-statistics": quarto(
        "CrumpLab/statistics", r"^\d\d-[\w-]+\.qmd$", "Matthew J. C. Crump and others", "2018-2024"
    ),
    "crump-cognition": quarto("CrumpLab/cognition", r"^textbook/C\d+_\w+\.[qR]md$", "Matthew J. C. Crump", "2021-2024"),
    "d2l": quarto(
        "d2l-ai/d2l-en",
        r"^chapter_(?!references|installation|notation)[\w-]+/[\w-]+\.md$",
        "Zhang, Lipton, Li, Smola",
        "2018-2024",
    ),
    "light-and-matter": light_and_matter,
    "peps": peps,
    "wikinews": wikinews,
    "factbook": factbook,
    "fed": fed,
    "congress": congress,
    "opensource-guide": opensource_guide,
}

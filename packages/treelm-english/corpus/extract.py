"""Raw texts of open-english, or of modern-english, from the repositories of repositories.tsv, each at its commit.

python extract.py REPOSITORIES --output RAW [--modern]

REPOSITORIES/OWNER+NAME/repo is the git directory of each repository. RAW gets SOURCE.txt.gz, two blank lines between
documents and one between paragraphs, and documents.tsv.gz, a row each in the same order. Needs git, and lxml, which
nothing else here needs: pip install lxml.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from nltk_data import masc_document, speech_document
from open_english import write_packed
from wikipedia import wikisplit_sentences

from treelm.cli.arguments import Positional, parse
from treelm.errors import InputError

COLUMNS = ("source", "number", "work", "title", "author", "date", "licence")
NLTK = "nltk/nltk_data"
Document = Mapping[str, str]
"""Work, title, author, date, licence, and the text with a blank line between paragraphs."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Where from and where to."""

    repositories: Annotated[Path, Positional("REPOSITORIES")]
    """Folder of git directories."""
    output: Annotated[Path, "-o"]
    """Folder of the raw texts."""
    modern: bool = False
    """The sources of modern-english in place of those of open-english."""
    only: tuple[str, ...] = ()
    """Sources to extract; without any, all, and the table of documents."""


class Repositories:
    """Git directories in a folder, and the commit that is read of each."""

    def __init__(self, folder: Path) -> None:
        """Read the list of commits."""
        with Path(__file__).with_name("repositories.tsv").open(encoding="utf-8", newline="") as stream:
            self.commits = {row["repository"]: row["commit"] for row in csv.DictReader(stream, delimiter="\t")}
        self._folder = folder

    def file(self, repository: str, path: str) -> bytes:
        """The content of one file."""
        return self._git(repository, "show", f"{self.commits[repository]}:{path}")

    def files(self, repository: str, folders: tuple[str, ...], suffix: str) -> Iterator[tuple[str, bytes]]:
        """Every file in some folders whose name ends so, with its content, in the repository's order."""
        archive = self._git(repository, "archive", "--format=tar", self.commits[repository], *folders)
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            for member in packed:
                content = packed.extractfile(member) if member.name.endswith(suffix) else None
                if content is not None:
                    yield member.name, content.read()

    def texts(self, repository: str, pattern: str) -> Iterator[tuple[str, str]]:
        """Path and text of every file whose path matches, by path; one that the directory lacks is left out."""
        listed = self._git(repository, "ls-tree", "-r", "-z", self.commits[repository]).decode().split("\0")
        found = (re.fullmatch(r"\S+ blob (\S+)\t(.*)", line, re.DOTALL) for line in listed)
        wanted = sorted((one[2], one[1]) for one in found if one is not None and re.search(pattern, one[2]))
        objects = io.BytesIO(self._git(repository, "cat-file", "--batch", given="\n".join(blob for _, blob in wanted)))
        for name, _ in wanted:
            head = objects.readline().split()
            if head[-1] != b"missing":
                yield name, objects.read(int(head[2])).decode("utf-8", "replace")
                objects.read(1)

    def _git(self, repository: str, *arguments: str, given: str = "") -> bytes:
        directory = self._folder / repository.replace("/", "+") / "repo"
        command = ["git", f"--git-dir={directory}", *arguments]
        done = subprocess.run(command, input=given.encode(), capture_output=True, check=False)
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip().partition("\n")[0]
            raise InputError(f"git: {reason}", where=str(directory), remedy=f"fetch {repository}")
        return done.stdout


def standard_ebooks(repositories: Repositories) -> Iterator[Document]:
    """Chapters of books, and stories of collections."""
    from xml_texts import ebook_documents

    for repository in sorted(name for name in repositories.commits if name.startswith("standardebooks/")):
        opf = repositories.file(repository, "src/epub/content.opf").decode()
        chapters = repositories.files(repository, ("src/epub/text",), ".xhtml")
        yield from ebook_documents(repository.partition("/")[2], opf, dict(chapters))


def government(repository: str, *folders: str) -> Callable[[Repositories], Iterator[Document]]:
    """Give the reader of a repository of posts and pages in Markdown."""

    def read(repositories: Repositories) -> Iterator[Document]:
        from markdown import markdown_document

        for name, content in sorted(repositories.files(repository, folders, ".md")):
            document = markdown_document(name, content)
            if document is not None:
                yield document

    return read


def masc(repositories: Repositories) -> Iterator[Document]:
    """Texts of the written genres of MASC."""
    with zipfile.ZipFile(io.BytesIO(repositories.file(NLTK, "packages/corpora/masc_tagged.zip"))) as archive:
        lines = archive.read("masc_tagged/categories.txt").decode().splitlines()
        genres = dict(line.split()[:2] for line in lines if line.strip())
        for name in sorted(archive.namelist()):
            short = name.removeprefix("masc_tagged/")
            document = masc_document(short, genres[short], archive.read(name)) if short in genres else None
            if document is not None:
                yield document


def speeches(repositories: Repositories) -> Iterator[Document]:
    """Speeches of presidents from 1900 on."""
    for package in ("inaugural", "state_union"):
        with zipfile.ZipFile(io.BytesIO(repositories.file(NLTK, f"packages/corpora/{package}.zip"))) as archive:
            for name in sorted(archive.namelist()):
                document = speech_document(package, name, archive.read(name))
                if document is not None:
                    yield document


def wikisplit(repositories: Repositories) -> Iterator[Document]:
    """Sentences of Wikipedia, a document each."""
    for part in ("tune", "validation", "test"):
        text = repositories.file("google-research-datasets/wiki-split", f"{part}.tsv").decode()
        yield from wikisplit_sentences(part, text)


def plos(repositories: Repositories) -> Iterator[Document]:
    """Articles of PLOS journals."""
    from xml_texts import article_document

    for name, content in sorted(repositories.files("PLOS/allofplos", ("allofplos/starter_corpus",), ".xml")):
        document = article_document(name.rpartition("/")[2], content)
        if document is not None:
            yield document


SOURCES: dict[str, Callable[[Repositories], Iterator[Document]]] = {
    "standard-ebooks": standard_ebooks,
    "digitalgov": government("GSA/digitalgov.gov", "content/news", "content/resources", "content/guides"),
    "18f": government("18F/18f.gsa.gov", "content/posts"),
    "18f-handbook": government("18F/handbook", "pages"),
    "masc": masc,
    "speeches": speeches,
    "wikisplit": wikisplit,
    "plos": plos,
}


def modern_sources() -> Mapping[str, Callable[[Repositories], Iterator[Document]]]:
    """The sources of modern-english."""
    from modern_texts import SOURCES as modern

    return modern


def main(options: Arguments) -> int:
    """Write the raw texts and, of all sources, the table."""
    repositories = Repositories(options.repositories)
    options.output.mkdir(parents=True, exist_ok=True)
    table = ["\t".join(COLUMNS)]
    sources = modern_sources() if options.modern else SOURCES
    for source in options.only or sources:
        texts: dict[str, None] = {}  # in order; what is there already, is not there twice
        for document in sources[source](repositories):
            if document["text"] in texts:
                continue
            texts[document["text"]] = None
            row = {**document, "source": source, "number": str(len(texts))}
            table.append("\t".join(" ".join(row[name].split()) for name in COLUMNS))
        write_packed(options.output / f"{source}.txt.gz", "\n\n\n".join(texts) + "\n")
        print(f"{source}: {len(texts)} documents, {sum(len(text.split()) for text in texts)} words", flush=True)
    if not options.only:
        write_packed(options.output / "documents.tsv.gz", "\n".join(table) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(parse(Arguments, Path(__file__).name, sys.argv[1:])))

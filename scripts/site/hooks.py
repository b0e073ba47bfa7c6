"""What mkdocs does beyond its own when it builds the site (``make docs``): events that ``mkdocs.yml`` names.

Pages of the command line and of the API, and those that lie outside docs/, are made where the navigation names them.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import api
import commands
import links
import notebooks
import tables
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.treelm")
FOLDERS = {
    "reference/commands/": commands.pages,
    "reference/api/": api.pages,
    "reference/tables/": tables.pages,
}
"""Folders that stand in the navigation for all their pages, and what makes those: title and Markdown by file name."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and what notebooks leave for those who want to run them."""
    config.nav = _expanded(config.nav, files, config)
    for file in [*files.documentation_pages()]:
        if notebooks.is_notebook(file.src_uri, file.content_string):
            executed = notebooks.execute(file.content_string, name=file.src_uri)
            files.append(File.generated(config, notebooks.file_name(file.src_uri), content=executed))
    return files


def _expanded(nav: Any, files: Files, config: MkDocsConfig) -> Any:
    """The navigation with pages in the place of folders."""
    if isinstance(nav, list):
        return [_expanded(one, files, config) for one in nav]
    if isinstance(nav, dict):
        return {title: _expanded(one, files, config) for title, one in nav.items()}
    if nav in FOLDERS:
        made = FOLDERS[nav]()
        for name, (_, text) in made.items():
            files.append(File.generated(config, nav + name, content=text))
        return [{title: nav + name} for name, (title, _) in made.items()]
    if nav in links.OUTSIDE.values() and files.get_file_from_path(nav) is None:
        path = _root(config) / next(path for path, uri in links.OUTSIDE.items() if uri == nav)
        files.append(File.generated(config, nav, abs_src_path=str(path)))
    return nav


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Warn of every page that the navigation does not know, which a strict build refuses."""
    known = {page.file for page in nav.pages}
    for file in files.documentation_pages():
        if file not in known:
            log.warning(f"docs/{file.src_uri} has no place in the site: add it to `nav` in {config.config_file_path}")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put outputs below the code of notebooks, and turn links that hold in the repository into links of the site."""
    uri = page.file.src_uri
    executed = files.get_file_from_path(notebooks.file_name(uri))
    if executed is not None:
        markdown = notebooks.with_outputs(markdown, executed.content_string, Path(executed.src_uri).name)
    return links.relink(markdown, uri, root=_root(config), repository=config.repo_url)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent

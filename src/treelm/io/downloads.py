"""Downloads that are checked against a hash."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

from treelm.configs import configuration
from treelm.errors import InputError

_TIMEOUT = (10.0, 60.0)  # seconds to connect, and without a byte
_URL = re.compile(r"https?://[^\[\]]+$")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@configuration
class Download:
    """A file on the network and the hash of its content."""

    url: str
    sha256: str

    def __post_init__(self) -> None:
        """Raise InputError for what cannot be downloaded or checked."""
        if not _URL.match(self.url):
            raise InputError(f"url {self.url!r}", remedy="give one that starts with https:// or http://")
        if not _SHA256.fullmatch(self.sha256):
            raise InputError(f"sha256 {self.sha256!r} of {self.url}", remedy="give 64 hexadecimal digits, lower case")

    @property
    def file_name(self) -> str:
        """The last part of the URL. It names no other folder, whatever the URL says."""
        name = re.sub(r"[/\\\0]", "_", unquote(Path(urlparse(self.url).path).name))
        return name if name.strip(".") else "download"


def fetch(download: Download, directory: Path) -> Path:
    """Return the file in ``directory``, downloaded unless it is there with the right hash; it appears when complete.

    Raises InputError if the server cannot be reached, the transfer breaks off, or the content has another hash.
    """
    import pooch  # here because it takes long to import
    import requests

    pooch.get_logger().setLevel("WARNING")
    try:
        path = pooch.retrieve(
            download.url,
            known_hash=f"sha256:{download.sha256}",
            fname=download.file_name,
            path=directory,
            downloader=pooch.HTTPDownloader(timeout=_TIMEOUT),
        )
    except requests.RequestException as error:
        remedy = "check the address and the connection, and run the command again"
        raise InputError(f"cannot download {download.url} ({error})", remedy=remedy) from error
    except ValueError as error:
        raise InputError(
            f"{download.url} has another sha256 than {download.sha256}",
            remedy="try again; if it stays so, the file has changed: check its source and correct the catalogue",
        ) from error
    return Path(path)

"""Where treelm keeps what it makes for itself."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "TREELM_CACHE"
CATALOG_VARIABLE = "TREELM_CATALOG"


def cache_directory() -> Path:
    """The directory of downloads and prepared corpora: ``TREELM_CACHE``, else the user's cache directory."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("treelm"))


def user_catalog() -> Path:
    """The file in which users name downloads: ``TREELM_CATALOG``, else ``catalog.toml`` among the user's settings."""
    given = os.environ.get(CATALOG_VARIABLE)
    return Path(given).expanduser() if given else Path(platformdirs.user_config_dir("treelm")) / "catalog.toml"

"""Limits of input: the most that a small file of somebody else may cost (docs/exit-codes.md)."""

from __future__ import annotations

MOST_SETTINGS = 1 << 25
"""Bytes of a file of settings, such as a recipe or a vocabulary."""
MOST_CONFIG = 1 << 21
"""Bytes of the ``config.json`` of a model."""
MOST_HEADER = 1 << 24
"""Bytes of the header of a safetensors file, some hundred for each tensor."""
MOST_ROWS = 1 << 20
"""Rows of a sheet: as many as Excel has."""
UNPACKED_BYTES, UNPACKED_RATIO = 1 << 20, 100
"""Packed data may become so many bytes, and so many for each byte: ten times more than what text is packed by."""

"""Parts that two or more systems share."""

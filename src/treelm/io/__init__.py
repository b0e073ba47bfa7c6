"""Input and output of every part: files, tables, JSON, the terminal, downloads, worker processes."""

"""Input and output of every part: files, tables, JSON, the terminal, worker processes."""

"""One self-contained HTML page for a comparison: tables, curves, trees; nothing is fetched when it is opened."""

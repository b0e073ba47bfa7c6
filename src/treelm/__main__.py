"""``python -m treelm`` is ``treelm``."""

from treelm.cli import main

if __name__ == "__main__":
    main()

"""`python -m batchzs` is the `batchzs` command."""

from batchzs.cli import main

if __name__ == "__main__":
    main()

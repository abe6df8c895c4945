"""`python -m decaf` is the same as `decaf`."""

from decaf.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()

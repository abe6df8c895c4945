"""Damaged and hostile files, thrown at everything that reads files: python -m tools.fuzz --help."""

"""Kills, full disks and files that are cut short, in rounds that a seed decides: `python -m tools.crash`."""

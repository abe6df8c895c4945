"""Tests of what users rely on: files from strangers, old files, load, abuse, crashes and bad numbers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

"""Tests of what users rely on: files from strangers, old files, load, abuse, crashes and bad numbers."""

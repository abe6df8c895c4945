"""Tests with engines that others run: a real PostgreSQL, a real Ray cluster on this machine."""

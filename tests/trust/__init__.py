"""Tests of what users trust the product with: that it holds under load, abuse and failure."""

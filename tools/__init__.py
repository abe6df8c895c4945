"""Tools for those who work on decaf: what makes the embedded catalogue, and what tries the product for long."""

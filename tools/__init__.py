"""What makes the embedded catalogue, and what tries the product for long."""

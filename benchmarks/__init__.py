"""One script a claim: each prints its figures and writes them as JSON with commit, machine and seed."""

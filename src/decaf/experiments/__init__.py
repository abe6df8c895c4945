"""The paper's comparisons on any dataset, from one command: tables, figures, a report."""

__all__: list[str] = []

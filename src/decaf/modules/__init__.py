"""The modules of the pipeline, one file each, and the only epoch loop."""

__all__: list[str] = []

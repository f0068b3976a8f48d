"""Random attention inside other libraries' models; `pyg` and `transformers` need an extra each, `conversion` none."""

__all__: list[str] = []

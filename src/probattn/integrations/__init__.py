"""Random attention inside other libraries' models; each module here needs an extra and is imported by its own name."""

__all__: list[str] = []

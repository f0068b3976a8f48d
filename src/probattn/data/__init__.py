"""Corpora and generated tasks, one file each."""

from probattn.data.recall import RecallBatch, RecallTask

__all__ = ["RecallBatch", "RecallTask"]

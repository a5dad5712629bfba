"""All vectors: tables of what providers report and customers do, one module for each part of the rules."""

from __future__ import annotations

from ..vector import Vector
from . import (
    bounds,
    breaks,
    chat,
    contradictions,
    embeddings,
    features,
    fees,
    given_up,
    headers,
    images,
    leaving,
    lifetimes,
    limits,
    messages,
    moderations,
    rerank,
    responses,
    speech,
    tiers,
    transcription,
    translation,
    unreported,
    video,
)

PARTS = (
    chat,
    responses,
    messages,
    contradictions,
    embeddings,
    rerank,
    moderations,
    images,
    speech,
    transcription,
    video,
    leaving,
    unreported,
    given_up,
    limits,
    bounds,
    features,
    headers,
    breaks,
    tiers,
    fees,
    lifetimes,
    translation,
)


def all_vectors() -> list[Vector]:
    """Every vector; their names are distinct."""
    vectors = [vector for part in PARTS for vector in part.vectors()]
    names = [vector.name for vector in vectors]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"names that are there twice: {sorted(twice)}"
    return vectors

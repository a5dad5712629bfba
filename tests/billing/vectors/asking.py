"""How requests are put together."""

from __future__ import annotations

from typing import Any

from ..catalogue import Model
from ..customer import Form, Request

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
EMBEDDINGS = "/v1/embeddings"
RERANK = "/v1/rerank"
MODERATIONS = "/v1/moderations"
IMAGES = "/v1/images/generations"
EDITS = "/v1/images/edits"
SPEECH = "/v1/audio/speech"
TRANSCRIPTIONS = "/v1/audio/transcriptions"
TRANSLATIONS = "/v1/audio/translations"
VIDEO = "/v1/videos/generations"


def ask(path: str, model: Model | str, body: dict[str, Any], *headers: tuple[str, str]) -> Request:
    """A JSON request for the model."""
    name = model if isinstance(model, str) else model.name
    if path == MESSAGES:
        headers = (("anthropic-version", "2023-06-01"), *headers)
    return Request(path, {"model": name, **body}, headers)


def ask_gemini(model: Model | str, body: dict[str, Any]) -> Request:
    """A request for content: the model, and whether it streams, stand in the path."""
    name = model if isinstance(model, str) else model.name
    streams = body.get("stream", False)
    method = "streamGenerateContent?alt=sse" if streams else "generateContent"
    fields = {key: value for key, value in body.items() if key != "stream"}
    return Request(f"/v1beta/models/{name}:{method}", fields)


def ask_form(path: str, model: Model, *fields: tuple[str, str | bytes]) -> Request:
    """A form for the model."""
    return Request(path, Form((("model", model.name), *fields)))

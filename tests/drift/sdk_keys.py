"""Prints the keys of requests and of usages, by the types of the installed packages, as JSON.

A key stands by its path: `input[].content[].text`. The words that a package lists for a key follow it:
`service_tier=flex`. Objects of several types in one place are one object with the keys of all of them.

    python sdk_keys.py [--add MODULE:TYPE.KEY]...

`--add` puts a key into a type, as a newer version of the package would.
"""

import enum
import importlib
import inspect
import json
import re
import sys
import types
import typing
from typing import Annotated, Any, Literal, Union

from google.genai import models as google_models
from google.genai import types as google_types
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

OPENAI, ANTHROPIC = "openai.types.", "anthropic.types."

# The types of a body, for each operation and each usage.
SURFACES = {
    "chat": [f"{OPENAI}chat.completion_create_params:CompletionCreateParams"],
    "responses": [f"{OPENAI}responses.response_create_params:ResponseCreateParams"],
    "compact": [f"{OPENAI}responses.response_compact_params:ResponseCompactParams"],
    "embeddings": [f"{OPENAI}embedding_create_params:EmbeddingCreateParams"],
    "moderations": [f"{OPENAI}moderation_create_params:ModerationCreateParams"],
    "image_generation": [f"{OPENAI}image_generate_params:ImageGenerateParams"],
    "image_edit": [f"{OPENAI}image_edit_params:ImageEditParams"],
    "speech": [f"{OPENAI}audio.speech_create_params:SpeechCreateParams"],
    "transcription": [f"{OPENAI}audio.transcription_create_params:TranscriptionCreateParams"],
    "audio_translation": [f"{OPENAI}audio.translation_create_params:TranslationCreateParams"],
    "messages": [
        f"{ANTHROPIC}message_create_params:MessageCreateParams",
        f"{ANTHROPIC}beta.message_create_params:MessageCreateParams",
    ],
    "chat usage": [f"{OPENAI}completion_usage:CompletionUsage"],
    "responses usage": [f"{OPENAI}responses.response_usage:ResponseUsage"],
    "messages usage": [
        f"{ANTHROPIC}usage:Usage",
        f"{ANTHROPIC}message_delta_usage:MessageDeltaUsage",
        f"{ANTHROPIC}beta.beta_usage:BetaUsage",
        f"{ANTHROPIC}beta.beta_message_delta_usage:BetaMessageDeltaUsage",
    ],
    "generate_content usage": ["google.genai.types:GenerateContentResponseUsageMetadata"],
}

# The type of each part of a request to generate content. What parts there are is read out of the code of
# the package that writes the body.
GOOGLE_PARTS = {
    "contents": list[google_types.Content],
    "systemInstruction": google_types.Content,
    "tools": list[google_types.Tool],
    "toolConfig": google_types.ToolConfig,
    "safetySettings": list[google_types.SafetySetting],
    "generationConfig": google_types.GenerationConfig,
}

# Definitions of tools within a conversation have the keys of tools.
SAME = {
    "messages[].content[].tool.definition": "tools[]",
    "messages[].content[].tool_changes[].tool.definition": "tools[]",
}

# Of these the keys on the top alone: what is inside is that of responses.
SHALLOW = ("compact",)

SEQUENCES = ("list", "List", "Iterable", "SequenceNotStr", "Sequence", "tuple")
WRAPPERS = ("Required", "NotRequired", "ReadOnly")


def load(place):
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


def unwrapped(kind):
    """The type without what says whether a key must be there."""
    while True:
        origin = typing.get_origin(kind)
        if origin is Annotated or getattr(origin, "_name", "") in WRAPPERS:
            kind = typing.get_args(kind)[0]
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind


def keys_of(kind):
    """The keys of an object's type, each with its own type; none of other types."""
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        is_camel = kind.__module__.startswith("google.")
        return {
            to_camel(name) if is_camel else field.alias or name: field.annotation
            for name, field in kind.model_fields.items()
        }
    if hasattr(kind, "__total__"):
        return typing.get_type_hints(kind, include_extras=True)
    return {}


def parts(kind, path):
    """The types that a value can have, each with its path; alternatives and lists are unfolded."""
    kind = unwrapped(kind)
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        for one in typing.get_args(kind):
            yield from parts(one, path)
    elif getattr(origin, "__name__", "") in SEQUENCES:
        for one in typing.get_args(kind):
            yield from parts(one, f"{path}[]")
    else:
        yield kind, SAME.get(path, path)


def words_of(kind):
    if typing.get_origin(kind) is Literal:
        return [word for word in typing.get_args(kind) if isinstance(word, str)]
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return [one.value for one in kind if isinstance(one.value, str)]
    return []


def walk(roots, shares=True):
    """All keys below the types. Where types are shared, one that stands in several places has its keys
    at the one nearest to the top; elsewhere its own `type` alone is told."""
    found, seen = set(), set()
    level = list(roots)
    while level:
        deeper = []
        for kind, path in [part for root in level for part in parts(*root)]:
            found.update(f"{path}={word}" for word in words_of(kind))
            keys = keys_of(kind)
            is_known = shares and bool(keys) and kind in seen
            if keys:
                seen.add(kind)
            for key, inner in keys.items():
                if is_known and key != "type":
                    continue
                at = f"{path}.{key}" if path else key
                found.add(at)
                deeper.append((inner, at))
        level = deeper
    return sorted(found)


def google_request():
    """The parts of a request to generate content, with their types."""
    roots = []
    for writer in ("_GenerateContentConfig_to_mldev", "_GenerateContentConfig_to_vertex"):
        source = inspect.getsource(getattr(google_models, writer))
        top = re.findall(r"setv\(\s*parent_object,\s*\['(\w+)'", source)
        config = re.findall(r"setv\(\s*to_object,\s*\['(\w+)'", source)
        assert len(top) > 3 and len(config) > 10, f"{writer} is written otherwise now"
        roots += [(GOOGLE_PARTS.get(name, Any), name) for name in ["contents", *top]]
        roots += [(Any, f"generationConfig.{name}") for name in config]
    roots.append((GOOGLE_PARTS["generationConfig"], "generationConfig"))
    found = walk(dict.fromkeys(roots))
    return sorted({*found, *(path for _, path in roots)})


def add(place):
    """Adds a key to a type before it is read."""
    kind, key = place.rsplit(".", 1)
    kind = load(kind)
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        kind.model_fields[key] = type(next(iter(kind.model_fields.values())))(annotation=int)
    else:
        kind.__annotations__[key] = str


def main(arguments):
    while arguments:
        option, place, *arguments = arguments
        assert option == "--add", option
        add(place)
    surfaces = {
        surface: walk([(load(place), "") for place in places], not surface.endswith(" usage"))
        for surface, places in SURFACES.items()
    }
    for surface in SHALLOW:
        surfaces[surface] = [key for key in surfaces[surface] if not set(key) & set(".[=")]
    json.dump({**surfaces, "generate_content": google_request()}, sys.stdout)


main(sys.argv[1:])

"""HTML page of a service, generated from its OpenAPI document: operations, fields, errors. Loads no external resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>voicelab service</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse } td, th { border-top: 1px solid #8884; padding: .3rem .8rem .3rem 0; text-align: left;
vertical-align: top }
</style></head><body>"""


def documentation(document: Mapping[str, Any]) -> str:
    """Format an OpenAPI document of ``openapi.document`` as an HTML page."""
    return "\n".join([_HEAD, *_lines(document), "</body></html>"])


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    parts = document["components"]
    yield f"<h1>voicelab service</h1><p>{escape(document['info']['description'])}</p>"
    yield (
        "<p>Requests need an API key, <code>Authorization: Bearer KEY</code>. Machine-readable: "
        '<a href="openapi.json">openapi.json</a>; state: <a href="health">health</a>.</p>'
    )
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
            yield from _table(
                "Parameter",
                {
                    parameter["name"]: parameter
                    for reference in operation.get("parameters", ())
                    for parameter in [parts["parameters"][reference["$ref"].rpartition("/")[2]]]
                },
            )
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                name = content["schema"]["$ref"].rpartition("/")[2]
                yield f'<p>Body, <code>{escape(kind)}</code>: <a href="#{name}">{name}</a></p>'
            yield "<table><tr><th>Status<th>Description</tr>"
            for status, response in operation["responses"].items():
                yield f"<tr><td><code>{status}</code><td>{escape(response['description'])}</tr>"
            yield "</table>"
    for name, schema in parts["schemas"].items():
        if "properties" in schema:
            yield f'<h2 id="{name}">{name}</h2><p>{escape(schema.get("description", ""))}</p>'
            yield from _table("Field", schema["properties"])


def _table(head: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield f"<table><tr><th>{head}<th>Values<th>Description</tr>"
    for name, row in rows.items():
        values = escape(_values(row.get("schema", row)))
        yield f"<tr><td><code>{escape(name)}</code><td>{values}<td>{escape(row.get('description', ''))}</tr>"
    yield "</table>"


def _values(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_values, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("const") or schema.get("type", "")
    values = ", ".join(map(str, schema.get("enum", ()))) or (" or ".join(kind) if isinstance(kind, list) else str(kind))
    for key, word in (("minimum", "from"), ("maximum", "to")):
        values += f" {word} {schema[key]}".removesuffix(".0") if key in schema else ""
    return values if schema.get("default") is None else f"{values}; default {schema['default']}"

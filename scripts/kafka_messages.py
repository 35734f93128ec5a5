#!/usr/bin/env python3
"""kafka_messages.py OUT_H OUT_C DEFINITION.json... - makes C of Kafka's message definitions.

For each message a struct, and a description of it that src/broker/codec/codec.c follows to decode and to encode; and the
table of keys and versions. The definitions are Kafka's own: JSON with // comments, version ranges, nullable, flexible
and tagged fields, defaults. What the descriptions cannot express is refused here, at build time.
"""
import json
import re
import sys

PRIMITIVES = {  # type in a definition: (kind, C type, default)
    "bool": ("CODEC_BOOL", "bool", "false"),
    "int8": ("CODEC_INT8", "int8_t", "0"),
    "int16": ("CODEC_INT16", "int16_t", "0"),
    "uint16": ("CODEC_UINT16", "uint16_t", "0"),
    "int32": ("CODEC_INT32", "int32_t", "0"),
    "uint32": ("CODEC_UINT32", "uint32_t", "0"),
    "int64": ("CODEC_INT64", "int64_t", "0"),
    "float64": ("CODEC_FLOAT64", "double", "0.0"),
    "uuid": ("CODEC_UUID", "struct codec_uuid", "{{0}}"),
    "string": ("CODEC_STRING", "struct codec_string", "{NULL, 0}"),
    "bytes": ("CODEC_BYTES", "struct codec_bytes", "{NULL, 0}"),
    "records": ("CODEC_RECORDS", "struct codec_bytes", "{NULL, 0}"),
}
VERSION_MAX = 32767
FIELD_KEYS = {"name", "type", "versions", "about", "fields", "nullableVersions", "taggedVersions", "tag", "default",
              "ignorable", "mapKey", "entityType", "flexibleVersions", "zeroCopy"}


def refuse(message, why):
    sys.exit(f"kafka_messages.py: {message['name']}: {why}")


def load(path):
    """JSON with // comments; none of the strings in the definitions has // at the start of a line or behind a comma."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    token = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*')
    return json.loads(token.sub(lambda found: found.group(0) if found.group(0)[0] == '"' else "", text))


def versions(text):
    """"none", "3", "0-8", "3+" as (from, to); none is an empty range."""
    if text is None or text == "none":
        return (1, 0)
    found = re.fullmatch(r"(\d+)(?:-(\d+)|(\+))?", text)
    if not found:
        sys.exit(f"kafka_messages.py: '{text}' is no range of versions")
    low = int(found.group(1))
    return (low, VERSION_MAX if found.group(3) else int(found.group(2) or low))


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def camel(name):
    return name[0].lower() + name[1:]


class Struct:
    def __init__(self, message, name, fields, reach):
        self.name, self.fields = name, fields
        self.c_name = f"kafka_{snake(message['name'])}" + ("" if name == message["name"] else f"_{snake(name)}")
        self.reach = reach  # versions in which it can occur


class Message:
    def __init__(self, definition):
        self.definition, self.name = definition, definition["name"]
        self.valid, self.flexible = versions(definition["validVersions"]), versions(definition["flexibleVersions"])
        self.commons = {each["name"]: each for each in definition.get("commonStructs", [])}
        self.structs = []  # a struct behind those that it contains
        self.by_name = {}
        self.root = self.add(self.name, definition["fields"])

    def add(self, name, fields):
        if name in self.by_name:
            return self.by_name[name]
        struct = Struct(self.definition, name, fields, self.valid)
        self.by_name[name] = struct
        for field in fields:
            unknown = set(field) - FIELD_KEYS
            if unknown:
                refuse(self.definition, f"field {field['name']} has {', '.join(sorted(unknown))}, which is unknown")
            element = field["type"].removeprefix("[]")
            if element in PRIMITIVES:
                continue
            inner = field.get("fields") or self.commons.get(element, {}).get("fields")
            if inner is None:
                refuse(self.definition, f"field {field['name']} has the unknown type {field['type']}")
            if not field["type"].startswith("[]") and "nullableVersions" in field:
                refuse(self.definition, f"field {field['name']} is a nullable struct, which is not supported")
            self.add(element, inner)
        self.structs.append(struct)
        return struct

    def c_type(self, field):
        element = field["type"].removeprefix("[]")
        c_type = PRIMITIVES[element][1] if element in PRIMITIVES else f"struct {self.by_name[element].c_name}"
        return c_type, field["type"].startswith("[]")

    def default(self, field):
        element, text = field["type"].removeprefix("[]"), field.get("default")
        if field["type"].startswith("[]"):
            return "{NULL, -1}" if text == "null" else "{NULL, 0}"
        if element not in PRIMITIVES:
            return self.initialiser(self.by_name[element])
        kind, _, nothing = PRIMITIVES[element]
        if text is None or text == "":
            return nothing
        if kind in ("CODEC_STRING", "CODEC_BYTES", "CODEC_RECORDS"):
            if text == "null":
                return "{NULL, -1}"
            return '{"%s", %d}' % (text, len(text))
        if kind == "CODEC_BOOL":
            return str(text).lower()
        if kind == "CODEC_FLOAT64":
            return str(float(text))
        return str(int(str(text), 0)).replace("-9223372036854775808", "INT64_MIN")

    def initialiser(self, struct):
        return "{" + ", ".join(f".{snake(field['name'])} = {self.default(field)}" for field in struct.fields) + "}"

    # ---- what is written ----

    def header(self):
        for struct in self.structs:
            yield f"struct {struct.c_name} {{"
            for field in struct.fields:
                c_type, is_array = self.c_type(field)
                name = snake(field["name"])
                if is_array:
                    yield "\tstruct {"
                    yield f"\t\t{c_type} *at;"
                    yield "\t\tint32_t count; /* -1: null */"
                    yield f"\t}} {name};"
                else:
                    yield f"\t{c_type} {name};"
            yield "};"
        yield f"extern const struct codec_message {self.root.c_name}_codec;"
        yield ""

    def field(self, struct, field):
        element = field["type"].removeprefix("[]")
        name = snake(field["name"])
        kind = PRIMITIVES[element][0] if element in PRIMITIVES else "CODEC_STRUCT"
        null = versions(field.get("nullableVersions"))
        tagged = versions(field.get("taggedVersions"))
        parts = [f'.name = "{camel(field["name"])}"', f".kind = {kind}",
                 f".offset = offsetof(struct {struct.c_name}, {name})",
                 ".versions = {%d, %d}" % versions(field.get("versions", "0+")), ".null = {%d, %d}" % null,
                 ".tagged = {%d, %d}" % tagged]
        if "tag" in field:
            parts.append(f".tag = {field['tag']}")
        if field["type"].startswith("[]"):
            parts.append(".array = true")
        if kind == "CODEC_STRUCT":
            parts.append(f".of = &{self.by_name[element].c_name}_struct")
        if field.get("flexibleVersions") == "none":
            parts.append(".rigid = true")
        elif "flexibleVersions" in field:
            refuse(self.definition, f"field {field['name']} has flexibleVersions that are not none")
        return "{" + ", ".join(parts) + "},"

    def source(self):
        for struct in self.structs:
            yield f"static const struct {struct.c_name} {struct.c_name}_default = {self.initialiser(struct)};"
            yield f"static const struct codec_field {struct.c_name}_fields[] = {{"
            for field in struct.fields:
                yield "\t" + self.field(struct, field)
            if not struct.fields:
                yield "\t{.name = NULL},"
            yield "};"
            yield f"static const struct codec_struct {struct.c_name}_struct = {{"
            yield f"\t{struct.c_name}_fields, {len(struct.fields)}, sizeof(struct {struct.c_name}), " \
                  f"&{struct.c_name}_default}};"
        yield f'const struct codec_message {self.root.c_name}_codec = {{"{self.name}", &{self.root.c_name}_struct,'
        yield "\t{%d, %d}, {%d, %d}};" % (self.valid + self.flexible)
        yield ""


def fix_empty(lines):
    """A message without fields is a struct with one unused byte: C has no empty structs."""
    lines = list(lines)
    for at, line in enumerate(lines):
        if line.startswith("struct ") and line.endswith("{") and lines[at + 1] == "};":
            lines[at] = line + "\n\tuint8_t unused;"
    return lines


def main():
    out_h, out_c, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    messages = [Message(load(path)) for path in sorted(paths)]
    requests = sorted((m for m in messages if m.definition["type"] == "request"), key=lambda m: m.definition["apiKey"])
    responses = {m.definition["apiKey"]: m for m in messages if m.definition["type"] == "response"}
    with open(out_h, "w", encoding="utf-8") as out:
        out.write("/* Made by scripts/kafka_messages.py from Kafka's message definitions. */\n"
                  "#ifndef HOLDFAST_BROKER_KAFKA_MESSAGES_H\n#define HOLDFAST_BROKER_KAFKA_MESSAGES_H\n\n"
                  '#include "broker/codec/codec.h"\n\n')
        for message in messages:
            out.write("\n".join(fix_empty(message.header())) + "\n")
        out.write("enum kafka_key {\n")
        for request in requests:
            name = snake(request.name.removesuffix("Request")).upper()
            out.write(f"\tKAFKA_{name} = {request.definition['apiKey']},\n")
        out.write("};\n\n/* In the order of their keys. */\n"
                  f"#define KAFKA_APIS {len(requests)}u\nextern const struct codec_api kafka_apis[KAFKA_APIS];\n\n#endif\n")
    with open(out_c, "w", encoding="utf-8") as out:
        out.write("/* Made by scripts/kafka_messages.py from Kafka's message definitions. */\n"
                  '#include "broker/kafka_messages.h"\n\n#include <stddef.h>\n\n')
        for message in messages:
            out.write("\n".join(message.source()) + "\n")
        out.write("const struct codec_api kafka_apis[KAFKA_APIS] = {\n")
        for request in requests:
            response = responses[request.definition["apiKey"]]
            out.write(f'\t{{{request.definition["apiKey"]}, "{request.name.removesuffix("Request")}", '
                      f"&{request.root.c_name}_codec, &{response.root.c_name}_codec}},\n")
        out.write("};\n")


main()

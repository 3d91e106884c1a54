"""Checks an exposition on standard input against the text format of OpenMetrics 1.0, written from its specification
(https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md), and prints the samples as JSON:
one object a line, with "family", "type", "name", "labels" and "value".

Only what the format's grammar and its rules for counters and gauges allow is accepted: other types, time stamps and
exemplars are faults, because node_exporter's textfile collector doesn't take them. Exits with 1 at the first fault.
"""

import json
import math
import re
import sys

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
RESERVED = ("_total", "_created", "_count", "_sum", "_bucket", "_info", "_gcount", "_gsum")


class Fault(Exception):
    pass


def unescape(text, quotes):
    """Returns the text without its escapes. A quote must be escaped in a label's value."""
    result, position = "", 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            escaped = text[position + 1:position + 2]
            if escaped not in ("\\", "n", '"'):
                raise Fault(f"unknown escape in {text!r}")
            result += "\n" if escaped == "n" else escaped
            position += 2
            continue
        if character == '"' and quotes:
            raise Fault(f"unescaped quote in {text!r}")
        result += character
        position += 1
    return result


def labels(text):
    """Returns the labels between the braces."""
    found, position = {}, 0
    while position < len(text):
        name = LABEL.match(text, position)
        if not name or text[name.end():name.end() + 2] != '="':
            raise Fault(f"no label at {text[position:]!r}")
        start = end = name.end() + 2
        while text[end:end + 1] not in ('"', ""):
            end += 2 if text[end] == "\\" else 1
        if text[end:end + 1] != '"':
            raise Fault(f"unfinished value in {text!r}")
        if name.group() in found:
            raise Fault(f"label {name.group()} twice")
        if name.group().startswith("__"):
            raise Fault(f"reserved label {name.group()}")
        found[name.group()] = unescape(text[start:end], quotes=True)
        position = end + 1
        if position < len(text):
            if text[position] != "," or position + 1 == len(text):
                raise Fault(f"no comma in {text!r}")
            position += 1
    return found


def sample(line):
    name = NAME.match(line)
    if not name:
        raise Fault(f"no metric name: {line!r}")
    rest = line[name.end():]
    found = {}
    if rest.startswith("{"):
        end, is_quoted = 1, False
        while end < len(rest) and (is_quoted or rest[end] != "}"):
            if is_quoted and rest[end] == "\\":
                end += 1
            elif rest[end] == '"':
                is_quoted = not is_quoted
            end += 1
        if end >= len(rest):
            raise Fault(f"unfinished labels: {line!r}")
        found = labels(rest[1:end])
        rest = rest[end + 1:]
    if not rest.startswith(" ") or not NUMBER.fullmatch(rest[1:]):
        raise Fault(f"no plain value: {line!r}")
    return name.group(), found, float(rest[1:])


def parse(text):
    if not text.endswith("# EOF\n"):
        raise Fault("it doesn't end with # EOF")
    if "\r" in text:
        raise Fault("a carriage return")
    families, seen, samples = {}, set(), []
    current, has_samples = None, False
    for line in text.split("\n")[:-2]:
        if line.startswith("#"):
            found = re.fullmatch(r"# (TYPE|UNIT|HELP) ([^ ]+) (.*)", line)
            if not found:
                raise Fault(f"no TYPE, UNIT or HELP: {line!r}")
            keyword, name, rest = found.groups()
            if not NAME.fullmatch(name):
                raise Fault(f"no metric name: {line!r}")
            if name != current:
                if name in families:
                    raise Fault(f"the family {name} comes twice")
                if name.endswith(RESERVED):
                    raise Fault(f"the family {name} has a reserved suffix")
                families[name], current, has_samples = {}, name, False
            if keyword in families[name] or has_samples:
                raise Fault(f"{keyword} of {name} comes twice, or after a sample")
            if keyword == "TYPE" and rest not in ("counter", "gauge"):
                raise Fault(f"type {rest}")
            if keyword == "UNIT" and (not rest or not name.endswith("_" + rest)):
                raise Fault(f"{name} doesn't end with its unit {rest}")
            if keyword == "HELP":
                rest = unescape(rest, quotes=False)
            families[name][keyword] = rest
            continue
        name, found, value = sample(line)
        if current is None or "TYPE" not in families[current] or "HELP" not in families[current]:
            raise Fault(f"{name} without TYPE and HELP")
        kind = families[current]["TYPE"]
        if name != current + ("_total" if kind == "counter" else ""):
            raise Fault(f"{name} is no sample of the {kind} {current}")
        if not math.isfinite(value) or kind == "counter" and value < 0:
            raise Fault(f"value of {name}: {value}")
        key = (name, tuple(sorted(found.items())))
        if key in seen:
            raise Fault(f"the sample {key} comes twice")
        seen.add(key)
        has_samples = True
        samples.append({"family": current, "type": kind, "name": name, "labels": found, "value": value})
    for name, members in families.items():
        if not any(found["family"] == name for found in samples):
            raise Fault(f"the family {name} has no sample")
    return samples


def compare(text, samples):
    """Compares with the parser of the Prometheus project's client library, if it is installed."""
    try:
        from prometheus_client.openmetrics import parser
    except ImportError:
        return
    theirs = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    if [(one.name, one.labels, one.value) for one in theirs] != [
        (one["name"], one["labels"], one["value"]) for one in samples
    ]:
        raise Fault("prometheus_client reads other samples")


try:
    exposition = sys.stdin.buffer.read().decode()
    samples = parse(exposition)
    compare(exposition, samples)
    for found in samples:
        print(json.dumps(found, ensure_ascii=False))
except (Fault, UnicodeDecodeError) as fault:
    print(f"not OpenMetrics: {fault}", file=sys.stderr)
    sys.exit(1)

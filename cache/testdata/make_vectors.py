#!/usr/bin/env python3
"""Writes vectors.json: names and stored objects of a small document, worked out from ../format.md alone.

It shares no code with the Go package: what both agree on is what format.md says. Run: python3 make_vectors.py
"""
import base64
import hashlib
import json
import os
import struct

sha = lambda b: hashlib.sha256(b).digest()
u64 = lambda n: struct.pack("<Q", n)
text = lambda s: u64(len(s)) + s
ids = lambda tokens: b"".join(struct.pack("<I", t) for t in tokens)


def model_id(fields, salt):
    body = b"lector model 1\n" + u64(1) + text(salt) + u64(len(fields))
    return sha(body + b"".join(text(n.encode()) + text(v.encode()) for n, v in fields))


def producer_id(model, cls, grid):
    return sha(b"lector producer 1\n" + model + text(cls.encode()) + u64(grid))


def boundaries(n, grid):
    return list(range(grid, n, grid)) + [n]


def keys(producer, tokens, bounds):
    out, prev, start = [], bytes(32), 0
    for b in bounds:
        prev = sha(b"lector key 1\n" + producer + prev + u64(b) + ids(tokens[start:b]))
        out.append(prev)
        start = b
    return out


def handle_name(digest):
    check = sha(b"lector handle 1\n" + digest)[:3]
    return "lh1-" + base64.b32encode(digest + check).decode().lower()


def compact(v):
    return json.dumps(v, separators=(",", ":"), ensure_ascii=True)


# Keys: an unsalted and a salted model, a document that ends on the grid and one that does not.
WEIGHTS = hashlib.sha256(b"weights").hexdigest()
cases = []
for fields, cls, grid, salt, tokens in [
    ([], "cpu-f32", 4, b"", [0]),
    ([("weights", WEIGHTS), ("codec", "f32-1")], "cpu-f32", 4, b"", [1, 2, 3, 4, 5, 6, 7, 8]),
    ([("weights", WEIGHTS), ("codec", "f32-1")], "cpu-f32", 4, bytes(range(32)), [1, 2, 3, 4, 5, 6, 7, 8, 248319]),
    ([("weights", WEIGHTS), ("codec", "f32-1")], "metal-h1", 512, b"", list(range(1000))),
]:
    m = model_id(fields, salt)
    p = producer_id(m, cls, grid)
    bounds = boundaries(len(tokens), grid)
    cases.append({
        "fields": [{"name": n, "value": v} for n, v in fields], "class": cls, "grid": grid, "salt": salt.hex(),
        "tokens": tokens, "model": m.hex(), "producer": p.hex(), "boundaries": bounds,
        "keys": [k.hex() for k in keys(p, tokens, bounds)],
    })

# A whole small document of tenant "golden": every object that stands after it was read.
FIELDS, CLASS, GRID, SALT = [("weights", WEIGHTS), ("codec", "f32-1")], "cpu-f32", 4, b"salt"
TOKENS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 70000]
model = model_id(FIELDS, SALT)
producer = producer_id(model, CLASS, GRID)
bounds = boundaries(len(TOKENS), GRID)
chain = keys(producer, TOKENS, bounds)
LAYOUT = [
    {"name": "tokens", "dtype": "i32", "shape": [], "kind": "rows", "lag": 0},
    {"name": "layers.0.k", "dtype": "f32", "shape": [2], "kind": "rows", "lag": 0},
    {"name": "layers.0.s", "dtype": "f32", "shape": [3], "kind": "fixed", "lag": 0},
    {"name": "mtp.k", "dtype": "f32", "shape": [1], "kind": "rows", "lag": 1},
]
row = {
    "tokens": lambda t: struct.pack("<I", TOKENS[t]),
    "layers.0.k": lambda t: bytes(8 * t + j & 255 for j in range(8)),
    "mtp.k": lambda t: bytes(200 + 4 * t + j & 255 for j in range(4)),
}
state_at = lambda p: bytes(p + j & 255 for j in range(12))
PROBES = {
    4: ([(7, "0.5"), (2, "-0.1")], 7, 3),
    8: ([(70000, "1e-07"), (0, "-3.25")], 70000, 0),
    10: ([(5, "1.5e+30"), (6, "1.6777216e+07"), (1, "123456")], 5, -1),
}

objects = {}


def put(kind, name, body):
    objects["golden/%s/%s" % (kind, name)] = body.hex()


def blob(kind, body):
    d = sha(body)
    put(kind, d.hex(), body)
    return '{"digest":"%s","size":%d}' % (d.hex(), len(body))


def probe(p):
    top, nxt, draft = PROBES[p]
    return '{"top":[%s],"next":%d,"draft":%d}' % (",".join('{"id":%d,"logit":%s}' % t for t in top), nxt, draft)


put("documents", sha(ids(TOKENS)).hex(), ids(TOKENS))
parent, start, chunks, total = bytes(32), 0, [], 0
for key, to in zip(chain, bounds):
    stream = b"".join(
        row[r["name"]](t) for r in LAYOUT if r["kind"] == "rows" for t in range(max(start - r["lag"], 0), max(to - r["lag"], 0))
    )
    total += len(stream)
    last = to == bounds[-1]
    rows, state = blob("blobs", stream), blob("blobs" if last else "rolling/job1", state_at(to))
    tokens = sha(ids(TOKENS[start:to])).hex()
    body = '{"version":1,"key":"%s","producer":"%s","parent":"%s","from":%d,"to":%d,"tokens":"%s","layout":%s,"rows":[%s],"state":[%s],"probe":%s}' % (
        key.hex(), producer.hex(), parent.hex(), start, to, tokens, compact(LAYOUT), rows, state, probe(to))
    node = body[:-1] + ',"sum":"%s"}' % sha(body.encode()).hex()
    put("nodes", key.hex(), node.encode())
    if last:
        put("keep", key.hex(), key.hex().encode() + b"\n")
    chunks.append('{"key":"%s","from":%d,"to":%d,"tokens":"%s","rows":[%s]}' % (key.hex(), start, to, tokens, rows))
    parent, start = key, to

identity = '{"fields":%s,"class":"%s","grid":%d,"model":"%s","producer":"%s"}' % (
    compact([{"name": n, "value": v} for n, v in FIELDS]), CLASS, GRID, model.hex(), producer.hex())
manifest = '{"version":1,"identity":%s,"tokens":%d,"bytes":%d,"layout":%s,"chunks":[%s],"state":[%s],"probe":%s}' % (
    identity, len(TOKENS), total + 12, compact(LAYOUT), ",".join(chunks), state, probe(10))
put("manifests", sha(manifest.encode()).hex(), manifest.encode())
handle = '{"version":1,"manifest":"%s","model":"%s","tokens":%d,"tenant":"golden","expires":"2026-11-30T12:00:00Z"}' % (
    sha(manifest.encode()).hex(), model.hex(), len(TOKENS))
put("handles", sha(handle.encode()).hex(), handle.encode())

# The same ids without a state, in a store of their own.
document, objects = objects, {}
put_ids = []
start = 0
for key, to in zip(chain, bounds):
    b = blob("blobs", ids(TOKENS[start:to]))
    put_ids.append('{"key":"%s","from":%d,"to":%d,"tokens":"%s","rows":[%s]}' % (key.hex(), start, to, sha(ids(TOKENS[start:to])).hex(), b))
    start = to
alone = '{"version":1,"identity":%s,"tokens":%d,"bytes":%d,"layout":%s,"chunks":[%s],"state":[],"probe":{"top":[],"next":-1,"draft":-1}}' % (
    identity, len(TOKENS), 4 * len(TOKENS), compact(LAYOUT[:1]), ",".join(put_ids))
put("manifests", sha(alone.encode()).hex(), alone.encode())

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors.json"), "w") as f:
    json.dump({"keys": cases, "store": {"objects": document, "handle": handle_name(sha(handle.encode()))}, "ids": objects}, f, indent=1)
    f.write("\n")

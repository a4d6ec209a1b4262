#!/usr/bin/env python3
"""Seals three objects from the description in format.md alone, with the `cryptography` package. Prints sealed.json."""
import base64, hashlib, hmac, json
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def hkdf(secret, salt, info, n=32):
    prk = hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()
    out, block, i = b"", b"", 1
    while len(out) < n:
        block = hmac.new(prk, block + info + bytes([i]), hashlib.sha256).digest()
        out, i = out + block, i + 1
    return out[:n]


secret = bytes(range(32))
use = {u: hkdf(secret, b"", b"lector seal 1 " + u.encode()) for u in ["object", "name", "name mac", "salt"]}
key_id = hkdf(secret, b"", b"lector seal 1 id", 8)


def element(folder, e):
    tag = hmac.new(use["name mac"], folder.encode() + b"\0" + e.encode(), hashlib.sha256).digest()[:24]
    enc = Cipher(algorithms.AES(use["name"]), modes.CTR(tag[:16])).encryptor()
    return base64.b32encode(tag + enc.update(e.encode())).decode().lower().rstrip("=")


def name(plain):
    parts = plain.split("/")
    out = [parts[0], "sealed", key_id.hex()]
    for i, e in enumerate(parts[1:], 1):
        out.append(e if i < 2 and i < len(parts) - 1 else element("/".join(parts[:i]), e))
    return "/".join(out)


def body(plain_name, plain, salt):
    header = b"lector sealed 1\n" + key_id + salt
    aead = AESGCM(hkdf(use["object"], salt, b"lector object 1 " + plain_name.encode()))
    cuts = [plain[i:i + 65536] for i in range(0, len(plain), 65536)] or [b""]
    out = header
    for i, segment in enumerate(cuts):
        out += aead.encrypt(bytes(3) + i.to_bytes(8, "big") + bytes([i == len(cuts) - 1]), segment, header)
    return out


objects = []
for i, (n, size) in enumerate([("default/blobs/" + hashlib.sha256(b"x").hexdigest(), 70000), ("default/tags/book", 65), ("default/signatures/aa/bb", 0)]):
    plain = bytes((j * 7 + i) & 255 for j in range(size))
    sealed = body(n, plain, bytes([i + 1]) * 32)
    objects.append({"name": n, "sealed_name": name(n), "size": size, "plain_sha256": hashlib.sha256(plain).hexdigest(),
                    "sealed_sha256": hashlib.sha256(sealed).hexdigest(), "sealed": base64.b64encode(sealed).decode() if size < 1000 else ""})
tenant_salt = bytes([9]) * 32
print(json.dumps({"secret": secret.hex(), "id": key_id.hex(), "tenant_salt": tenant_salt.hex(),
                  "salt": hmac.new(use["salt"], key_id.hex().encode() + tenant_salt, hashlib.sha256).hexdigest(), "objects": objects}, indent=1))

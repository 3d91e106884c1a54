"""The relay's digests, as Documentation/Relay.md has them."""

import hashlib
import hmac

FIELDS = ["Gs-From", "Gs-Upto", "Gs-Part", "Gs-Schema", "Gs-Prev"]


def read_key(path):
    with open(path, "rb") as file:
        return file.read().removesuffix(b"\n")


def mac(key, fields, body):
    data = b"".join(field.encode("utf-8", "surrogateescape") + b"\n" for field in fields) + body
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def batch_mac(key, stream, headers, body):
    return mac(key, [stream] + [headers.get(name, "") for name in FIELDS], body)


def signed(key, stream, headers, body):
    headers = dict(headers)
    headers["Gs-Mac"] = batch_mac(key, stream, headers, body)
    return headers


def request_mac(key, stream, reply, body):
    return mac(key, [stream, "request", reply], body)


def number_of(token):
    return int(token.split(".")[2])


def history_of(token):
    return token.split(".")[1]

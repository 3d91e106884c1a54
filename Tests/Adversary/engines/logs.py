"""The pages of a database with what its write-ahead log holds, read as the format says (sqlite.org/fileformat2.html, 4).

A checkpoint copies pages from one file to the other and changes nothing that a reader finds.
"""
import struct

HEADER, FRAME = 32, 24


def content(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def added(sums, data, order):
    """The checksum of `data` after that of what precedes it."""
    first, second = sums
    words = struct.unpack(order + "%dI" % (len(data) // 4), data)
    for one, other in zip(words[::2], words[1::2]):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def commits(log):
    """For each whole commit in a log: its pages by number, their size, and the database's size in pages."""
    header = log[:HEADER]
    if len(header) < HEADER or struct.unpack(">I", header[:4])[0] & ~1 != 0x377F0682:
        return
    order = ">" if header[3] & 1 else "<"
    size = struct.unpack(">I", header[8:12])[0]
    sums = added((0, 0), header[:24], order)
    if sums != struct.unpack(">II", header[24:32]) or not 512 <= size <= 65536 or size & (size - 1):
        return
    pages, place = {}, HEADER
    while len(frame := log[place:place + FRAME + size]) == FRAME + size and frame[8:16] == header[16:24]:
        sums = added(added(sums, frame[:8], order), frame[FRAME:], order)
        number, count = struct.unpack(">II", frame[:8])
        if sums != struct.unpack(">II", frame[16:24]):
            return
        pages[number] = frame[FRAME:]
        if count:
            yield pages, size, count
            pages = {}
        place += len(frame)


def database(path):
    """The bytes of the database as it would be after a checkpoint of its whole log."""
    data = bytearray(content(path))
    for pages, size, count in commits(content(path + "-wal")):
        data = data[:count * size] + bytes(max(0, count * size - len(data)))
        for number, page in pages.items():
            if number <= count:
                data[(number - 1) * size:number * size] = page
    return bytes(data)

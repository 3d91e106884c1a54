import GroupContainers
import LinuxSystem
import SystemPackage

/// Changes of paths in texts (`PathRewrite`). Of those that match a text, the one with the longest old path applies.
struct PathRewriter {
    private struct Pair {
        let old: [UInt8]
        let new: [UInt8]
    }

    private let pairs: [Pair]
    private let shortest: Int

    init(_ rewrites: [PathRewrite]) {
        pairs = rewrites.map { Pair(old: $0.old.path.bytes, new: $0.new.path.bytes) }
            .sorted { $0.old.count > $1.old.count }
        shortest = pairs.last?.old.count ?? 0
    }

    /// A change of a text.
    struct Edit {
        let range: Range<Int>
        let new: [UInt8]
    }

    /// The changes of a value, in its order.
    struct Changes {
        var edits: [Edit] = []
        /// True if a part of the value was not looked at: JSON that is quoted too many times.
        var isTooDeep = false

        /// Returns the value with the new path, or nil if it doesn't hold an old one.
        func applied(to value: [UInt8]) -> [UInt8]? {
            guard !edits.isEmpty else { return nil }
            var (result, copied) = ([UInt8](), 0)
            for edit in edits {
                result += value[copied..<edit.range.lowerBound] + edit.new
                copied = edit.range.upperBound
            }
            return result + value[copied...]
        }
    }

    /// JSON in a string of JSON counts too, quoted so many times. Backslashes double with each quoting, so that
    /// SQLite's longest text, of 2 GB, has fewer; only `\u005c` for each backslash makes more possible.
    static let maximumDepth = 32

    /// Looks for old paths in a value.
    func changes(_ value: [UInt8], depth: Int = 0) -> Changes {
        guard value.count >= shortest else { return Changes() }
        if value.first == UInt8(ascii: "/") { return Changes(edits: path(value)) }
        if value.starts(with: "file:".utf8) { return Changes(edits: url(value)) }
        guard let first = value.first(where: { !JSONRewriter.isSpace($0) }), "{[\"".utf8.contains(first) else {
            return Changes()
        }
        guard depth <= Self.maximumDepth else { return Changes(isTooDeep: true) }
        return JSONRewriter.changes(value, by: self, depth: depth + 1)
    }

    private func path(_ value: [UInt8]) -> [Edit] {
        for pair in pairs where value.starts(with: pair.old) {
            guard value.count == pair.old.count || value[pair.old.count] == UInt8(ascii: "/"),
                !Self.leaves(value[pair.old.count...])
            else { continue }
            return [Edit(range: 0..<pair.old.count, new: pair.new)]
        }
        return []
    }

    /// True if a path relative to a directory leads out of it: `/../x`.
    private static func leaves(_ path: some Collection<UInt8>) -> Bool {
        var depth = 0
        for component in path.split(separator: UInt8(ascii: "/")) {
            depth += component.elementsEqual("..".utf8) ? -1 : component.elementsEqual(".".utf8) ? 0 : 1
            if depth < 0 { return true }
        }
        return false
    }

    // MARK: - URLs

    private func url(_ value: [UInt8]) -> [Edit] {
        for scheme in ["file://localhost", "file://", "file:"] where value.starts(with: scheme.utf8) {
            let start = scheme.utf8.count
            guard start < value.count, value[start] == UInt8(ascii: "/") else { continue }
            for pair in pairs {
                guard let end = Self.end(of: pair.old, in: value, from: start),
                    !Self.leaves(Self.decoded(value[end...].prefix { !"?#".utf8.contains($0) }))
                else { continue }
                return [Edit(range: start..<end, new: Self.encoded(pair.new))]
            }
        }
        return []
    }

    /// Returns the index after the path in a URL, percent-encoded or not, if whole components end there.
    private static func end(of path: [UInt8], in value: [UInt8], from start: Int) -> Int? {
        var index = start
        for wanted in path {
            guard index < value.count, next(in: value[...], &index) == wanted else { return nil }
        }
        return index == value.count || "/?#".utf8.contains(value[index]) ? index : nil
    }

    /// Returns the byte at an index, decoded, and moves the index to the next one.
    private static func next(in value: ArraySlice<UInt8>, _ index: inout Int) -> UInt8 {
        let byte = value[index]
        index += 1
        guard byte == UInt8(ascii: "%"), index + 1 < value.endIndex,
            let decoded = UInt8(String(decoding: value[index...index + 1], as: UTF8.self), radix: 16)
        else { return byte }
        index += 2
        return decoded
    }

    private static func decoded(_ value: ArraySlice<UInt8>) -> [UInt8] {
        var (index, bytes) = (value.startIndex, [UInt8]())
        while index < value.endIndex { bytes.append(next(in: value, &index)) }
        return bytes
    }

    /// Encodes the bytes that GLib's g_filename_to_uri encodes.
    private static func encoded(_ path: [UInt8]) -> [UInt8] {
        path.flatMap { byte -> [UInt8] in
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: return [byte]
            case _ where "!$&'()*+,-./:=@_~".utf8.contains(byte): return [byte]
            default:
                let digits = String(byte, radix: 16, uppercase: true)
                return Array(("%" + (digits.utf8.count == 1 ? "0" : "") + digits).utf8)
            }
        }
    }
}

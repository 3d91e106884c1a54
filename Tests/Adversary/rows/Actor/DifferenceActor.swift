import Foundation
import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

/// Tells a tester which rows differ between the states of a database: `DifferenceActor DATABASE`.
///
/// It prints `R`, and answers each line of stdin, `poll` or `hold`, up to `OK`. An answer to `poll` has for each
/// difference `X KIND PAGES` (`tx`: one commit; `net`: several), for each table `T OLDROOT KIND OLDNAME NEWROOT KIND
/// NEWNAME` (`-` for none; names in hexadecimal, in the database's encoding), for each row `I|U|D ROWID BEFORE AFTER`,
/// or `i|d 0 BEFORE AFTER` of a table WITHOUT ROWID (records in hexadecimal, `-` for an empty one, `.` for none), and
/// `E`. `BADMAP` says that the map isn't what it would be if it were read anew.
///
/// Nothing else may use the database while it answers. `--check` reads the map anew after each difference.
@main struct DifferenceActor {
    static func main() throws {
        let words = Array(CommandLine.arguments.dropFirst())
        guard let path = words.first else { throw Usage() }
        var follower = try Follower(FilePath(path), checks: words.contains("--check"))
        Output.write("R\n")
        while let line = readLine() {
            if line == "poll" { try follower.poll() }
            if line == "quit" { return }
            Output.write("OK\n")
        }
    }
}

struct Usage: Error {}

enum Output {
    static func write(_ text: String) { FileHandle.standardOutput.write(Data(text.utf8)) }
}

/// A state that is kept in memory.
final class MemoryState: DatabaseState {
    var pages: [[UInt8]]

    init(_ pages: [[UInt8]]) { self.pages = pages }

    var pageCount: UInt32 { UInt32(pages.count) }

    func withBytes(of page: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        try pages[Int(page) - 1].withUnsafeBytes(body)
    }
}

/// A state as some pages over another.
final class Overlay: DatabaseState {
    let base: MemoryState
    var pages: [UInt32: [UInt8]] = [:]
    var pageCount: UInt32

    init(base: MemoryState, pageCount: UInt32) { (self.base, self.pageCount) = (base, pageCount) }

    func withBytes(of page: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        if let bytes = pages[page] { return try bytes.withUnsafeBytes(body) }
        if page <= base.pageCount { return try base.withBytes(of: page, body) }
        // SQLite needn't write a page that a transaction both takes and frees.
        try [UInt8](repeating: 0, count: base.pages.first?.count ?? 512).withUnsafeBytes(body)
    }
}

struct Follower {
    let path: FilePath
    let checks: Bool
    let shadow: MemoryState
    var map: TreeMap
    /// The salt of the log that was read, and how many of its frames.
    var log: (salt: UInt64, frames: UInt32)

    init(_ path: FilePath, checks: Bool) throws {
        self.path = path
        self.checks = checks
        let current = try Self.read(path)
        shadow = MemoryState(current.pages)
        map = try TreeMap(shadow)
        log = (current.salt, current.frameCount)
    }

    mutating func poll() throws {
        let current = try Self.read(path)
        // The commits that the log still has, one by one.
        if current.salt == log.salt, log.frames > 0 {
            var commit = Overlay(base: shadow, pageCount: shadow.pageCount)
            let known = Int(log.frames)
            for frame in current.frames.dropFirst(known) {
                commit.pages[frame.page] = frame.content
                guard frame.size != 0 else { continue }
                commit.pageCount = frame.size
                try tell("tx", commit, changed: Array(commit.pages.keys))
                commit = Overlay(base: shadow, pageCount: shadow.pageCount)
            }
        }
        log = (current.salt, current.frameCount)
        guard current.pages != shadow.pages else { return }
        let rest = Overlay(base: shadow, pageCount: UInt32(current.pages.count))
        for (index, page) in current.pages.enumerated() { rest.pages[UInt32(index + 1)] = page }
        try tell(current.isLogged ? "net" : "tx", rest, changed: Array(rest.pages.keys))
    }

    private mutating func tell(_ kind: String, _ state: Overlay, changed: [UInt32]) throws {
        var text = ""
        do {
            let difference = try map.advance(from: shadow, to: state, changed: changed.shuffled())
            // A transaction that was rolled back may have left other bytes on free pages.
            let isCommit = try !difference.tables.isEmpty || counter(of: state) != counter(of: shadow)
            text += "X \(kind) \(difference.pages.count)\n"
            for table in difference.tables {
                text += "T \(side(table.before, table)) \(side(table.after, table))\n"
                try difference.forEachRow(of: table, from: shadow, to: state) { rowid, before, after in
                    let (former, latter) = (hexadecimal(before), hexadecimal(after))
                    let operation =
                        !table.hasRowids ? (before == nil ? "i" : "d") : before == nil ? "I" : after == nil ? "D" : "U"
                    text += "\(operation) \(rowid) \(former) \(latter)\n"
                }
            }
            text += "E\n"
            for page in difference.pages {
                let content = try state.withPage(page) { Array($0) }
                if Int(page) <= shadow.pages.count {
                    shadow.pages[Int(page) - 1] = content
                } else {
                    shadow.pages.append(content)
                }
            }
            shadow.pages.removeLast(shadow.pages.count - Int(state.pageCount))
            if !isCommit { text = "" }
            if checks, try !map.isSame(as: TreeMap(shadow)) { text += "BADMAP\n" }
        } catch {
            FileHandle.standardError.write(Data("\(error)\n".utf8))
            text = "X gap 0\nE\n"
            shadow.pages = try (1...max(state.pageCount, 1)).prefix(Int(state.pageCount)).map { page in
                try state.withPage(page) { Array($0) }
            }
            map = try TreeMap(shadow)
        }
        Output.write(text)
    }

    /// The change counter.
    private func counter(of state: any DatabaseState) throws -> UInt32 {
        state.pageCount == 0 ? 0 : try state.withPage(1) { $0.word(24) }
    }

    private func side(_ entry: SchemaEntry?, _ table: PageDifference.Table) -> String {
        guard let entry else { return "- - -" }
        return "\(entry.root) \(table.hasRowids ? "r" : "w") \(hexadecimal(encoded(entry.name)))"
    }

    private func encoded(_ name: String) -> [UInt8] {
        switch map.format?.encoding {
        case .utf16LittleEndian: name.utf16.flatMap { [UInt8(truncatingIfNeeded: $0), UInt8($0 >> 8)] }
        case .utf16BigEndian: name.utf16.flatMap { [UInt8($0 >> 8), UInt8(truncatingIfNeeded: $0)] }
        default: Array(name.utf8)
        }
    }

    private func hexadecimal(_ bytes: [UInt8]) -> String { bytes.withUnsafeBytes { hexadecimal($0) } }

    private func hexadecimal(_ bytes: UnsafeRawBufferPointer?) -> String {
        guard let bytes else { return "." }
        if bytes.isEmpty { return "-" }
        let digits = Array("0123456789abcdef".utf8)
        var text: [UInt8] = []
        text.reserveCapacity(2 * bytes.count)
        for byte in bytes {
            text.append(digits[Int(byte >> 4)])
            text.append(digits[Int(byte & 15)])
        }
        return String(decoding: text, as: UTF8.self)
    }

    // MARK: - Reading

    struct Current {
        var pages: [[UInt8]]
        var isLogged = false
        var salt: UInt64 = 0
        var frameCount: UInt32 = 0
        var frames: [(page: UInt32, content: [UInt8], size: UInt32)] = []
    }

    /// Reads the database, and its log up to the last commit.
    private static func read(_ path: FilePath) throws -> Current {
        let bytes = (try? [UInt8](Data(contentsOf: URL(fileURLWithPath: path.string)))) ?? []
        guard let header = DatabaseHeader(Array(bytes.prefix(100))) else {
            return try readLog(path, Current(pages: []))
        }
        let size = header.pageSize
        let count = bytes.count / size
        var current = Current(pages: (0..<count).map { Array(bytes[$0 * size..<($0 + 1) * size]) })
        current.isLogged = header.journalMode == .writeAhead
        return try current.isLogged ? readLog(path, current) : current
    }

    private static func readLog(_ path: FilePath, _ database: Current) throws -> Current {
        var current = database
        guard let log = try? [UInt8](Data(contentsOf: URL(fileURLWithPath: path.string + "-wal"))), log.count > 32
        else { return current }
        current.isLogged = true
        let last = try lastFrame(path)
        current.salt = log.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 16, as: UInt64.self) }
        guard let last, last.salt == current.salt else { return current }
        let size = Int(log.withUnsafeBytes { $0.word(8) })
        for frame in 0..<Int(last.frame) {
            let start = 32 + frame * (24 + size)
            guard start + 24 + size <= log.count else { break }
            let (page, committed) = log.withUnsafeBytes { ($0.word(start), $0.word(start + 4)) }
            let content = Array(log[start + 24..<start + 24 + size])
            current.frames.append((page, content, committed))
            while current.pages.count < Int(page) { current.pages.append(Array(repeating: 0, count: size)) }
            current.pages[Int(page) - 1] = content
            if committed != 0, current.pages.count > Int(committed) {
                current.pages.removeLast(current.pages.count - Int(committed))
            }
        }
        current.frameCount = UInt32(current.frames.count)
        return current
    }

    /// The last frame that counts: the index's word goes, where there is one.
    private static func lastFrame(_ path: FilePath) throws -> (frame: UInt32, salt: UInt64)? {
        if let index = try? Descriptor(opening: FilePath(path.string + "-shm"), flags: O_RDONLY),
            let header = try WriteAheadIndex(index)
        {
            return (header.lastFrame, header.salt)
        }
        let path = FilePath(path.string + "-wal")
        let found = try WriteAheadLog(Descriptor(opening: path, flags: O_RDONLY), path: path)
        return (found.lastFrame, found.salt)
    }
}

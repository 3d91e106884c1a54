import Foundation
import GRDB
import LinuxSystem
import SQLiteStore
import SystemPackage
import TestSupport

@testable import RowShadow

/// A store that a connection writes, and the steps that its shadow tells.
final class FollowedShadow {
    let directory: TemporaryDirectory
    let store: FilePath
    var place: ShadowPlace { ShadowPlace(of: store, stateDirectory: directory.path.appending("state")) }
    private(set) var follower: RowFollower?
    private var told: UInt64 = 0

    init(_ sql: String, mode: String = "wal") throws {
        directory = try TemporaryDirectory()
        store = directory.path.appending("s.db")
        try write("PRAGMA journal_mode = \(mode); \(sql)")
        try open()
    }

    /// Opens a connection, runs the scripts, each a transaction or more, and closes it.
    func write(_ scripts: String...) throws {
        let queue = try DatabaseQueue(path: store.string)
        for sql in scripts { try queue.writeWithoutTransaction { try $0.execute(sql: sql) } }
        try queue.close()
    }

    /// Opens the shadow as another process would.
    func open() throws {
        follower = nil
        follower = try RowFollower(store, place.takeSlot(epoch: nil), limit: .max, within: .ample)
    }

    /// Waits until the store's logs are watched. A process has a limited number of such watches, and other tests have
    /// some of them.
    func awaitWatch() throws {
        let deadline = Deadline(after: .ample)
        while follower?.journals == nil, !deadline.hasPassed {
            pause(.milliseconds(10))
            _ = try follower?.advance(comparesAll: true)
        }
    }

    /// Ends without a sync, as a killed process does.
    func abandon() { follower = nil }

    /// Flips a bit in the last byte of page 2, where the rows of the first table are.
    func damageCopy() throws { try flipBit(of: copy.appending("pages"), at: 2 * 4096 - 1) }

    /// The directory of the copy.
    var copy: FilePath { place.path.appending("0") }

    /// Flips the lowest bit of a byte.
    func flipBit(of file: FilePath, at offset: UInt64) throws {
        let handle = try FileHandle(forUpdating: URL(fileURLWithPath: file.string))
        try handle.seek(toOffset: offset)
        let byte = try handle.read(upToCount: 1)?.first ?? 0
        try handle.seek(toOffset: offset)
        try handle.write(contentsOf: Data([byte ^ 1]))
        try handle.close()
    }

    struct Step: Equatable {
        let kind: LoggedStep.Kind
        let rows: [String]
    }

    /// Brings the shadow to the store's state, and returns the steps since the last call.
    func steps() throws -> [Step] {
        guard let follower, try follower.advance(comparesAll: false) == .current else { return [] }
        var found: [Step] = []
        while let reader = try follower.shadow.step(after: told) {
            told = reader.step.number
            var rows: [String] = []
            var (before, after): (StoredTable?, StoredTable?)
            try reader.forEach { table in
                before = try table.before.map { try StoredTable(name: $0.name, creation: $0.sql, encoding: .utf8) }
                after = try table.after.map { try StoredTable(name: $0.name, creation: $0.sql, encoding: .utf8) }
            } row: { row in
                func text(_ table: StoredTable?, _ record: [UInt8]?) -> String {
                    record.flatMap { table?.values(rowid: row.rowid, $0) }?.map(\.text).joined(separator: ",") ?? "none"
                }
                rows.append("\(row.rowid): \(text(before, row.before)) > \(text(after, row.after))")
            }
            found.append(Step(kind: reader.step.kind, rows: rows))
        }
        return found
    }
}

extension StoredValue {
    var text: String {
        switch self {
        case .null: "NULL"
        case .integer(let number): "\(number)"
        case .real(let number): "\(number)"
        case .text(let text): "'\(text)'"
        case .malformedText(let bytes), .blob(let bytes): "x\(bytes.count)"
        }
    }
}

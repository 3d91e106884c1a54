import Foundation
import GRDB
import RowChanges
import SQLiteFormat
import TestSupport

/// A state that is kept in memory.
final class MemoryState: DatabaseState {
    var pages: [[UInt8]]

    init(_ pages: [[UInt8]]) { self.pages = pages }

    var pageCount: UInt32 { UInt32(pages.count) }

    func withBytes(of page: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        try pages[Int(page) - 1].withUnsafeBytes(body)
    }
}

/// A database in rollback mode, and the difference of its pages after each script, compared with what SQL says.
final class Lockstep {
    /// The rows of a table as SQL shows them, by rowid; a table WITHOUT ROWID has them under themselves.
    typealias Rows = [String: [String]]

    let directory: TemporaryDirectory
    let queue: DatabaseQueue
    private(set) var map: TreeMap
    private(set) var state: MemoryState
    private var content: [String: Rows]

    init(pageSize: Int = 512, pragmas: String = "") throws {
        directory = try TemporaryDirectory()
        queue = try DatabaseQueue(path: directory.path.appending("s.db").string)
        try queue.writeWithoutTransaction {
            try $0.execute(sql: "PRAGMA synchronous = OFF; PRAGMA page_size = \(pageSize); \(pragmas)")
        }
        state = MemoryState([])
        map = try TreeMap(state)
        content = [:]
    }

    /// A row that differs: the values of its record in each state.
    struct Change: Equatable {
        let before: [String]?
        let after: [String]?
    }

    /// Runs a script and returns the changes of each table, by rowid. In a table WITHOUT ROWID, the key is the record.
    ///
    /// - Parameter named: Returns the pages to compare, from those that differ. They must be a superset of them.
    @discardableResult
    func run(_ sql: String, named: ([UInt32]) -> [UInt32] = { $0 }) throws -> [String: [String: Change]] {
        try queue.writeWithoutTransaction { try $0.execute(sql: sql) }
        return try compare(named: named)
    }

    private func compare(named: ([UInt32]) -> [UInt32]) throws -> [String: [String: Change]] {
        let new = try MemoryState(read())
        let common = min(new.pages.count, state.pages.count)
        let differing = (0..<common).filter { page in
            !new.pages[page].withUnsafeBytes { new in state.pages[page].withUnsafeBytes(new.hasSameBytes) }
        }.map { UInt32($0 + 1) }
        let difference = try map.advance(from: state, to: new, changed: named(differing))
        var changes: [String: [String: Change]] = [:]
        for table in difference.tables
        where table.before?.name != "sqlite_schema" && table.after?.name != "sqlite_schema" {
            let name = table.after?.name ?? table.before?.name ?? ""
            changes[name] = [:]
            try difference.forEachRow(of: table, from: state, to: new) { rowid, before, after in
                let change = try Change(before: before.map(Self.values), after: after.map(Self.values))
                let record = (change.before ?? change.after ?? []).joined(separator: ",")
                let key = table.hasRowids ? "\(rowid)" : "\(before == nil ? "+" : "-")\(record)"
                guard changes[name]?.updateValue(change, forKey: key) == nil else { throw Twice(row: key) }
            }
        }
        state = new
        guard try map.isSame(as: TreeMap(state)) else { throw WrongMap() }
        return changes
    }

    struct Twice: Error { let row: String }
    struct WrongMap: Error {}

    private static func values(_ record: UnsafeRawBufferPointer) throws -> [String] {
        guard let fields = RowRecord(record)?.fields else { throw Contradiction.malformed(page: 0) }
        return fields.map { field in
            switch field {
            case .null: "NULL"
            case .integer(let value): "\(value)"
            case .real(let value): "\(value)"
            case .text(let bytes): String(decoding: bytes, as: UTF8.self)
            case .blob(let bytes): "x\(bytes.count):" + bytes.prefix(4).map { String($0, radix: 16) }.joined()
            }
        }
    }

    private func read() throws -> [[UInt8]] {
        let bytes = try [UInt8](Data(contentsOf: URL(fileURLWithPath: queue.path)))
        guard let header = DatabaseHeader(Array(bytes.prefix(100))) else { return [] }
        return stride(from: 0, to: bytes.count, by: header.pageSize).map { Array(bytes[$0..<$0 + header.pageSize]) }
    }

    // MARK: - What SQL says

    /// Runs a script, and compares the changes of each table that the script neither makes, drops nor alters with SQL's
    /// rows before and after it.
    func check(_ sql: String) throws -> [String] {
        let before = content
        let changes = try run(sql)
        content = try queue.read(Self.content)
        var problems: [String] = []
        for (table, after) in content {
            guard let former = before[table] else { continue }
            var wanted: Set<String> = []
            for key in Set(former.keys).union(after.keys) where former[key] != after[key] { wanted.insert(key) }
            let found = Set(changes[table, default: [:]].filter { $0.value.before != $0.value.after }.keys)
            if found != wanted {
                problems.append(
                    "\(table): \(found.symmetricDifference(wanted).sorted().prefix(5)) after \(sql.prefix(200))")
            }
            for key in found {
                let change = changes[table]?[key]
                if change?.before != former[key] || change?.after != after[key] {
                    problems.append("\(table) \(key): \(String(describing: change)) after \(sql.prefix(200))")
                }
            }
        }
        return problems
    }

    /// The content of all rowid tables, whose columns have no alias of the rowid.
    private static func content(_ db: Database) throws -> [String: Rows] {
        var content: [String: Rows] = [:]
        for table in try String.fetchAll(db, sql: "SELECT name FROM sqlite_schema WHERE type = 'table'") {
            var rows: Rows = [:]
            for row in try Row.fetchAll(db, sql: "SELECT rowid, * FROM \"\(table)\"") {
                rows["\(row[0] as Int64)"] = row.databaseValues.dropFirst().map { value in
                    switch value.storage {
                    case .null: "NULL"
                    case .int64(let value): "\(value)"
                    case .double(let value): "\(value)"
                    case .string(let text): text
                    case .blob(let data):
                        "x\(data.count):" + data.prefix(4).map { String($0, radix: 16) }.joined()
                    }
                }
            }
            content[table] = rows
        }
        return content
    }
}

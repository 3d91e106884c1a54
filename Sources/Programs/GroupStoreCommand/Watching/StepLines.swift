import AgentProtocol
import CommandSupport
import Glibc
import GroupStoreAgent
import RowShadow
import SQLiteStore

/// The lines of one step, written in large pieces: a step may have millions of rows.
struct StepLines: StepRowReceiver {
    /// What is printed of a store's steps.
    struct Form {
        /// The member `store` of the lines.
        let store: [UInt8]
        /// True if there are lines of batches and tables, too.
        var listsTables = true
        /// True if rows have their values.
        let values: Bool
        /// The only operations to print; nil for all.
        let operations: Set<String>?
        /// Nil for the lines of a change batch.
        let envelope: DebeziumEnvelope?
    }

    private let form: Form
    private let output: Output
    private let step: LoggedStep
    /// The start of the shadow's tokens.
    private let shadow: String
    private var bytes: [UInt8] = []
    /// The lines that are added before the next row: a table may have no row that is to be printed.
    private var batchLine: [UInt8] = []
    private var tableLine: [UInt8] = []
    /// True if something was added: a row, or a table whose definition has changed.
    private(set) var hasContent = false
    /// The members of each row's line before its number, and those of the step after its values.
    private let start: [UInt8]
    private let end: [UInt8]
    private var table: [UInt8] = []
    private var columns: [[UInt8]] = []
    /// The number of the row that was counted last.
    private(set) var number: UInt64
    /// The number of rows that were added.
    private(set) var count = 0

    private static let limit = 1 << 16

    init(_ form: Form, _ output: Output, step: LoggedStep, shadow: String) {
        self.form = form
        self.output = output
        self.step = step
        self.shadow = shadow
        number = step.firstRow - 1
        start = Array(Self.line("row", form.store).text.utf8.dropLast()) + Array(",\"number\":".utf8)
        let known: JSONObject = step.kind == .exact ? ["exact": true] : ["exact": false, "net": true]
        var transaction = known
        transaction["id"] = .integer(Int64(step.number))
        let members: JSONObject = ["time": .time(step.time), "transaction": .object(transaction)]
        end = [UInt8(ascii: ",")] + Array(members.text.utf8.dropFirst()) + [0x0A]
    }

    private static func line(_ type: String, _ store: [UInt8]) -> JSONObject {
        var object: JSONObject = ["type": .string(type)]
        object.setPath("store", bytes: store)
        return object
    }

    /// Adds the first line.
    mutating func addBatch(from token: String, _ encoding: TextEncoding) {
        guard output.json, form.listsTables, form.envelope == nil else { return }
        var object = Self.line("batch", form.store)
        object["from"] = .string(token)
        object["schema"] = .string("\(step.schemaVersion)")
        object["encoding"] = .string(encoding.rawValue)
        object["unrecorded"] = .array([])
        batchLine = Self.bytes(object)
    }

    /// Adds the line before the rows of a table. If its definition has changed, the line has what it was before.
    mutating func add(_ table: StepTable) {
        guard let present = table.present else { return }
        self.table = Array(JSONValue.string(table.logged.name).text.utf8)
        columns = present.columns.map { Array(JSONValue.string($0).text.utf8) }
        let isAltered = table.logged.before != table.logged.after
        defer { if isAltered { addHead() } }
        guard output.json, form.listsTables, form.envelope == nil else { return }
        var object = Self.line("table", form.store)
        for member in table.definition?.members ?? [] { object[member.key] = member.value }
        tableLine = Self.bytes(object)
    }

    private static func bytes(_ object: JSONObject) -> [UInt8] { Array(object.text.utf8) + [0x0A] }

    /// Adds the lines that stand before the next one.
    private mutating func addHead() {
        hasContent = true
        bytes += batchLine
        bytes += tableLine
        (batchLine, tableLine) = ([], [])
    }

    /// Counts a row of the step, which may not be printed.
    mutating func countRow() { number += 1 }

    /// Adds a row, unless its values are the same.
    mutating func addRow(
        _ table: StepTable, _ key: [StoredValue], before: [StoredValue]?, after: [StoredValue]?, number: UInt64
    ) {
        let isSame = before.flatMap { former in after.map { table.sameColumns(former, $0) } }
        if let isSame, isSame.allSatisfy({ $0 }) { return }
        let operation = before == nil ? "insert" : after == nil ? "delete" : "update"
        guard form.operations?.contains(operation) ?? true else { return }
        addHead()
        count += 1
        if let envelope = form.envelope {
            bytes += Self.bytes(
                envelope.json(
                    EnvelopeRow(table, key, before: before, after: after, number: number, of: step), history: shadow))
            return flushIfFull()
        }
        guard output.json else { return addForPeople(table, operation, key, after) }
        bytes += start
        bytes += "\(number),\"table\":".utf8
        bytes += self.table
        bytes += ",\"op\":\"\(operation)\",\"key\":".utf8
        if key.count == 1 { ValueJSON.append(key[0], to: &bytes) } else { append(key) }
        if form.values, let after {
            bytes += ",\"values\":".utf8
            append(after)
        }
        if form.values, table.hasSameColumns, let before {
            bytes += ",\"before\":".utf8
            append(before)
        }
        if let isSame {
            bytes += ",\"columns\":[".utf8
            var isFirst = true
            for place in isSame.indices where !isSame[place] {
                if !isFirst { bytes.append(UInt8(ascii: ",")) }
                isFirst = false
                bytes += columns[place]
            }
            bytes.append(UInt8(ascii: "]"))
        }
        bytes += end
        flushIfFull()
    }

    private mutating func append(_ values: [StoredValue]) {
        bytes.append(UInt8(ascii: "["))
        for (place, value) in values.enumerated() {
            if place > 0 { bytes.append(UInt8(ascii: ",")) }
            ValueJSON.append(value, to: &bytes)
        }
        bytes.append(UInt8(ascii: "]"))
    }

    private func addForPeople(
        _ table: StepTable, _ operation: String, _ key: [StoredValue], _ after: [StoredValue]?
    ) {
        var words = [operation, table.logged.name, key.map(\.json.text).joined(separator: ",")]
        if form.values, let after, let present = table.present {
            words += zip(present.columns, after).map { "\($0)=\($1.json.text)" }
        }
        output.record([:], "  " + words.joined(separator: "  "))
    }

    private mutating func flushIfFull() { if bytes.count >= Self.limit { flush() } }

    /// Returns the lines that were added and not written yet.
    mutating func takeRest() -> [UInt8] {
        let rest = bytes
        bytes = []
        return rest
    }

    /// Writes the lines that were added.
    mutating func flush() {
        if !bytes.isEmpty { Output.write(encoded: bytes[...]) }
        bytes.removeAll(keepingCapacity: true)
    }
}

extension EnvelopeRow {
    /// The row of a step.
    fileprivate init(
        _ table: StepTable, _ key: [StoredValue], before: [StoredValue]?, after: [StoredValue]?, number: UInt64,
        of step: LoggedStep
    ) {
        let keyNames = table.present?.key ?? []
        self.init(
            table: table.logged.name, entity: nil, number: Int64(clamping: number), time: step.time,
            key: (keyNames.isEmpty ? ["rowid"] : keyNames, key),
            before: before.map { (table.before?.columns ?? [], $0) },
            after: after.map { (table.after?.columns ?? [], $0) },
            letter: before == nil ? "c" : after == nil ? "d" : "u", author: nil,
            transaction: step.kind == .exact ? Int64(clamping: step.number) : nil, isNet: step.kind == .net)
    }
}

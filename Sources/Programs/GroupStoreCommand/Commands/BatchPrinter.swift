import AgentProtocol
import CommandSupport
import FoundationEssentials
import GroupStoreAgent
import LinuxSystem
import PersistentHistory
import SQLiteStore

/// The lines of a change batch.
struct BatchPrinter {
    private let format: BatchFormat
    private let wireLines: Bool
    private let output: Output
    private let envelope: DebeziumEnvelope
    /// The tables that have their line.
    private var announced: Set<Int> = []

    init(format: BatchFormat, wireLines: Bool, output: Output, database: String) {
        (self.format, self.wireLines, self.output) = (format, wireLines, output)
        envelope = DebeziumEnvelope(database: database)
    }

    func opening(_ batch: ChangeBatch, from start: HistoryToken) -> [UInt8] {
        guard format == .standard else { return [] }
        if output.json { return encoded(batch.json(from: start)) }
        let others = batch.unrecorded.joined(separator: ", ")
        return output.quiet || others.isEmpty ? [] : encoded("not recorded: \(others)")
    }

    mutating func lines(_ row: ChangedRow, of batch: ChangeBatch) -> [UInt8] {
        let table = batch.tables[row.table]
        switch format {
        case .debezium: return encoded(envelope.json(EnvelopeRow(row, of: table), history: batch.identifier))
        case .standard where output.json:
            let isNew = announced.insert(row.table).inserted
            return (isNew ? encoded(table.json) : []) + encoded(row.json(of: table))
        case .standard: return output.quiet ? [] : encoded(Self.text(row, table))
        }
    }

    private func encoded(_ object: JSONObject) -> [UInt8] {
        wireLines ? WireLine.wholeLines(object).flatMap(\.self) : Array(object.text.utf8) + [0x0A]
    }

    private func encoded(_ line: String) -> [UInt8] { Array(PrintableText(line).description.utf8) + [0x0A] }

    private static func text(_ row: ChangedRow, _ table: BatchTable) -> String {
        let values = row.values ?? []
        var words = [
            "\(row.number)", "\(LocalTime(row.time, precise: true))", row.operation.word, table.entity ?? table.name,
            row.key.map(text).joined(separator: ","),
        ]
        for (index, value) in values.enumerated() {
            words.append("\(table.label(index))=\(text(value))")
        }
        for (relationship, rows) in zip(table.toMany, row.toMany) {
            let keys = rows.compactMap { $0.first.map(text) }.joined(separator: ",")
            words.append("\(relationship.relationship)=[\(keys)]")
        }
        if let author = row.author { words.append("by \(author)") }
        return words.joined(separator: "  ")
    }

    private static func text(_ value: StoredValue) -> String {
        String(JSONObject(dictionaryLiteral: ("", value.json)).text.dropFirst(4).dropLast())
    }
}

extension BatchTable {
    /// The name of a column, or of the property that it belongs to.
    fileprivate func label(_ index: Int) -> String {
        guard properties.indices.contains(index), case .some(let property) = properties[index] else {
            return columns[index]
        }
        switch property {
        case .attribute(let name, _), .reference(let name, _): return name
        case .entity, .order: return columns[index]
        }
    }
}

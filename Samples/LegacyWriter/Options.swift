/// The command line's options.
struct Options {
    static let usage =
        "usage: LegacyWriter STORE [--rows N] [--rate ROWS_PER_SECOND] [--rollback-journal] [--leave-wal]"

    struct Problem: Error, CustomStringConvertible {
        let description: String
    }

    let store: String
    private(set) var rows = 10
    /// The pause between two rows in microseconds; nil to write as fast as rows are committed.
    private(set) var pause: UInt32?
    private(set) var journalMode = "WAL"
    /// True to exit without a checkpoint, like a killed app.
    private(set) var leavesWAL = false

    init(_ arguments: ArraySlice<String>) throws(Problem) {
        var rest = arguments
        guard let store = rest.popFirst(), !store.hasPrefix("-") else { throw Problem(description: Self.usage) }
        self.store = store
        while let option = rest.popFirst() {
            switch option {
            case "--rows": rows = try Self.number(option, rest.popFirst(), in: 1...1_000_000_000)
            case "--rate": pause = UInt32(1_000_000 / (try Self.number(option, rest.popFirst(), in: 1...1_000_000)))
            case "--rollback-journal": journalMode = "DELETE"
            case "--leave-wal": leavesWAL = true
            default: throw Problem(description: "unknown option \(option); \(Self.usage)")
            }
        }
        guard journalMode == "WAL" || !leavesWAL else {
            throw Problem(description: "--rollback-journal and --leave-wal exclude each other")
        }
    }

    private static func number(_ option: String, _ text: String?, in range: ClosedRange<Int>) throws(Problem) -> Int {
        guard let text, let number = Int(text), range.contains(number) else {
            throw Problem(description: "\(option) takes a number from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }
}

import AgentProtocol
import CommandSupport
import SQLiteFormat
import SQLiteStore

extension Output {
    /// Says that a store is read without the write-ahead log beside it, if that is another database's.
    func noteForeignLog(beside location: StoreLocation) {
        // What can't be read is reported by the command itself.
        guard let log = try? location.foreignLog() else { return }
        let text = "\(log.description); it isn't read"
        record(["type": "note", "text": .string(text)], "note: \(text)")
    }
}

import LinuxSystem
import RelayStatus
import SystemPackage

/// Keeps the record of this program's state, and writes it at most once a second.
final class StatusWriter {
    private let directory: FilePath?
    private var written: RelayRecord?
    private var lastWrite: ContinuousClock.Instant?
    var record: RelayRecord

    /// - Parameter directory: The directory of the records; nil to write none.
    init(_ record: RelayRecord, in directory: FilePath?) {
        self.record = record
        self.directory = directory
    }

    /// Notes the number of missing changes, and since when there are any.
    func setLag(_ lag: Int64) {
        record.lag = lag
        record.behindSince = lag > 0 ? record.behindSince ?? RelayRecord.now : nil
    }

    func setFailure(_ error: any ActionableError) {
        record.failure = .init(code: error.errorCode, message: error.fullMessage, time: RelayRecord.now)
    }

    /// Notes that the program waits for the end of an error's cause.
    func setWaiting(_ error: any ActionableError) {
        setFailure(error)
        record.state = error.errorCode
        write(force: true)
    }

    /// True if the record has changed since it was written.
    var isPending: Bool { directory != nil && written != record }

    /// Writes the record if it has changed, unless that was done less than a second ago. The record is a courtesy: no
    /// work waits for it, and none fails with it.
    func write(force: Bool = false) {
        guard let directory, isPending else { return }
        if !force, let lastWrite, lastWrite.duration(to: .now) < .seconds(1) { return }
        lastWrite = .now
        written = record
        var dated = record
        dated.updated = RelayRecord.now
        try? dated.write(to: directory)
    }

    /// Keeps the record if there is an error, and removes it otherwise.
    func end(with error: (any ActionableError)?) {
        record.server = nil
        guard let error else {
            if let directory { record.remove(from: directory) }
            return
        }
        record.state = error.errorCode
        setFailure(error)
        write(force: true)
    }
}

import Foundation
import GroupStore
import GroupStoreGRDB
import Synchronization

/// One line that the driver reads: an answer has an `id`, anything else an `event`. `at` is CLOCK_MONOTONIC's time in
/// seconds. All processes share that clock, so the driver uses it to judge which events happened within which.
struct Report: Encodable, Sendable {
    var id: Int?
    var event: String?
    var ok: Bool?
    var key: String?
    var what: String?
    var path: String?
    var paths: [String]?
    var token: String?
    var count: Int?
    var rows: [String]?
    var code: String?
    var kind: String?
    var message: String?
    var holders: [Int32]?
    var at: Double = Report.now

    static var now: Double {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    private static let output = Mutex(JSONEncoder())

    /// Writes the line at once.
    func send() {
        Self.output.withLock { encoder in
            guard var line = try? encoder.encode(self) else { return }
            line.append(0x0A)
            FileHandle.standardOutput.write(line)
        }
    }

    /// Returns the report with the error's description added.
    func with(_ error: any Error) -> Report {
        var report = self
        report.ok = false
        report.message = String(describing: error)
        switch error {
        case let error as GroupStoreError:
            (report.kind, report.code) = ("GroupStoreError", error.code.rawValue)
        case let error as FileCoordinationError:
            (report.kind, report.code) = ("FileCoordinationError", error.code.rawValue)
            report.holders = error.holders.map(\.pid)
        case is SharedDatabasePool.Unavailable:
            report.kind = "Unavailable"
        default:
            report.kind = String(describing: type(of: error))
        }
        return report
    }
}

/// Values by the names that the driver gave them.
final class Shelf<Value: Sendable>: Sendable {
    private let values = Mutex<[String: Value]>([:])

    func put(_ value: Value, as key: String) { values.withLock { $0[key] = value } }

    func take(_ key: String) -> Value? { values.withLock { $0.removeValue(forKey: key) } }

    func find(_ key: String) -> Value? { values.withLock { $0[key] } }

    /// Returns the value of that name; throws if there is none.
    func get(_ key: String) throws -> Value {
        guard let value = find(key) else { throw Complaint(message: "there is no \(key)") }
        return value
    }

    /// Returns the value of that name, and creates it if there is none.
    func get(_ key: String, or make: () throws -> Value) throws -> Value {
        try values.withLock { values in
            if let value = values[key] { return value }
            let value = try make()
            values[key] = value
            return value
        }
    }
}

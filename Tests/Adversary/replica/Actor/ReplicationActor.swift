import Foundation
import LinuxSystem
import PersistentHistory
import SQLiteFormat
import StoreReplication
import SystemPackage

/// Reads and writes batches and snapshots for the testers: `ReplicationActor COMMAND ARGUMENTS`.
///
///     source STORE [DIRECTORY]        commands on stdin: batch TOKEN SIZE | current | oldest | check TOKEN |
///                                     snapshot FILE; with a mirror in the directory
///     snapshot STORE FILE             prints size sha256 upto schema
///     create REPLICA STREAM FILE SIZE SHA256 UPTO SCHEMA
///     replace REPLICA STREAM FILE SIZE SHA256 UPTO SCHEMA
///     follow REPLICA STREAM           parts on stdin, an outcome a line on stdout
///     promote REPLICA
///
/// A part is a line `part NUMBER LAST FROM UPTO SCHEMA SIZE` and so many bytes. An answer is a line whose first word
/// says what happened; an error is `error CODE MESSAGE`.
@main struct ReplicationActor {
    static func main() {
        let words = Array(CommandLine.arguments.dropFirst())
        do {
            try run(words)
        } catch {
            answer(describe(error))
            exit(1)
        }
    }

    static func describe(_ error: any Error) -> String {
        switch error {
        case let reason as StoreHistory.Discontinuity: "discontinuity \(reason.rawValue)"
        case let error as any ActionableError: "error \(error.errorCode) \(PrintableText(error.fullMessage))"
        default: "error unknown \(error)"
        }
    }

    private static func run(_ words: [String]) throws {
        guard words.count > 1 else { throw Usage() }
        let location = try location(words[1])
        switch (words[0], words.count) {
        case ("source", 2): try publish(ReplicationSource(location))
        case ("source", 3):
            let mirror = try StoreMirror(of: location, in: FilePath(words[2]))
            try publish(ReplicationSource(mirror), mirror)
        case ("snapshot", 3):
            let made = try Snapshot.make(of: location, at: FilePath(words[2]))
            answer("snapshot \(made.size) \(made.sha256) \(made.upto) \(made.schema)")
        case ("create", 8):
            let replica = try Replica.create(location, from: snapshot(words), stream: words[2])
            answer("created \(replica.position)")
        case ("replace", 8):
            let replica = try Replica(opening: location, stream: words[2])
            try replica.replace(with: snapshot(words))
            answer("replaced \(replica.position)")
        case ("follow", 3): try follow(Replica(opening: location, stream: words[2]))
        case ("promote", 2): answer("promoted \(try Replica.promote(location))")
        default: throw Usage()
        }
    }

    struct Usage: Error {}

    private static func location(_ path: String) throws -> StoreLocation {
        let path = FilePath(path)
        guard let name = path.lastComponent.flatMap(StoreName.init) else { throw Usage() }
        return StoreLocation(directory: try Directory(path.removingLastComponent()), name: name)
    }

    private static func snapshot(_ words: [String]) throws -> Snapshot {
        guard let size = Int64(words[4]), let upto = HistoryToken(words[6]) else { throw Usage() }
        return Snapshot(path: FilePath(words[3]), size: size, sha256: words[5], upto: upto, schema: words[7])
    }

    private static func publish(_ source: ReplicationSource, _ mirror: StoreMirror? = nil) throws {
        while let line = readLine() {
            let words = line.split(separator: " ").map(String.init)
            // Nothing tells it of other writes.
            mirror?.recordOtherWrites()
            do {
                switch (words.first, words.count) {
                case ("batch", 3):
                    guard let token = HistoryToken(words[1]), let size = Int(words[2]) else { throw Usage() }
                    let upto = try source.batch(after: token, maxPartSize: size) { part in
                        answer(
                            "part \(part.number) \(part.isLast ? 1 : 0) \(part.from) \(part.upto) \(part.schema) "
                                + "\(part.body.count)")
                        FileHandle.standardOutput.write(Data(part.body))
                    }
                    answer(upto.map { "batch \($0)" } ?? "nothing")
                case ("current", 1): answer("token \(try source.current())")
                case ("oldest", 1): answer("token \(try source.oldest())")
                case ("check", 2):
                    guard let token = HistoryToken(words[1]) else { throw Usage() }
                    try source.check(token)
                    answer("valid")
                case ("snapshot", 2):
                    try source.prove()
                    source.close()
                    let made = try Snapshot.make(of: source.location, at: FilePath(words[1]))
                    answer("snapshot \(made.size) \(made.sha256) \(made.upto) \(made.schema)")
                case ("acknowledge", 3):
                    guard let token = HistoryToken(words[1]) else { throw Usage() }
                    try source.acknowledge(token, by: words[2])
                    answer("acknowledged")
                default: throw Usage()
                }
            } catch {
                answer(describe(error))
            }
        }
    }

    private static func follow(_ replica: Replica) throws {
        answer("position \(replica.position) \(replica.schema)")
        var input = Input()
        while let line = input.line() {
            let words = line.split(separator: " ").map(String.init)
            do {
                guard words.count == 7, words[0] == "part", let number = Int(words[1]),
                    let from = HistoryToken(words[3]), let upto = HistoryToken(words[4]), let size = Int(words[6])
                else { throw Usage() }
                guard let body = input.bytes(size) else { return }
                let outcome = try replica.apply(
                    BatchPart(
                        number: number, isLast: words[2] == "1", from: from, upto: upto, schema: words[5], body: body))
                switch outcome {
                case .applied(let token): answer("applied \(token)")
                default: answer("\(outcome)")
                }
            } catch {
                answer(describe(error))
            }
        }
    }

    private static func answer(_ line: String) {
        FileHandle.standardOutput.write(Data((line + "\n").utf8))
    }
}

/// The standard input, line by line or in so many bytes.
private struct Input {
    private var waiting: [UInt8] = []
    private var start = 0

    mutating func line() -> String? {
        while true {
            if let end = waiting[start...].firstIndex(of: 0x0A) {
                defer { start = end + 1 }
                return String(decoding: waiting[start..<end], as: UTF8.self)
            }
            guard more() else { return nil }
        }
    }

    mutating func bytes(_ count: Int) -> [UInt8]? {
        while waiting.count - start < count { guard more() else { return nil } }
        defer { start += count }
        return Array(waiting[start..<start + count])
    }

    private mutating func more() -> Bool {
        waiting.removeFirst(start)
        start = 0
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        let count = read(0, &buffer, buffer.count)
        guard count > 0 else { return false }
        waiting += buffer[..<count]
        return true
    }
}

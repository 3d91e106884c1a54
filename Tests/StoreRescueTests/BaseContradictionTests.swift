import SQLiteFormat
import Testing

@testable import StoreRescue

/// Which times and logs contradict that a database is the last state that a store and its branches had.
@Suite struct BaseContradictionTests {
    private static let second: Int64 = 1_000_000_000

    /// The first bytes of a database in WAL mode.
    private static func header(_ counter: UInt32 = 7, valid: UInt32? = nil) -> DatabaseHeader? {
        var bytes = DatabaseHeader.magic + [16, 0, 2, 2] + [UInt8](repeating: 0, count: 80)
        for (offset, value) in [(24, counter), (92, valid ?? counter)] {
            bytes.replaceSubrange(offset..<offset + 4, with: withUnsafeBytes(of: value.bigEndian, Array.init))
        }
        return DatabaseHeader(bytes)
    }

    private static func log(
        birth: Int64? = 20, changed: Int64 = 35, salts: Set<UInt64> = [1], header: DatabaseHeader? = header(8),
        isEmpty: Bool = false, mismatch: LogMismatch? = nil, indexAge: Int64? = 0, isRestarted: Bool = false,
        isCheckpointed: Bool = false, commit: UInt32? = nil
    ) -> BaseContradiction.Log {
        let commit = FrameChecksum(commit ?? UInt32(salts.reduce(0, +)), 0)
        return .init(
            birth: birth.map { $0 * second }, changed: changed * second, isRestarted: isRestarted,
            isCheckpointed: isCheckpointed,
            origin: isEmpty ? nil : .init(salts: salts, firstCommit: commit, header: header), mismatch: mismatch,
            indexBirth: indexAge.flatMap { age in birth.map { ($0 + age) * second } })
    }

    private static func check(
        birth: Int64? = 5, changed: Int64 = 10, header: DatabaseHeader? = header(), _ logs: BaseContradiction.Log...,
        now: Int64 = 40
    ) -> BaseContradiction {
        .init(
            database: .init(birth: birth.map { $0 * second }, changed: changed * second, header: header), logs: logs,
            now: now * second)
    }

    @Test func takesADatabaseThatNobodyHasWrittenToSinceItsLogsWereMade() {
        #expect(Self.check(Self.log()).reason == nil)
        #expect(Self.check(Self.log(), Self.log(birth: 30, salts: [2])).reason == nil)
        let empty = Self.log(isEmpty: true, indexAge: nil)
        #expect(Self.check(empty, empty, Self.log()).reason == nil)
        #expect(Self.check(Self.log(birth: 13)).reason == nil)
        // A log of small commits, without page 1.
        #expect(Self.check(Self.log(header: nil), Self.log(salts: [2])).reason == nil)
    }

    @Test(arguments: [
        // Written after a log was made, or so shortly before that a clock may have been set back.
        (Self.check(Self.log(birth: 9)), "written"), (Self.check(Self.log(birth: 12)), "written"),
        (Self.check(Self.log(), Self.log(birth: 11)), "written"),
        // No creation times.
        (Self.check(birth: nil, Self.log()), "creation times"),
        (Self.check(Self.log(), Self.log(birth: nil)), "creation times"),
        // Times in the future, before 1970, or before the file was made.
        (Self.check(changed: 41, Self.log(birth: 50)), "contradict"), (Self.check(Self.log(changed: 41)), "contradict"),
        (Self.check(birth: -1, Self.log()), "contradict"), (Self.check(birth: 11, Self.log()), "contradict"),
        (Self.check(Self.log(changed: 19)), "contradict"),
        // A log that another one was copied from, or into.
        (Self.check(Self.log(), Self.log(birth: 30)), "same commits"),
        (Self.check(Self.log(), Self.log(salts: [2], commit: 1)), "same commits"),
        (Self.check(Self.log(), Self.log(salts: [2, 1])), "same commits"),
        (Self.check(Self.log(salts: [1, 2])), "another"),
        (Self.check(Self.log(indexAge: nil)), "no index"), (Self.check(Self.log(indexAge: -1)), "in one go"),
        (Self.check(Self.log(indexAge: 15)), "in one go"),
        // Logs of another state.
        (Self.check(Self.log(header: Self.header(7))), "another state"),
        (Self.check(Self.log(header: Self.header(9))), "another state"),
        (Self.check(Self.log(), Self.log(salts: [2], header: Self.header(7))), "another state"),
        (Self.check(Self.log(header: Self.header(8, valid: 7))), "another state"),
        (Self.check(header: Self.header(valid: 6), Self.log()), "another state"),
        (Self.check(header: nil, Self.log()), "another state"),
        (Self.check(Self.log(mismatch: .schema)), "another state"),
        // Checkpoints, whatever the times.
        (Self.check(Self.log(isRestarted: true)), "checkpointed"),
        (Self.check(Self.log(), Self.log(isCheckpointed: true)), "checkpointed"),
    ])
    func refusesAnythingElse(check: BaseContradiction, reason: String) {
        #expect(check.reason?.contains(reason) == true, "\(check.reason ?? "none")")
    }
}

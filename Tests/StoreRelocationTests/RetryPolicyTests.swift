import LinuxSystem
import SQLiteStore
import SystemPackage
import Testing

@testable import StoreRelocation

@Suite struct RetryPolicyTests {
    private typealias Reason = StoreTransfer.RetryReason

    private static let file = FileIdentity(device: 1, inode: 2)
    private let store: FilePath = "/old/Notes.sqlite"

    private func policy(_ deadline: Duration = .seconds(60), isCancelled: Bool = false) -> RetryPolicy {
        RetryPolicy(Deadline(after: deadline), isCancelled: { isCancelled })
    }

    private static let repeated: [(RetryPolicy.Scope, any Error)] = [
        (.lock, RetryPolicy.GroupLockHeld()),
        (.run, Reason.held(file)), (.run, Reason.changed), (.run, Reason.gone),
        (.release, RetryPolicy.StoreOpen()),
        (.plan, Reason.gone),
        (.inspection, StoreWithdrawn(path: "/old/Notes.sqlite", hidden: nil)), (.inspection, StoreError.missing("/a")),
        (.attempt, Reason.held(file)), (.attempt, Reason.changed),
    ]

    @Test(arguments: repeated.indices) func repeatsAfterInterference(_ index: Int) {
        let (scope, error) = Self.repeated[index]
        #expect(scope.repeats(after: error))
    }

    /// An inner scope leaves to the outer ones what it can't repair itself.
    @Test func leavesOtherErrorsToTheOuterScope() {
        #expect(!RetryPolicy.Scope.attempt.repeats(after: Reason.gone))
        #expect(!RetryPolicy.Scope.plan.repeats(after: Reason.held(Self.file)))
        #expect(!RetryPolicy.Scope.plan.repeats(after: Reason.changed))
        let isFinal: [any Error] = [
            RelocationFailure.cancelled("/a"), SystemError("write", .noSpace, path: "/a"),
            StoreTransfer.Unfinished(path: "/a", reason: Reason.changed),
        ]
        for scope in RetryPolicy.Scope.allCases {
            for error in isFinal { #expect(!scope.repeats(after: error), "\(scope) after \(error)") }
        }
    }

    /// Another relocation gets the group's lock while this one waits for a program.
    @Test func pausesLongerThanOthersPollTheLock() {
        var lock = RetryPolicy.Scope.lock.backoff
        let longest = (0..<20).map { _ in lock.next() }.max()
        #expect(longest == .milliseconds(20))
        #expect(RetryPolicy.Scope.run.backoff.delay > .milliseconds(20))
    }

    @Test func returnsTheFirstResult() throws {
        var attempts = 0
        var waits: [Duration] = []
        let result = try policy().run(.attempt, of: store, willWait: { _, delay in waits.append(delay) }) {
            attempts += 1
            guard attempts == 4 else { throw Reason.changed }
            return attempts
        }
        #expect(result == 4)
        #expect(waits == [50, 100, 200].map { .microseconds($0) })
    }

    @Test func throwsTheLastErrorAtTheDeadline() {
        var attempts = 0
        #expect(throws: Reason.held(Self.file)) {
            try policy(.seconds(1)).run(.attempt, of: store) {
                attempts += 1
                throw attempts == 1 ? Reason.changed : Reason.held(Self.file)
            }
        }
        #expect(attempts > 1)
    }

    @Test func triesOnceAfterTheDeadline() {
        var attempts = 0
        #expect(throws: Reason.changed) {
            try policy(.zero).run(.run, of: store) {
                attempts += 1
                throw Reason.changed
            }
        }
        #expect(attempts == 1)
    }

    @Test func stopsWhenCancelled() throws {
        let cancelled = policy(isCancelled: true)
        let failure = #expect(throws: RelocationFailure.self) {
            try cancelled.run(.attempt, of: store) { throw Reason.changed }
        }
        #expect(failure?.code == "cancelled")
        #expect(failure?.message.contains("/old/Notes.sqlite") == true)
        #expect(throws: Reason.changed) {
            try RetryPolicy(Deadline(after: .zero), isCancelled: { true }).ignoringCancellation
                .run(.attempt, of: store) { throw Reason.changed }
        }
    }

    @Test func givesUpBeforeAWait() {
        var attempts = 0
        #expect(throws: Reason.changed) {
            try policy().run(.attempt, of: store, willWait: { error, _ in if attempts == 3 { throw error } }) {
                attempts += 1
                throw Reason.changed
            }
        }
        #expect(attempts == 3)
    }

    @Test func leavesConflictsAndBadDataAlone() {
        for (kind, isTransient) in [
            (RelocationFailure.Kind.conflict, false), (.badData, false), (.unusablePlace, true), (.notPermitted, true),
            (.failed, true), (.busy, true),
        ] {
            #expect(RelocationFailure(kind, code: "x", "x", remedy: "x").isTransient == isTransient)
        }
    }
}

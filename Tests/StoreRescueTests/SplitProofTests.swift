import Testing

@testable import StoreRescue

/// Which times and logs prove that a database is the last state that a store and its branches had.
@Suite struct SplitProofTests {
    private static let second: Int64 = 1_000_000_000

    private static func log(
        birth: Int64? = 20, changed: Int64 = 30, isRestarted: Bool = false, isCheckpointed: Bool = false
    ) -> SplitProof.Log {
        .init(
            birth: birth.map { $0 * second }, changed: changed * second, isRestarted: isRestarted,
            isCheckpointed: isCheckpointed)
    }

    private static func proof(birth: Int64? = 5, changed: Int64 = 10, _ logs: SplitProof.Log..., now: Int64 = 40)
        -> SplitProof
    {
        .init(
            database: .init(birth: birth.map { $0 * second }, changed: changed * second), logs: logs, now: now * second)
    }

    @Test func provesADatabaseThatNobodyHasWrittenToSinceItsLogsWereMade() {
        #expect(Self.proof(Self.log()).obstacle == nil)
        #expect(Self.proof(Self.log(), Self.log(birth: 30)).obstacle == nil)
        #expect(Self.proof(Self.log(birth: 13)).obstacle == nil)
    }

    @Test(arguments: [
        // Written after a log was made, or so shortly before that a clock may have been set back.
        (Self.proof(Self.log(birth: 9)), "written"), (Self.proof(Self.log(birth: 12)), "written"),
        (Self.proof(Self.log(), Self.log(birth: 11)), "written"),
        // No creation times.
        (Self.proof(birth: nil, Self.log()), "creation times"),
        (Self.proof(Self.log(), Self.log(birth: nil)), "creation times"),
        // Times in the future, before 1970, or before the file was made.
        (Self.proof(changed: 41, Self.log(birth: 50)), "contradict"), (Self.proof(Self.log(changed: 41)), "contradict"),
        (Self.proof(birth: -1, Self.log()), "contradict"), (Self.proof(birth: 11, Self.log()), "contradict"),
        (Self.proof(Self.log(changed: 19)), "contradict"),
        // Checkpoints, whatever the times.
        (Self.proof(Self.log(isRestarted: true)), "checkpointed"),
        (Self.proof(Self.log(), Self.log(isCheckpointed: true)), "checkpointed"),
    ])
    func provesNothingElse(proof: SplitProof, reason: String) {
        #expect(proof.obstacle?.contains(reason) == true, "\(proof.obstacle ?? "none")")
    }
}

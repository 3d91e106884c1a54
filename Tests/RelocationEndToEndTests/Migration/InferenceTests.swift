import EndToEndSupport
import Glibc
import TestSupport
import Testing

/// Random models, filled stores and next versions, against an independent implementation of the format:
/// `Tests/Inference/inference.py`. `$GROUPSTORE_SEED` selects them; a failure prints the seed.
@Suite(.ownThreads) struct InferenceTests {
    @Test(.soak) func migrationsMatchTheOracle() throws {
        let seed = "\(Tier.seed)"
        try inference("--seed", Word(seed), "--rounds", "30")
    }

    /// Rounds that found something: a reference that leads nowhere any more kept its position.
    @Test(arguments: [(3646, 20)]) func formerFindingsAreGone(_ seed: Int, _ round: Int) throws {
        try inference("--seed", "\(seed)", "--first", "\(round)", "--rounds", "1")
    }

    private func inference(_ options: Word...) throws {
        let done = try run(
            "python3", [Programs.source("Tests/Inference/inference.py"), Programs.groupstore] + options,
            within: .seconds(300))
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.output.contains(" rounds: "))
    }
}

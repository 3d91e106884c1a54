import Glibc
import TestSupport
import Testing

/// Random models, filled stores and next versions, against an independent implementation of the format:
/// `Tests/Inference/inference.py`. `$GROUPSTORE_SEED` selects them; a failure prints the seed.
@Suite(.ownThreads) struct InferenceTests {
    @Test func migrationsMatchTheOracle() throws {
        let seed = getenv("GROUPSTORE_SEED").map { String(cString: $0) } ?? "\(getpid())"
        let done = try run(
            "python3",
            [
                Programs.source("Tests/Inference/inference.py"), Programs.groupstore, "--seed", Word(seed), "--rounds",
                "30",
            ], within: .seconds(300))
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.output.contains("30 rounds: "))
    }
}

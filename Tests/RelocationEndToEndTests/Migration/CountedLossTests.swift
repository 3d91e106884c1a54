import EndToEndSupport
import Glibc
import TestSupport
import Testing

/// What migrations lose, counted object by object by `Tests/Adversary/migration/case_losses.py` in both stores: the
/// check, the dry run and the run report the same, and the original is archived if and only if something is lost. The
/// first rounds are the smallest models that lose something.
@Suite(.ownThreads) struct CountedLossTests {
    @Test(.soak) func aMigrationReportsWhatItLoses() throws {
        let done = try run(
            "python3",
            [
                Programs.source("Tests/Adversary/migration/adversary.py"), Programs.groupstore, "--only", "losses",
                "--rounds", "23", "--seed", "7", "--seconds", "240",
            ], within: .seconds(300))
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.output.contains("adversary: 23 rounds"))
    }
}

import EndToEndSupport
import Glibc
import TestSupport
import Testing

/// A bounded sample of `script/soak places`. `$GROUPSTORE_SEED` selects the states.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct PlacesTests {
    @Test(.soak, arguments: ["zero bytes, alone; group absent", "zero bytes, a -shm; group there", ""])
    func theAgentIsIdleWithoutChanges(_ only: String) throws {
        let seed = "\(Tier.seed)"
        let done = try run(
            "python3",
            [
                Programs.source("Tests/Soak/places.py"), Programs.groupstore, "--seconds", "3", "--sample", "6",
                "--parallel",
                "3", "--seed", Word(seed), "--only", Word(only),
            ], within: .ample)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.output.contains("soak: places: "))
    }
}

import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A bounded sample of `script/torture`. `$GROUPSTORE_SEED` selects the points, and a failure prints the seed.
@Suite(.ownThreads, .soak) struct TortureTests {
    @Test(arguments: [
        "kill", "again", "fail", "fail-for-good", "power", "restored", "undo", "archive", "full", "holders", "storm",
        "mutate",
        "plant",
        "swap",
    ])
    func losesNothing(_ part: String) throws {
        let seed = "\(Tier.seed)"
        let done = try run(
            "python3",
            [
                Programs.source("Tests/Torture/torture.py"), Programs.groupstore, Word(part), "--seed", Word(seed),
                "--seconds", "6", "--sample", part == "plant" ? "30" : "3", "--rounds", "6", "--openers", "3",
                "--mutations", "25",
            ])
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.output.contains("torture: \(part): "))
    }
}

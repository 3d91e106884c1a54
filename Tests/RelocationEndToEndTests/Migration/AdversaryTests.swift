import EndToEndSupport
import Glibc
import TestSupport
import Testing

/// A sample of the testers in `Tests/Adversary`, which were written from the documents alone. `$GROUPSTORE_SEED`
/// selects other rounds; `script/soak` runs them for a given time.
@Suite(.ownThreads, .soak) struct AdversaryTests {
    /// Options that leave out `kill`, because its rounds depend on the clock.
    private static let migration: [Word] = [
        "--rounds", "60", "--only", "names,hierarchy,mapping,chain,doors,data",
    ]

    private static let agent: [Word] = ["--rounds", "6", "--untimed"]

    @Test(arguments: [
        ("migration", Self.migration), ("history", ["--rounds", "6"]), ("history", ["--rounds", "6", "--before"]),
        ("values", ["--rounds", "6"]), ("agent", Self.agent),
        ("direct", ["--rounds", "8", "--untimed"]),
        ("replica", [Programs.replicationActor, "--rounds", "8"]),
        ("merge", ["--rounds", "8", "--only", "plain,links,special,coredata"]),
        ("library", [Programs.libraryActor, "--rounds", "7", "--untimed"]),
    ])
    func findsNothing(_ tester: String, _ options: [Word]) throws {
        let seed = "\(Tier.seed)"
        let done = try run(
            "python3",
            [
                Programs.source("Tests/Adversary/\(tester)/adversary.py"), Programs.groupstore,
            ] + options + ["--seed", Word(seed), "--seconds", "3000"], within: .ample * 10)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.output.contains("no problem"))
    }

    @Test(.soak) func mirrorsHaveTheirHomesRows() throws {
        let done = try run(
            "python3",
            [Programs.source("Tests/Adversary/replica/mirrors.py"), Programs.replicationActor, "--rounds", "4"])
        #expect(done.status == 0, "\(done.output)\(done.errors)")
    }
}

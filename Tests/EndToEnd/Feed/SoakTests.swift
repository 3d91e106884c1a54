import Glibc
import SystemPackage
import TestSupport
import Testing

/// A bounded sample of `script/soak feed`. `$GROUPSTORE_SEED` selects the actions and their times; a failure prints the
/// seed.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct SoakTests {
    @Test func everySubscriberReceivesEveryCommit() throws {
        let seed = getenv("GROUPSTORE_SEED").map { String(cString: $0) } ?? "\(getpid())"
        let client = FilePath("\(Programs.source("Samples/groupstore.py"))").removingLastComponent()
        let done = try run(
            "python3",
            [
                Programs.source("Tests/Soak/feed.py"), Programs.groupstore, Programs.legacyWriter, Word(client),
                "--commits", "8000", "--kills", "4", "--subscribers", "4", "--seed", Word(seed),
            ])
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(done.output.contains("soak: feed: "))
    }
}

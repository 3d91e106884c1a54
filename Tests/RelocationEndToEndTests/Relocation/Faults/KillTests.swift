import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests that kill a relocation with SIGKILL and start it again.
///
/// `$GROUPSTORE_KILLS` sets the number of kills (default 20), `$GROUPSTORE_SEED` their moments. A failure prints the
/// seed.
@Suite(.ownThreads) struct KillTests {
    private static let rows = 4000

    private static let kills = number("GROUPSTORE_KILLS") ?? 20
    private static let seed = Tier.seed

    private static func number(_ variable: String) -> UInt64? {
        getenv(variable).flatMap { UInt64(String(cString: $0)) }
    }

    private func places(_ kill: UInt64) throws -> (Places, StoreFiles) {
        let places = try Places(kill.isMultiple(of: 2) ? .another : .same)
        let legacy = try makeStore(
            places.legacy.appending("Notes.sqlite"), rows: Self.rows, unflushed: kill % 4 < 2, padding: 500)
        return (places, legacy)
    }

    @Test(.soak) func theCommandRecoversAtItsNextStart() throws {
        var moments = SeededGenerator(seed: Self.seed)
        var span = Duration.milliseconds(300)
        var interrupted = 0
        for kill in 0..<Self.kills {
            let (places, legacy) = try places(kill)
            let support = try legacy.supportSnapshot()
            let words = ["relocate", Word(legacy.path), Word(places.group), "--json"]
            let command = try RunningProcess(Programs.groupstore, words)
            let started = ContinuousClock.now
            let moment = span * Double.random(in: 0...1, using: &moments)
            if try command.hasEnded(within: moment) {
                span = max(.milliseconds(20), (span + started.duration(to: .now)) / 2)
            } else {
                try command.killAtOnce()
                interrupted += 1
            }

            let again = try run(Programs.groupstore, words)
            #expect(again.status == 0, "seed \(Self.seed), kill \(kill) after \(moment): \(again.errors)")
            try expectOneWholeStore(legacy, support, places, "seed \(Self.seed), kill \(kill) after \(moment)")
        }
        #expect(interrupted > 0)
    }

    @Test(.soak) func theAgentRecoversAtItsNextStart() throws {
        var moments = SeededGenerator(seed: ~Self.seed)
        for kill in 0..<Self.kills {
            let (places, legacy) = try places(kill)
            let support = try legacy.supportSnapshot()
            let first = try AgentProcess(places, legacy: [legacy.path], ready: false)
            // Half of the moments deliberately precede the store's recognition as arrived.
            let moment = Duration.milliseconds(2000) * Double.random(in: 0...1, using: &moments)
            _ = try first.process.hasEnded(within: moment)
            try first.process.killAtOnce()

            let second = try AgentProcess(places, legacy: [legacy.path])
            try awaitRetirement(of: legacy, second)
            #expect(try second.stop().status == 0)
            try expectOneWholeStore(legacy, support, places, "seed \(~Self.seed), kill \(kill) after \(moment)")
        }
    }

    private func expectOneWholeStore(
        _ legacy: StoreFiles, _ support: DirectorySnapshot?, _ places: Places, _ circumstances: String
    ) throws {
        let published = try StoreFiles(places.group.appending(legacy.name.database))
        #expect(try holdsLinkAlone(places.legacy, to: published.path), "\(circumstances)")
        #expect(try noteCount(published.path) == Self.rows, "\(circumstances)")
        #expect(try sqlite(published.path, "PRAGMA integrity_check") == "ok\n", "\(circumstances)")
        #expect(try published.supportSnapshot() == support, "\(circumstances)")
        let bookkeeping = try Directory(places.group.appending(".groupstore"))
        #expect(try bookkeeping.status("journal.json") == nil, "\(circumstances)")
    }
}

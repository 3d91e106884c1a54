import EndToEndSupport
import Glibc
import SystemPackage
import TestSupport
import Testing

/// Samples of `script/soak relay` and `script/soak relays`: harm to homes, brokers and followers, and a look at each
/// state that the replica shows. `$GROUPSTORE_SEED` selects other harm.
@Suite(.ownThreads, .enabled(if: !NATSServer.programs.isEmpty, "there is no nats-server"), .soak)
struct RelayAdversaryTests {
    private static let seed = "\(Tier.seed)"

    private func findsNothing(_ tester: String, _ broker: FilePath, _ options: [Word]) throws -> String {
        let done = try run(
            "python3",
            [Programs.source("Tests/Adversary/relay/\(tester)"), Programs.groupstore, Programs.relay] + options
                + ["--seed", Word(Self.seed)],
            environment: ["PYTHONDONTWRITEBYTECODE": "1", "NATS_SERVER": broker.string], within: .ample * 2)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        return done.output
    }

    @Test(arguments: NATSServer.programs)
    func showsOnlyTrueStatesWhateverIsKilledOrSetBack(program: FilePath) throws {
        let output = try findsNothing(
            "long/long.py", program,
            [
                "--commits", "2400", "--archive", "500", "--cuts", "4", "--kills", "1", "--setbacks", "1", "--flips",
                "1",
                "--pauses", "0", "--schema-changes", "1", "--vacuums", "1", "--purges", "0", "--purged", "1",
                "--two-relays", "1", "--restored", "1", "--handwritten", "1", "--comparisons", "2",
            ])
        #expect(output.contains("every state was the home's, in order"), "\(output)")
    }

    /// Three brokers, a stream with three copies, and the stream's leader killed.
    @Test func aClusterThatLosesABrokerShowsOnlyTrueStates() throws {
        let output = try findsNothing(
            "long/long.py", try #require(NATSServer.programs.last),
            [
                "--cluster", "--commits", "1200", "--archive", "500", "--cuts", "2", "--kills", "1", "--setbacks", "0",
                "--flips", "0", "--pauses", "0", "--schema-changes", "0", "--vacuums", "0", "--purges", "0",
                "--purged", "0", "--two-relays", "0", "--restored", "0", "--handwritten", "0", "--comparisons", "2",
            ])
        #expect(output.contains("every state was the home's, in order"), "\(output)")
    }

    /// A raw client with a follower's credentials, with the key and without one.
    @Test func aFollowersCredentialsHarmNobody() throws {
        let output = try findsNothing(
            "adversary.py", NATSServer.programs[0],
            ["--only", "hostile,hostilekeyless", "--rounds", "2", "--seconds", "1"])
        #expect(output.contains(" 0 problems"), "\(output)")
    }

    @Test func anIndependentTesterFindsNothing() throws {
        let output = try findsNothing(
            "adversary.py", NATSServer.programs[0],
            ["--only", "unsteady,retention", "--rounds", "2", "--seconds", "2"])
        #expect(output.contains(" 0 problems"), "\(output)")
    }
}

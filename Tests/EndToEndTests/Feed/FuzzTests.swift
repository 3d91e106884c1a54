import EndToEndSupport
import Glibc
import TestSupport
import Testing

/// A bounded part of `script/fuzz`, the same inputs each time. `$GROUPSTORE_SEED` selects others.
@Suite(.ownThreads) struct FuzzTests {
    @Test(arguments: [
        "journal", "receipt", "claim", "request", "message", "lines", "parts", "configuration", "xml-store",
    ])
    func noInputCrashesAReader(_ target: String) throws {
        let seed = "\(Tier.seed)"
        let rounds = Tier.isSoak ? 1000 : 300
        let done = try run(
            Programs.fuzz, [Word(target), "--seed", Word(seed), "--rounds", "\(rounds)"],
            environment: ["SWIFT_BACKTRACE": "enable=no"], within: .seconds(300))
        #expect(done.status == 0, "seed \(seed): \(done.output)\(done.errors)")
        #expect(done.output.contains("fuzz: \(target): \(rounds) inputs, "))
    }
}

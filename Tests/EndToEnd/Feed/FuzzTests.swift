import Glibc
import TestSupport
import Testing

/// A bounded part of `script/fuzz`. `$GROUPSTORE_SEED` selects the inputs; a failure prints the seed.
@Suite(.ownThreads) struct FuzzTests {
    @Test(arguments: [
        "journal", "receipt", "claim", "request", "message", "lines", "parts", "configuration", "xml-store",
    ])
    func noInputCrashesAReader(_ target: String) throws {
        let seed = getenv("GROUPSTORE_SEED").map { String(cString: $0) } ?? "\(getpid())"
        let done = try run(
            Programs.fuzz, [Word(target), "--seed", Word(seed), "--rounds", "1000"],
            environment: ["SWIFT_BACKTRACE": "enable=no"], within: .seconds(300))
        #expect(done.status == 0, "seed \(seed): \(done.output)\(done.errors)")
        #expect(done.output.contains("fuzz: \(target): 1000 inputs, "))
    }
}

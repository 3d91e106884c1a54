import EndToEndSupport
import SystemPackage
import TestSupport
import Testing

/// A hundred typical mistakes, `Tests/Mistakes/mistakes.txt`: each answer names the thing, the cause and a remedy, and
/// the remedies that are commands do what they promise.
@Suite(.ownThreads) struct MistakeTests {
    private static let parts = 12

    @Test(arguments: 1...parts) func answersAMistakeWithARemedyThatHelps(_ part: Int) throws {
        let done = try run(
            "python3",
            [
                Programs.source("Tests/Mistakes/mistakes.py"), Programs.groupstore, "--part", "\(part)/\(Self.parts)",
            ])
        #expect(done.status == 0, "\(done.output)\(done.errors)")
    }
}

import EndToEndSupport
import Foundation
import TestSupport
import Testing

/// The declarations of the public errors.
@Suite struct PublicErrorTests {
    /// Foundation shows any other error as "The operation could not be completed".
    @Test func everyPublicErrorHasALocalizedDescription() throws {
        let root = Programs.source("Sources").description
        var errors: [String] = []
        for path in try FileManager.default.subpathsOfDirectory(atPath: root) where path.hasSuffix(".swift") {
            let text = try String(contentsOfFile: root + "/" + path, encoding: .utf8)
            for match in text.matches(of: /public (?:indirect )?(?:struct|enum|final class) (\w+): ([^{]*)/) {
                let protocols = match.2.split { !$0.isLetter }
                guard protocols.contains(where: { $0.hasSuffix("Error") }) else { continue }
                errors.append(String(match.1))
                #expect(
                    protocols.contains("ActionableError") || protocols.contains("LocalizedError"),
                    "\(path): \(match.1)")
            }
        }
        #expect(errors.contains("GroupStoreError") && errors.count >= 11, "\(errors)")
    }
}

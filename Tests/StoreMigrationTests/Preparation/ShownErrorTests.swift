import Foundation
import LinuxSystem
import ManagedObjectModels
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// The public errors of `ManagedObjectModels`, `MappingModels` and `StoreMigration`, as a program shows them that knows
/// no more than that they are errors.
@Suite struct ShownErrorTests {
    @Test(
        arguments: [
            ModelFault(entity: "Note", property: "title", "two attributes have this name", remedy: "rename one"),
            ModelError(.missing, "/opt/Notes.momd", "no such file or directory", remedy: "check the path"),
            MappingModelError(.invalid, at: "/opt/A.yaml", line: 3, "unknown key", remedy: "correct it"),
            MappingInferenceError(
                reasons: [MigrationFinding(.error, entity: "Note", "its parent changed", remedy: "write a mapping")]),
            MigrationError(CoreDataError.migration, "the migration failed", remedy: "free space there"),
            StorePreparationError(code: "in_use", "another process has it open", remedy: "close it"),
        ] as [any ActionableError])
    func anErrorShowsItsPlaceAndRemedy(_ error: any ActionableError) {
        let unknown: any Error = error
        #expect(error.shapeDefects == [])
        #expect("\(unknown)" == "\(error.fullMessage) (\(error.remedy))")
        #expect(unknown.localizedDescription == "\(unknown)")
    }

    @Test func anErrorWithoutARemedyShowsItsMessage() throws {
        let policy: any Error = PolicyError("a note has no title")
        #expect("\(policy)" == "a note has no title")
        #expect(policy.localizedDescription == "a note has no title")
        let format: any Error = try #require(throws: FormatError.self) { try MappingPredicate(format: "title ==") }
        #expect("\(format)".contains("(at character "))
        #expect(format.localizedDescription == "\(format)")
    }
}

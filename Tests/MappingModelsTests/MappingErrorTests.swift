import LinuxSystem
import ManagedObjectModels
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels

@Suite struct MappingErrorTests {
    @Test func aMissingFileNamesItsPathAndTheSystemsError() throws {
        let error = try #require(throws: MappingModelError.self) {
            try MappingModelFile(reading: "/nonexistent/Zoo.mapping.yaml")
        }
        #expect(error.shapeDefects == [])
        #expect(error.errorPath == "/nonexistent/Zoo.mapping.yaml")
        #expect((error.underlyingError as? SystemError)?.errno == .noSuchFileOrDirectory)
    }

    @Test func anErrorWithoutAPathTakesThatOfItsFile() {
        let error = MappingModelError(.unfitting, at: nil, element: "Animal", "it has no source", remedy: "name one")
        #expect(error.shapeDefects == [] && error.errorPath == nil)
        #expect(error.inFile("/srv/Zoo.yaml").fullMessage == "/srv/Zoo.yaml: Animal: it has no source")
        #expect(error.inFile("/srv/Zoo.yaml").inFile("/srv/Other.yaml").errorPath == "/srv/Zoo.yaml")
    }

    @Test func anInferenceErrorSpeaksOfItsFirstReason() {
        let reason = MigrationFinding(.error, entity: "Animal", "it lost its name", remedy: "give it one")
        let error = MappingInferenceError(reasons: [reason])
        #expect(error.shapeDefects == [])
        #expect(error.errorCode == "core_data_134140" && error.message.hasSuffix("Animal: it lost its name"))
        #expect(error.remedy == "give it one")
    }
}

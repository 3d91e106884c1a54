import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import ManagedObjectModels

@Suite struct ModelErrorTests {
    @Test func aMissingModelNamesItsPathAndTheSystemsError() throws {
        let error = try #require(throws: ModelError.self) { try ModelBundle(reading: "/nonexistent/Notes.momd") }
        #expect(error.shapeDefects == [])
        #expect(error.errorCode == "no_such_model")
        #expect(error.errorPath == "/nonexistent/Notes.momd")
        #expect((error.underlyingError as? SystemError)?.errno == .noSuchFileOrDirectory)
    }

    @Test func aFaultNamesItsElementAndWhatWasAttempted() throws {
        let note = EntityDescription(name: "Note")
        let model = try ManagedObjectModel(entities: [note])
        let renaming = try #require(ModelRenaming("Memo=Note"))
        let renamed = try #require(throws: ModelFault.self) { try model.renamed([renaming], from: model) }
        #expect(renamed.shapeDefects == [] && renamed.errorCode == "bad_renaming")
        let twice = try #require(throws: ModelFault.self) { try ManagedObjectModel(entities: [note, note]) }
        #expect(twice.shapeDefects == [] && twice.errorCode == "invalid_model")
    }
}

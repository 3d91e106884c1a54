import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import StoreMigration

@Suite struct MigrationErrorTests {
    private static let causes: [any ActionableError] = [
        StoreError.busy("/srv/Notes.sqlite", code: 5, message: "database is locked"),
        SystemError("open", .noSpace, path: "/srv/Notes.sqlite"),
        MappingModelError(.unfitting, at: "/srv/Zoo.yaml", "it fits nothing", remedy: "write another"),
    ]

    @Test(arguments: causes) func aMigrationErrorKeepsItsCauseAndPath(_ cause: any ActionableError) {
        let error = MigrationError(cause)
        #expect(cause.shapeDefects == [] && error.shapeDefects == [])
        #expect(error.errorCode.hasPrefix("core_data_"))
        #expect(error.underlyingError.map { "\($0)" } == "\(cause)")
        #expect(error.errorPath == cause.errorPath)
    }

    @Test(arguments: causes + [MigrationError(134_110, "it failed", remedy: "try again")])
    func aPreparationErrorKeepsItsCauseAndPath(_ cause: any ActionableError) {
        let error = StorePreparationError(cause)
        #expect(error.shapeDefects == [])
        #expect(error.underlyingError.map { "\($0)" } == "\(cause)")
        #expect(error.errorPath == cause.errorPath)
    }
}

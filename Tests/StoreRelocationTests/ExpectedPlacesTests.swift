import GRDB
import LinuxSystem
import SystemPackage
import Testing

@testable import StoreRelocation

/// A client names the file and the directory that it means.
@Suite struct ExpectedPlacesTests {
    private let rig: TransferRig
    private let source: FilePath

    init() throws {
        rig = try TransferRig()
        source = rig.legacy.directory.path.appending("Notes.sqlite")
        let queue = try DatabaseQueue(path: source.string)
        try queue.write { try $0.execute(sql: "CREATE TABLE note (text); INSERT INTO note VALUES ('milk')") }
        try queue.close()
    }

    private func request() -> RelocationRequest {
        var request = RelocationRequest(source: source, group: rig.container.directory.path)
        request.expected = .init(
            source: FileStatus(following: source)?.identity,
            group: FileStatus(following: rig.container.directory.path)?.identity)
        return request
    }

    private func code(_ request: RelocationRequest, dryRun: Bool) -> String? {
        do throws(RelocationFailure) {
            _ = try dryRun ? Relocation(request).dryRun() : Relocation(request).run()
            return nil
        } catch {
            return error.code
        }
    }

    @Test(arguments: [true, false]) func leavesAnotherFileAlone(dryRun: Bool) throws {
        let request = request()
        try DurableFile.write(Array("another".utf8), as: "Notes.sqlite", in: rig.legacy.directory, mode: 0o644)
        #expect(code(request, dryRun: dryRun) == "replaced")
        #expect(try DurableFile.read("Notes.sqlite", in: rig.legacy.directory) == Array("another".utf8))
    }

    @Test(arguments: [true, false]) func leavesAnotherDirectoryAlone(dryRun: Bool) throws {
        var request = request()
        try rig.container.directory.makeDirectory("elsewhere", mode: 0o755)
        request.group = rig.container.directory.path.appending("elsewhere")
        #expect(code(request, dryRun: dryRun) == "replaced")
        #expect(try rig.legacy.directory.names().filter { $0 != ".groupstore" } == ["Notes.sqlite"])
    }

    @Test func movesTheExpectedFile() throws {
        #expect(code(request(), dryRun: false) == nil)
        #expect(try rig.container.directory.status("Notes.sqlite") != nil)
        // No file is left that could be a different one.
        #expect(code(request(), dryRun: false) == nil)
    }
}

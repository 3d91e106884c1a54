import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Options for a user namespace in which the current user owns the test's files and has no other rights.
private let withoutRights: [Word] = ["--user", "--map-user=1000", "--map-group=1000"]
private let canGiveUpRights = (try? run("unshare", withoutRights + ["true"]))?.status == 0

/// Tests that everything works without root. A test run by root would miss permission bugs.
@Suite(.ownThreads, .enabled(if: canGiveUpRights, "unshare(1) may not make namespaces here"))
struct UnprivilegedTests {
    struct Case: CustomTestStringConvertible {
        let fileSystem: Places.FileSystem
        let retirement: String
        var testDescription: String { "\(fileSystem), \(retirement)" }
    }

    static let cases = Places.FileSystem.allCases.flatMap { fileSystem in
        ["delete", "archive", "symlink"].map { Case(fileSystem: fileSystem, retirement: $0) }
    }

    @Test(arguments: cases)
    func relocatesWithoutRoot(_ example: Case) throws {
        let places = try Places(example.fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 50, unflushed: true)
        let support = try store.supportSnapshot()
        let done = try run(
            "unshare",
            withoutRights + [
                Programs.groupstore, "relocate", Word(store.path), Word(places.group), "--retire",
                Word(example.retirement), "--json",
            ], environment: AgentProcess.environment("/nonexistent/agent.sock"))
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.outcome == "relocated")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        #expect(try noteCount(published.path) == 50)
        #expect(try published.supportSnapshot() == support)
    }

    /// The group's store has other rows, and the relocation archives it.
    @Test func archivesTheOtherStoreWithoutRoot() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 50)
        try makeStore(places.group.appending("Notes.sqlite"), rows: 7)
        let done = try run(
            "unshare",
            withoutRights + [
                Programs.groupstore, "relocate", Word(store.path), Word(places.group), "--on-conflict", "keep-legacy",
            ], environment: AgentProcess.environment("/nonexistent/agent.sock"))
        #expect(done.status == 0, "\(done.errors)")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 50)
    }
}

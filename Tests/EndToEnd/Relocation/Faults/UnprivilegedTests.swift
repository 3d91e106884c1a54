import AgentProtocol
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The same user, who owns the test's files, in a user namespace where nothing more is allowed than that.
private let withoutRights: [Word] = ["--user", "--map-user=1000", "--map-group=1000"]
private let canGiveUpRights = (try? run("unshare", withoutRights + ["true"]))?.status == 0

/// Everything works for a user who is not root; a test run by root would not notice what doesn't.
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
    func theCommandRelocates(_ example: Case) throws {
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

    /// A second set of rows, which the first one is archived for.
    @Test func theCommandArchivesTheOtherStore() throws {
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

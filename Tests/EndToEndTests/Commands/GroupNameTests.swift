import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Groups and stores named on the command line.
@Suite(.ownThreads) struct GroupNameTests {
    private let user: UserAccount
    private let name: Word = "group.com.example.photos"

    init() throws { user = try UserAccount() }

    /// Runs a command in a directory of its own.
    private func run(_ words: Word...) throws -> FinishedProcess {
        try run("mkdir", ["-p", Word(work)])
        let script = #"cd "$0" && exec "$@""#
        return try TestSupport.run(
            "sh", ["-c", Word(script), Word(work), Programs.groupstore] + words, environment: user.environment)
    }

    @discardableResult
    private func run(_ program: Word, _ words: [Word]) throws -> FinishedProcess { try TestSupport.run(program, words) }

    private var work: FilePath { user.scratch("work") }
    private var standard: FilePath { user.containers.appending("group.com.example.photos") }

    /// The directory that a remedy used to make in the working directory is no group.
    @Test(
        arguments: [
            ["relocate", "a.sqlite"], ["recover"], ["group", "show"], ["group", "remove"], ["archive", "list"],
            ["watch"],
            ["inspect"],
        ] as [[Word]])
    func namesAGroupThatDoesNotExistAndTheCommandThatMakesIt(_ command: [Word]) throws {
        try run("mkdir", ["-p", Word(work)])
        try makeStore(work.appending("a.sqlite"), rows: 1)
        try user.command("group", "create", "group.com.example.photo")
        let before = try DirectorySnapshot(work)
        let words = command + [name]
        let refused = try TestSupport.run(
            "sh", ["-c", #"cd "$0" && exec "$@" --json"#, Word(work), Programs.groupstore] + words,
            environment: user.environment)
        #expect(refused.status == 74, "\(refused.errors)")
        let error = refused.summary.object("error")
        #expect(error?.string("code") == "no_container", "\(refused.output)")
        let message = error?.string("message") ?? ""
        #expect(message.contains("did you mean group.com.example.photo?"), "\(message)")
        #expect(error?.string("hint") == "groupstore group create \(name)")
        #expect(try DirectorySnapshot(work) == before)
    }

    /// As everywhere else, GROUP_ID/NAME is a store. A directory that is there takes precedence.
    @Test func relocatesAStoreThatIsNamedByItsGroup() throws {
        try user.command("group", "create", name)
        try makeStore(standard.appending("a.sqlite"), rows: 1)
        try run("mkdir", ["-p", Word(work.appending("old"))])
        let store: Word = "\(name)/a.sqlite"
        let done = try run("relocate", store, "./old")
        #expect(done.status == 0 && FileStatus(following: work.pushing("old/a.sqlite")) != nil, "\(done.errors)")
        let undone = try run("relocate", store, "./old", "--undo")
        #expect(undone.status == 0 && FileStatus(following: standard.appending("a.sqlite")) != nil, "\(undone.errors)")
        let place = work.appending(.init(bytes: name.bytes) ?? "x")
        try run("mkdir", [Word(place)])
        let refused = try run("relocate", store, "./old")
        #expect(refused.status == 74 && refused.errors.contains("no file \(place)/a.sqlite"), "\(refused.errors)")
    }

    @Test func aGroupTakesPrecedenceOverADirectoryOfItsName() throws {
        try user.command("group", "create", name)
        try run("mkdir", ["-p", Word(work.appending("group.com.example.photos"))])
        try makeStore(work.appending("a.sqlite"), rows: 1)
        try makeStore(work.appending("b.sqlite"), rows: 1)
        #expect(try run("relocate", "a.sqlite", name).status == 0)
        #expect(try run("relocate", "b.sqlite", Word("./\(name)")).status == 0)
        #expect(FileStatus(following: standard.appending("a.sqlite")) != nil)
        #expect(FileStatus(following: work.pushing("group.com.example.photos/b.sqlite")) != nil)
    }

    @Test func aDirectoryThatExistsNeedsNoSlash() throws {
        try run("mkdir", ["-p", Word(work.appending("shared"))])
        try makeStore(work.appending("a.sqlite"), rows: 1)
        #expect(try run("relocate", "a.sqlite", "shared").status == 0)
        #expect(FileStatus(following: work.pushing("shared/a.sqlite")) != nil)
    }

    @Test func aGroupIsWhereTheAgentServesIt() throws {
        let elsewhere = user.scratch("elsewhere")
        try run("mkdir", ["-p", Word(elsewhere), Word(work)])
        try makeStore(work.appending("a.sqlite"), rows: 1)
        let agent = try user.agent(["--group", Word("\(name)=\(elsewhere)")])
        let done = try run("relocate", "a.sqlite", name, "--json")
        #expect(done.summary.string("to") == elsewhere.appending("a.sqlite").string, "\(done.output)\(done.errors)")
        #expect(try run("inspect", Word("\(name)/a.sqlite")).status == 0)
        agent.signal(SIGTERM)
        #expect(try agent.wait().status == 0)
    }

    @Test func watchesAStoreOfAGroupWithoutAnAgent() throws {
        try user.command("group", "create", name)
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", Word("\(name)/a.sqlite"), "--once"], environment: user.environment)
        try watch.line(.errors) { $0.contains("which doesn't exist yet; waiting") }
        try makeStore(standard.appending("a.sqlite"), rows: 1)
        #expect(try watch.wait().status == 0)
        let again = try RunningProcess(
            Programs.groupstore, ["watch", Word("\(name)/a.sqlite"), "--json"], environment: user.environment)
        try again.line { JSONObject(line: $0).map { $0.type == "watching" && $0["exists"] == nil } == true }
        try again.killAtOnce()
    }

    @Test func aDryRunNamesWhoHasTheStoreOpen() throws {
        try user.command("group", "create", name)
        try run("mkdir", ["-p", Word(work)])
        try makeStore(work.appending("a.sqlite"), rows: 1)
        let shell = try sqliteShell(work.appending("a.sqlite"))
        try shell.execute("SELECT count(*) FROM note")
        let would = try run("relocate", "a.sqlite", name, "--dry-run")
        #expect(would.status == 0 && would.errors.contains("is open in sqlite3 (pid \(shell.pid))"), "\(would.errors)")
        shell.closeInput()
        try shell.wait()
        #expect(try !run("relocate", "a.sqlite", name, "--dry-run").errors.contains("is open in"))
    }
}

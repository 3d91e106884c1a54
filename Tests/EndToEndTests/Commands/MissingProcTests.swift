import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The programs where `/proc` isn't mounted: a bare chroot, a sandbox, an installer's maintainer script.
@Suite(.ownThreads, .enabled(if: MissingProc.canBeTried, "needs unshare(1) and the right to mount"))
struct MissingProcTests {
    private let places: Places
    private let store: StoreFiles

    init() throws {
        places = try Places()
        store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 3)
    }

    private func runWithoutProc(_ program: Word, _ words: [Word]) throws -> FinishedProcess {
        try run(
            "unshare", MissingProc.flags + MissingProc.shell + [program] + words,
            environment: ["GROUPSTORE_SOCKET": places.scratch("none.sock").string])
    }

    /// Each command that works on stores, groups or agents, with arguments that it accepts.
    private var commands: [(Word, [Word])] {
        let (file, group) = (Word(store.path), Word(places.group))
        let key = Word(places.scratch("key"))
        let groupstore: [[Word]] = [
            ["relocate", file, group], ["relocate", file, group, "--dry-run"], ["relocate", file, group, "--undo"],
            ["watch", file], ["status"], ["inspect", file], ["recover", file], ["create", file, "--model", file],
            ["migrate", file, "--model", file], ["history", "enable", file], ["history", "disable", file],
            ["history", "purge", file, "--older-than", "1d"], ["history", "show", file],
            ["history", "acknowledge", file, "--subscriber", "me", "--token", "h1.1"], ["changes", file],
            ["group", "list"], ["group", "show", "group.example"],
            ["group", "remove", "group.example"],
            ["archive", "list", group], ["archive", "show", group, "a"],
            ["archive", "restore", group, "a"], ["archive", "purge", group, "a"],
            ["agent", "--group", "group.example=" + group],
            ["model", "check", file, file],
        ]
        let relay: [[Word]] = [
            ["publish", file, "--server", "nats://127.0.0.1:1", "--stream", "notes", "--key", key],
            ["follow", file, "--server", "nats://127.0.0.1:1", "--stream", "notes", "--key", key],
            ["promote", file], ["status"],
        ]
        return groupstore.map { (Programs.groupstore, $0) } + relay.map { (Programs.relay, $0) }
    }

    @Test func eachCommandFailsAndNamesProc() throws {
        let before = try DirectorySnapshot(places.legacy)
        for (program, words) in commands {
            let done = try runWithoutProc(program, words)
            // A command that doesn't accept these words would end with 64.
            #expect(done.status == 78, "\(words): \(done.status) \(done.output) \(done.errors)")
            #expect(done.errors.contains("/proc isn't mounted"), "\(words): \(done.errors)")
            #expect(done.errors.contains("mount -t proc proc /proc"), "\(words): \(done.errors)")
        }
        #expect(try DirectorySnapshot(places.legacy) == before)
        #expect(try Directory(places.group).names().isEmpty)
    }

    @Test func theSummaryNamesTheReason() throws {
        let words: [Word] = ["relocate", Word(store.path), Word(places.group), "--json"]
        let done = try runWithoutProc(Programs.groupstore, words)
        #expect(done.summary.object("error")?.string("code") == "no_proc", "\(done.output)")
    }

    @Test func theArgumentsArriveWithoutProc() throws {
        for program in [Programs.groupstore, Programs.relay] {
            for words: [Word] in [["--version"], ["--help"], ["status", "--help"], ["nonsense"], [""], []] {
                let (here, there) = try (run(program, words), runWithoutProc(program, words))
                #expect(there.status == here.status, "\(words)")
                #expect(there.output == here.output && there.errors == here.errors, "\(words): \(there.output)")
            }
        }
    }

    @Test func makesAGroupContainerWithoutProc() throws {
        let words: [Word] = [Programs.groupstore, "group", "create", "group.example"]
        let done = try run(
            "unshare", MissingProc.flags + MissingProc.shell + words,
            environment: ["GROUPSTORE_CONTAINERS": places.scratch("containers").string])
        #expect(done.status == 0, "\(done.errors)")
        #expect(FileStatus(following: places.scratch("containers/group.example"))?.kind == .directory)
    }

    @Test func theDoctorReportsIt() throws {
        let done = try runWithoutProc(Programs.groupstore, ["doctor", Word(places.group)])
        #expect(done.status == 78)
        #expect(done.output.contains("/proc isn't mounted"), "\(done.output)")
    }
}

private enum MissingProc {
    static let flags: [Word] = ["--user", "--map-root-user", "--mount"]
    /// Runs its arguments without `/proc`.
    static let shell: [Word] = ["sh", "-c", "mount -t tmpfs tmpfs /proc && exec \"$@\"", "sh"]

    static let canBeTried = (try? run("unshare", flags + shell + ["true"]).status) == 0
}

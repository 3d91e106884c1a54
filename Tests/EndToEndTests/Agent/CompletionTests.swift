import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Completion of stores and groups, with the Tab key of interactive shells.
@Suite(.ownThreads) struct CompletionTests {
    /// A shell that completes. bash is everywhere; the others may not be installed.
    enum Shell: String, CaseIterable {
        case bash, zsh, fish

        static let installed = allCases.filter { shell in
            (try? run(Word(shell.rawValue), ["-c", "true"]))?.status == 0
        }

        static let scripts = [Programs.groupstore, Programs.relay].flatMap { program in
            installed.map { shell in
                let script = Result { try run(program, ["--generate-completion-script", Word(shell.rawValue)]).output }
                return (shell: shell, program: program, script: script)
            }
        }
    }

    private let user: UserAccount
    /// A name that a shell would expand, split or run, and that begins like no other.
    private static let oddName = "odd $(touch ran) `touch ran` 'a' \"b\" \\c ~:*;&.sqlite"

    init() throws {
        user = try UserAccount()
        for group in ["group.a", "group.b"] { try user.command("group", "create", Word(group)) }
        try run("mkdir", [Word(user.home.appending("empty"))])
    }

    /// The search path, which begins with the directory of the programs.
    private var path: String {
        let directory = FilePath("\(Programs.groupstore)").removingLastComponent()
        return "\(directory):" + (getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin")
    }

    private func store(_ name: String, in group: String = "group.a") throws {
        try makeStore(user.containers.appending(group).appending(name), rows: 1)
    }

    /// Returns the words of a line that was typed in the user's home or a directory there; `\t` is the Tab key.
    private func words(
        _ shell: Shell, _ line: String, in directory: String = ".", of program: Word = Programs.groupstore
    ) throws -> [String] {
        try words(shell, [line], in: directory, of: program)[0]
    }

    /// Returns the words of each line, typed one after another in one shell.
    private func words(
        _ shell: Shell, _ lines: [String], in directory: String = ".", of program: Word = Programs.groupstore
    ) throws -> [[String]] {
        let script = user.scratch("_\(FilePath("\(program)").lastComponent?.string ?? "")")
        let made = try #require(Shell.scripts.first { $0.shell == shell && $0.program.bytes == program.bytes })
        try write(try made.script.get(), to: script)
        let typed = try run(
            "sh",
            [
                "-c", "cd \"$HOME/$0\" && exec \"$@\"", Word(directory), "python3",
                Programs.source("Packaging/trial/complete"), Word(shell.rawValue), program,
                Word(lines.joined(separator: "\n")), Word(script),
            ], environment: user.environment.merging(["PATH": path]) { $1 })
        try #require(typed.status == 0, "\(typed.errors)")
        let words = lines.count == 1 ? [typed.output[...]] : typed.output.split(separator: "\n\n")
        try #require(words.count == lines.count, "\(typed.output)")
        return words.map { $0.split(separator: "\n").map(String.init) }
    }

    @Test(arguments: Shell.installed)
    func completesStoresOfGroups(_ shell: Shell) throws {
        try store("Notes.sqlite")
        // A new word, where there is nothing else that it can be.
        #expect(try words(shell, "groupstore watch \\t", in: "empty") == ["watch", "group.a/Notes.sqlite"])
        try store("Diary.sqlite", in: "group.b")
        // The last line has a second store, and an option before it.
        let shown = try words(
            shell,
            [
                "groupstore watch group.a\\t", "groupstore history show group.b/Di\\t",
                "groupstore watch --once group.a/Notes.sqlite group.b\\t",
            ])
        #expect(
            shown == [
                ["watch", "group.a/Notes.sqlite"], ["history", "show", "group.b/Diary.sqlite"],
                ["watch", "--once", "group.a/Notes.sqlite", "group.b/Diary.sqlite"],
            ])
    }

    @Test(arguments: Shell.installed)
    func completesGroups(_ shell: Shell) throws {
        try user.command("group", "create", "other.group")
        #expect(try words(shell, "groupstore group show oth\\t") == ["group", "show", "other.group"])
        // Groups without a store are offered where a group is asked for, and files are not.
        try write("", to: user.home.appending("others"))
        #expect(try words(shell, "groupstore group remove o\\t") == ["group", "remove", "other.group"])
    }

    /// Wherever a command takes a group container, a group or a place.
    @Test(arguments: Shell.installed)
    func completesGroupsForEachCommandThatTakesOne(_ shell: Shell) throws {
        try user.command("group", "create", "other.group")
        try makeStore(user.home.appending("app.db"), rows: 1)
        let commands = [
            "relocate app.db", "recover", "archive list", "archive restore", "archive purge", "status", "doctor",
            "group show",
        ]
        let shown = try words(shell, commands.map { "groupstore \($0) oth\\t" })
        #expect(shown == commands.map { $0.split(separator: " ").map(String.init) + ["other.group"] })
    }

    @Test(arguments: Shell.installed)
    func completesDirectoriesBesideGroups(_ shell: Shell) throws {
        try run("mkdir", [Word(user.home.appending("My Groups"))])
        try write("", to: user.home.appending("My File"))
        let words = try words(shell, "groupstore recover My\\t").map { $0.hasSuffix("/") ? String($0.dropLast()) : $0 }
        #expect(words == ["recover", "My Groups"])
    }

    @Test(arguments: Shell.installed)
    func completesStoresWhereAGroupMayStand(_ shell: Shell) throws {
        try store("Notes.sqlite")
        let commands = ["status", "doctor", "relocate"]
        let shown = try words(shell, commands.map { "groupstore \($0) group.a/No\\t" })
        #expect(shown == commands.map { [$0, "group.a/Notes.sqlite"] })
    }

    @Test(arguments: Shell.installed)
    func completesFilesToo(_ shell: Shell) throws {
        try store("Notes.sqlite")
        try run("mkdir", [Word(user.home.appending("My Stores"))])
        try makeStore(user.home.appending("My Stores").appending("app.db"), rows: 1)
        try makeStore(user.home.appending("plain.db"), rows: 1)
        let shown = try words(
            shell, ["My\\tap\\t", "\(user.home)/pl\\t", "~/pl\\t"].map { "groupstore inspect \($0)" })
        let plain = ["inspect", "\(user.home)/plain.db"]
        #expect(shown == [["inspect", "My Stores/app.db"], plain, plain])
    }

    /// The store's name arrives at the program as it is, and nothing in it runs: neither that of a store in a group nor
    /// that of a file in the working directory.
    @Test(arguments: Shell.installed)
    func completesOddNamesWithoutRunningThem(_ shell: Shell) throws {
        try store(Self.oddName)
        try store("two\nlines.sqlite", in: "group.b")
        try makeStore(user.home.appending(Self.oddName), rows: 1)
        // bash can't quote the name of a store that is no file, and offers nothing.
        let offered = shell == .bash ? "group.a/o" : "group.a/" + Self.oddName
        #expect(try words(shell, "groupstore watch group.a/o\\t") == ["watch", offered])
        #expect(try words(shell, "groupstore watch od\\t") == ["watch", Self.oddName])
        #expect(FileStatus(following: user.home.appending("ran")) == nil)
    }

    @Test(arguments: Shell.installed)
    func completesArchivesOfTheGroupThatIsNamed(_ shell: Shell) throws {
        let store = user.home.appending("app.db")
        try makeStore(store, rows: 1)
        try user.command("relocate", Word(store), "group.b", "--retire", "archive")
        let id = try user.command("archive", "list", "group.b", "--json").objects.first?.string("id") ?? ""
        // Neither groups nor directories are offered.
        try run("mkdir", [Word(user.home.appending("1"))])
        let commands = ["show", "restore", "purge --dry-run"]
        let shown = try words(shell, commands.map { "groupstore archive \($0) group.b 1\\t" })
        #expect(shown == commands.map { ["archive"] + $0.split(separator: " ").map(String.init) + ["group.b", id] })
    }

    /// The relay asks the program `groupstore`.
    @Test(arguments: Shell.installed)
    func completesStoresAndGroupsOfTheRelay(_ shell: Shell) throws {
        try store("Notes.sqlite")
        try makeStore(user.home.appending("plain.db"), rows: 1)
        let typed = [
            ("publish group.a/No", ["publish", "group.a/Notes.sqlite"]), ("promote pl", ["promote", "plain.db"]),
            ("follow group.b", ["follow", "group.b"]),
        ]
        let shown = try words(shell, typed.map { "groupstore-relay \($0.0)\\t" }, of: Programs.relay)
        #expect(shown == typed.map(\.1))
    }

    /// An agent's groups are offered, wherever their directories are.
    @Test func offersTheStoresThatAnAgentServes() throws {
        let place = user.scratch("elsewhere")
        try run("mkdir", [Word(place)])
        try makeStore(place.appending("Served.sqlite"), rows: 1)
        let agent = try user.agent(["--group", "group.served=" + Word(place)])
        #expect(try user.command("complete", "groups").lines == ["group.a", "group.b", "group.served"])
        let watch = try RunningProcess(
            Programs.groupstore, ["watch", "group.served/Served.sqlite"], environment: user.environment)
        try watch.line(.errors) { $0.hasPrefix("watching") }
        #expect(try user.command("complete", "stores").lines == ["group.served/Served.sqlite"])

        // A stopped agent delays nobody for long, and is no error.
        agent.signal(SIGSTOP)
        let without = try user.command("complete", "groups")
        #expect(without.status == 0 && without.errors.isEmpty && without.lines == ["group.a", "group.b"])
        agent.signal(SIGCONT)
    }

    /// Without an agent, with a broken configuration, and without a home, completion prints no error.
    @Test func isQuietWhateverIsMissing() throws {
        try write("groups: [", to: user.mainFile)
        for kind in ["groups", "stores"] as [Word] {
            let offered = try user.command("complete", kind)
            #expect(offered.status == 0 && offered.errors.isEmpty, "\(offered.errors)")
            let homeless = try run("env", ["-i", Programs.groupstore, "complete", kind])
            #expect(homeless.status == 0 && homeless.errors.isEmpty && homeless.output.isEmpty)
        }
    }

    /// bash shows what follows the last slash: it is offered groups first.
    @Test func offersGroupsBeforeTheirStores() throws {
        for group in ["group.a", "group.b"] { try store("Notes.sqlite", in: group) }
        func offered(_ word: Word) throws -> [String] {
            try user.command("complete", "stores", "--by-group", "--word=" + word).lines
        }
        #expect(try user.command("complete", "stores", "--by-group").lines == ["group.a/", "group.b/"])
        #expect(try offered("group.") == ["group.a/", "group.b/"])
        #expect(try offered("group.b") == ["group.b/Notes.sqlite"])
        #expect(try offered("'group.b") == ["group.b/Notes.sqlite"])
        #expect(try offered("group.a/N") == ["group.a/Notes.sqlite"])
        #expect(try offered("elsewhere/N").isEmpty)
    }

    @Test func isNotShownInHelp() throws {
        #expect(try !user.command("--help").output.contains("complete"))
    }
}

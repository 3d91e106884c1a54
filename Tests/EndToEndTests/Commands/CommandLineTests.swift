import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of what a person meets first: the help, mistyped words, durations and the progress bar.
@Suite(.ownThreads) struct CommandLineTests {
    /// The words of each command, found through the help of the command above it.
    private func commands(_ path: [Word] = []) throws -> [[Word]] {
        let help = try groupstore(options: path + ["--help"]).lines
        guard let start = help.firstIndex(of: "SUBCOMMANDS:") else { return [path] }
        let names = help[help.index(after: start)...].compactMap { line -> Word? in
            guard line.hasPrefix("  "), let first = line.dropFirst(2).first, first.isLowercase else { return nil }
            return "\(line.split(separator: " ")[0])"
        }
        return try [path] + names.flatMap { try commands(path + [$0]) }
    }

    @Test func theHelpListsEachOptionAndEachValueOnce() throws {
        let all = try commands()
        #expect(all.count > 25)
        for path in all {
            let help = try groupstore(options: path + ["--help"])
            #expect(help.status == 0)
            let options = help.lines.filter { $0.hasPrefix("  --") }.map { $0.split(separator: " ")[0] }
            #expect(Set(options).count == options.count, "\(path): \(options)")
            let text = help.lines.map { $0.trimmingPrefix { $0 == " " } }.joined(separator: " ")
            for part in text.split(separator: "(values: ").dropFirst() {
                guard let values = part.split(whereSeparator: { ";)".contains($0) }).first else { continue }
                let list = values.split(separator: ", ").joined(separator: ", ")
                #expect(text.ranges(of: list).count == 1, "\(path) lists \(list) twice")
            }
        }
    }

    /// A debug build checks this at each start, except in continuous integration (`.ci/swiftc`).
    @Test(arguments: [Programs.groupstore, Programs.relay])
    func noArgumentHidesAnother(_ program: Word) throws {
        let help = try run(program, ["--experimental-dump-help"]).output.replacing("\n", with: " ")
        var commands = [try #require(JSONObject(line: help)?.object("command"))]
        var count = 0
        while let command = commands.popLast() {
            commands += command.objects("subcommands").filter { $0.string("commandName") != "help" }
            count += 1
            let name: Comment = "\(command.string("commandName") ?? "?")"
            let arguments = command.objects("arguments")
            let options = arguments.flatMap { $0.objects("names") }.map(\.text)
            #expect(Set(options).count == options.count, name)
            let positional = arguments.filter { $0.string("kind") == "positional" }
            #expect(!positional.dropLast().contains { $0.bool("isRepeating") == true }, name)
            // A flag that is set by default can't be anything else.
            #expect(!arguments.contains { $0.string("kind") == "flag" && $0["defaultValue"] != nil }, name)
        }
        #expect(count > 4)
    }

    /// Each command's help ends its description with one example.
    @Test func theHelpOfEachCommandHasAnExample() throws {
        let all = try commands()
        let lines = all.map { (["groupstore"] + $0.map { "\($0)" }).joined(separator: " ") }
        for (path, command) in zip(all, lines) where !lines.contains(where: { $0.hasPrefix(command + " ") }) {
            let help = try groupstore(options: path + ["--help"]).lines
            guard let place = help.firstIndex(of: "Example:"), place + 1 < help.count else {
                Issue.record("\(path) has no example")
                continue
            }
            #expect(help[place + 1].hasPrefix("  \(command)"), "\(help[place + 1])")
        }
    }

    @Test(
        arguments: [
            (["relcoate"], "groupstore relocate"), (["stauts"], "groupstore status"), (["group", "lst"], "group list"),
            (["archive", "resotre"], "archive restore"), (["help", "wach"], "groupstore watch"),
            (["Relocate"], "groupstore relocate"),
        ] as [([Word], String)])
    func suggestsTheCommandThatIsMeant(_ words: [Word], _ meant: String) throws {
        let done = try groupstore(options: words)
        #expect(done.status == 64)
        #expect(done.errors.contains("Did you mean '") && done.errors.contains(meant), "\(done.errors)")
    }

    @Test func suggestsNothingForAnUnrelatedWord() throws {
        let done = try groupstore("xyzzy")
        #expect(done.status == 64)
        #expect(!done.errors.contains("mean"))
        #expect(done.errors.contains("groupstore --help"))
    }

    @Test(arguments: ["30", "0.5", "30s", "500ms", "1.5s", "2m", "1h"] as [Word])
    func acceptsADurationWithOrWithoutItsUnit(_ time: Word) throws {
        let places = try Places()
        let missing = Word(places.legacy.appending("Notes.sqlite"))
        // There is no store at either place: that isn't wrong usage.
        #expect(try groupstore("relocate", missing, Word(places.group), "--deadline", time).status == 74)
        #expect(try groupstore("recover", Word(places.group), "--deadline", time).status == 0)
        #expect(
            try groupstore("archive", "purge", Word(places.group), "--older-than", "1d", "--deadline", time).status == 0
        )
    }

    @Test(arguments: ["-1", "x", "3x", "nan", "inf", "1e400s", "2d", "s", "ms"] as [Word])
    func refusesWhatIsNoDurationOrTooLong(_ time: Word) throws {
        let places = try Places()
        let done = try groupstore("recover", Word(places.group), "--deadline=" + time)
        #expect(done.status == 64, "\(done.output)")
        #expect(done.errors.contains("500ms, 30s") || done.errors.contains("0s to 1d"), "\(done.errors)")
    }

    /// 30 days, or 30 seconds: what deletes by age doesn't guess.
    @Test(arguments: [["archive", "purge", "."], ["history", "purge", "a.db"]] as [[Word]])
    func anAgeToDeleteFromHasAUnit(_ command: [Word]) throws {
        let done = try groupstore(options: command + ["--older-than", "30"])
        #expect(done.status == 64 && done.errors.contains("such as 30m, 12h, 7d"), "\(done.errors)")
    }

    @Test func watchesForADurationWithItsUnit() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 1)
        let done = try groupstore("watch", Word(store.path), "--timeout", "50ms")
        #expect(done.status == 75, "\(done.errors)")
    }

    @Test func namesTheFileThatMayBeMeant() throws {
        let places = try Places()
        try makeStore(places.legacy.appending("Notes.sqlite"), rows: 1)
        let typo = places.legacy.appending("Notse.sqlite")
        let text = try groupstore("relocate", Word(typo), Word(places.group))
        #expect(text.status == 74)
        #expect(text.errors.contains("there is no file \(typo)"), "\(text.errors)")
        #expect(text.errors.contains("did you mean \(places.legacy.appending("Notes.sqlite"))?"))
        let done = try groupstore("relocate", Word(typo), Word(places.group), "--json")
        #expect(done.summary.object("error")?.string("code") == "no_store")
        #expect(done.summary.string("nearest") == places.legacy.appending("Notes.sqlite").string)
        let elsewhere = try groupstore("relocate", "/nonexistent/Notes.sqlite", Word(places.group))
        #expect(elsewhere.errors.contains("there is no directory /nonexistent"), "\(elsewhere.errors)")
        // A store in the group is what the caller wanted.
        try makeStore(places.group.appending("Notse.sqlite"), rows: 1)
        #expect(try groupstore("relocate", Word(typo), Word(places.group)).status == 0)
    }

    @Test func acceptsTheFormerNameOfTheModelVersion() throws {
        let known = try groupstore("create", "/nonexistent/a.sqlite", "--model", "/nonexistent/M", "--version", "Notes")
        #expect(known.status == 74, "\(known.errors)")
        #expect(try groupstore("create", "--version").output == groupstore("--version").output)
    }

    @Test(arguments: [20, 40, 80, 200])
    func theProgressBarFitsTheTerminal(_ columns: Int) throws {
        let places = try Places(.another)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 200, padding: 20_000)
        let script = """
            import os, pty, sys, fcntl, termios, struct
            pid, terminal = pty.fork()
            if pid == 0:
                fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
                os.execv(sys.argv[2], sys.argv[2:])
            seen = b""
            while True:
                try:
                    part = os.read(terminal, 65536)
                except OSError:
                    break
                if not part:
                    break
                seen += part
            os.waitpid(pid, 0)
            sys.stdout.write(seen.decode())
            """
        let done = try run(
            "python3",
            [
                "-c", Word(script), Word("\(columns)"), Programs.groupstore, "relocate", Word(store.path),
                Word(places.group),
            ],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        let bars = done.output.split(separator: "\r").compactMap { part -> Substring? in
            part.hasPrefix("\u{1B}[K") ? part.dropFirst(3).prefix { $0 != "\n" } : nil
        }.filter { $0.contains("█") || $0.contains("·") }
        #expect(!bars.isEmpty, "\(done.output)")
        for bar in bars { #expect(bar.count < columns, "\(bar)") }
        if columns >= 80 { #expect(bars.contains { $0.count > 70 && $0.contains(" of ") }, "\(bars)") }
    }

    /// 2023-11-14T22:13:20Z, at a place three hours to the east.
    @Test func timesAreLocalWithTheirDate() throws {
        let places = try Places()
        let store = places.group.appending("Notes.sqlite")
        try sqlite(store, "CREATE TABLE note (text)")
        try run("touch", ["-d", "@1700000000", Word(store)])
        let done = try groupstore("inspect", Word(store), environment: ["TZ": "XXX-3"])
        #expect(done.output.contains("2023-11-15 01:13:20"), "\(done.output)")
        // JSON is for programs.
        let json = try groupstore("inspect", "--json", Word(store), environment: ["TZ": "XXX-3"])
        #expect(json.objects.first?.string("modified")?.hasPrefix("2023-11-14T22:13:20") == true, "\(json.output)")
    }
}

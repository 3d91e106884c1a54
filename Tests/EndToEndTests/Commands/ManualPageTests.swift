import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The manual pages that a package installs, compared with the program.
@Suite(.ownThreads) struct ManualPageTests {
    private let scratch: TemporaryDirectory
    private let pages: [String]

    init() throws {
        scratch = try TemporaryDirectory()
        for program in [Programs.groupstore, Programs.relay] {
            let done = try run("python3", [Programs.source("Packaging/manual"), program, Word(scratch.path)])
            try #require(done.status == 0, "\(done.errors)")
        }
        pages = try Directory(scratch.path).names().compactMap(\.utf8).sorted()
    }

    private func text(_ page: String) throws -> String {
        try run("cat", [Word(scratch.path.appending(page))]).output.replacing("\\-", with: "-")
    }

    @Test func eachPageIsWhole() throws {
        #expect(pages.count > 40 && pages.contains("groupstore-config.5") && pages.contains("groupstore-relay.1"))
        for page in pages {
            let text = try text(page)
            var sections = ["NAME", "SYNOPSIS", "ENVIRONMENT", "FILES", "SEE ALSO"]
            if page.hasSuffix(".1") { sections.append("EXIT STATUS") }
            if !text.contains("\n.SH COMMANDS") || page == "groupstore.1" { sections.append("EXAMPLES") }
            for section in sections { #expect(text.contains("\n.SH \(section)\n"), "\(page) has no \(section)") }
            #expect(!text.contains("@version@") && !text.contains("@date@"))
        }
    }

    @Test(arguments: [["man", "--warnings", "-l"], ["mandoc", "-T", "lint", "-W", "warning"]] as [[Word]])
    func eachPageIsValid(_ checker: [Word]) throws {
        guard (try? run("sh", ["-c", "command -v \(checker[0])"]))?.status == 0 else {
            return print("skipped: \(checker[0]) isn't installed")
        }
        for page in pages {
            let done = try run(
                checker[0], Array(checker.dropFirst()) + [Word(scratch.path.appending(page))],
                environment: ["MANROFFSEQ": "", "MANWIDTH": "200", "LC_ALL": "C.UTF-8"])
            let complaints = "\(checker[0])" == "mandoc" ? done.output : done.errors
            #expect(complaints.isEmpty, "\(complaints)")
        }
    }

    /// The options of a page are those of the help, and its examples use no others.
    @Test func pagesHaveTheOptionsOfTheHelp() throws {
        for page in pages where page.hasPrefix("groupstore") && page.hasSuffix(".1") && !page.contains("relay") {
            let words = try commandWords(page)
            let help = try groupstore(options: words + ["--help"]).lines
            let offered = Set(help.filter { $0.hasPrefix("  -") }.flatMap(Self.options))
            let text = try text(page)
            let section =
                text.split(separator: "\n.SH OPTIONS\n").dropFirst().first?.split(separator: "\n.SH ").first ?? ""
            let listed = section.split(separator: "\n.TP\n").flatMap { entry in
                Self.options(String(entry.split(separator: "\n").first { $0.hasPrefix("\\fB-") } ?? ""))
            }
            #expect(Set(listed) == offered, "\(page)")
            guard let example = text.split(separator: "\n.SH EXAMPLES\n").dropFirst().first, !words.isEmpty else {
                continue
            }
            let used = example.split(separator: "\n.SH ")[0].split(separator: "\n").flatMap { Self.options(String($0)) }
            #expect(Set(used).isSubset(of: offered), "\(page): \(used)")
        }
    }

    /// Returns the words of the page's command, without the program's.
    private func commandWords(_ page: String) throws -> [Word] {
        let line = try text(page).split(separator: "\n.SH SYNOPSIS\n").last?.split(separator: "\n").first ?? ""
        let words = line.replacing("\\fB", with: "").split(separator: "\\fR").first?.split(separator: " ") ?? []
        return words.dropFirst().map { Word("\($0)") }
    }

    private static func options(_ line: String) -> [String] {
        line.replacing("\\fB", with: "").replacing("\\fR", with: "").split(whereSeparator: { " ,/[]=".contains($0) })
            .map(String.init).filter { $0.hasPrefix("--") && $0 != "--" }
    }

    /// Each variable that the sources name is on a page.
    @Test func namesEachEnvironmentVariable() throws {
        let found = try run(
            "grep",
            ["-rhoE", "\"GROUPSTORE_[A-Z_]+\"", Programs.source("Sources/Programs"), Programs.source("Agent")]
                + ["Sources/Sharing", "Sources/SQLite", "Sources/Relay"].map { Programs.source($0) })
        let variables = Set(found.lines.map { $0.replacing("\"", with: "") })
        #expect(variables.contains("GROUPSTORE_SOCKET") && variables.contains("GROUPSTORE_SQL_DEBUG"))
        let all = try pages.map(text).joined()
        for variable in variables { #expect(all.contains(variable), "no page has \(variable)") }
    }

    /// The keys of groupstore-config(5) are those that the parser names when it meets an unknown one.
    @Test(arguments: [
        ("FILE", "unknown: 1\n"), ("SOCKET", "socket: { unknown: 1 }\ngroups: []\n"),
        ("A GROUP", "groups: [{ unknown: 1 }]\n"), ("A STORE", "groups: [{ id: a, stores: [{ unknown: 1 }] }]\n"),
        ("AN APP", "groups: [{ id: a, apps: [{ unknown: 1 }] }]\n"),
    ])
    func theConfigurationsPageHasTheParsersKeys(_ subject: String, _ configuration: String) throws {
        let file = scratch.path.appending("config.yaml")
        try write(configuration, to: file)
        let done = try groupstore("agent", "--check", "--config", Word(file))
        let known = try #require(
            done.errors.split(separator: "(one of: ").dropFirst().first?.split(separator: ")").first)
        let keys = Set(known.split(separator: ", ").map(String.init))
        let heading = "\n.SH KEYS OF \(subject == "FILE" ? "THE FILE" : subject)\n"
        let section = try #require(try text("groupstore-config.5").split(separator: heading).dropFirst().first)
        let entries = section.split(separator: "\n.SH ")[0].split(
            separator: "\n.TP\n", omittingEmptySubsequences: false)
        let listed = entries.compactMap { entry -> String? in
            guard let start = entry.firstRange(of: "\\fB") else { return nil }
            return String(entry[start.upperBound...].prefix { $0 != "\\" })
        }
        #expect(Set(listed) == keys, "\(listed) \(keys)")
    }
}

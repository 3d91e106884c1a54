import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

/// `apps:` of a group's entry.
@Suite struct ConfigurationAppTests {
    private let home: TemporaryDirectory

    init() throws { home = try TemporaryDirectory() }

    private func parse(_ text: String) throws(ConfigurationError) -> Configuration {
        let environment = ["HOME": home.path.string, "XDG_DATA_DIRS": home.path.appending("share").string]
        return try ConfigurationFile("/etc/test.yaml", environment: environment)
            .parse(text.replacing("HOME", with: home.path.string))
    }

    /// A group with an app whose entry begins on line 5.
    private static func app(_ lines: String) -> String {
        "groups:\n  - directory: HOME/g\n    id: a\n    apps:\n      - \(lines)"
    }

    private func makeRecipe(_ name: String, _ text: String) throws {
        let directory = home.path.pushing("share/groupstore/apps.d")
        try run("mkdir", ["-p", Word(directory)])
        let file = try Directory(directory).open(
            try #require(FilePath.Component(name + ".yaml")), flags: O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
        try file.write(Array(text.utf8), at: 0)
    }

    @Test func parsesEveryKey() throws {
        let recipe = "recipe: 1\nname: r\nabout: R\ndirectory: ~/.r\nstores: [r.db]\nrewrite: true\n"
        try makeRecipe("r", recipe)
        let configuration = try parse(
            """
            groups:
              - id: a
                directory: ~/g
                apps:
                  - app: ~/.notes
                    destination: data
                    rewrite: [{ old: ~/.notes, new: /srv/notes }]
                    settle: 0ms
                    deadline: 5s
                    stop-holders: true
                    assume-closed: true
                  - app: flatpak:com.example.Notes/cache
                    rewrite: true
                  - recipe: r
                    destination: ~/g/other
            """)
        let home = home.path
        let apps = try #require(configuration.groups.first?.apps)
        let sources = [".notes", ".var/app/com.example.Notes/cache", ".r"].map { home.pushing(FilePath($0)) }
        #expect(apps.map(\.source) == sources)
        #expect(apps.map(\.name.string) == ["data", "cache", "other"])
        var first = Configuration.App(source: home.appending(".notes"), name: "data")
        first.rewrites = [try #require(PathRewrite(old: home.appending(".notes"), new: "/srv/notes"))]
        (first.settle, first.deadline, first.stopsHolders, first.assumeClosed) = (.zero, .seconds(5), true, true)
        #expect(apps.first == first)
        #expect(apps.map(\.rewritesOwnPath) == [false, true, true])
        #expect(apps.last?.recipe?.name == "r")
    }

    struct Mistake: CustomTestStringConvertible, Sendable {
        let line: Int?
        let word: String
        let text: String
        var testDescription: String { word }
    }

    static let mistakes = [
        Mistake(line: 5, word: "unknown key to in an app", text: app("{ app: /x, to: y }")),
        Mistake(line: 5, word: "neither app nor recipe", text: app("{ destination: y }")),
        Mistake(line: 5, word: "not an absolute path", text: app("{ app: notes }")),
        Mistake(line: 5, word: "is no program's directory", text: app("{ app: / }")),
        Mistake(line: 5, word: "is its own destination", text: app("{ app: HOME/g/x }")),
        Mistake(line: 5, word: "is inside HOME/g", text: app("{ app: HOME/g, destination: x }")),
        Mistake(line: 5, word: "the home directory", text: app("{ app: '~', destination: x }")),
        Mistake(line: 5, word: "the home directory", text: app("{ app: HOME/, destination: x }")),
        Mistake(line: 5, word: "the home directory", text: app("{ app: HOME/.., destination: x }")),
        Mistake(line: 5, word: "can't be a directory in the group", text: app("{ app: /x, destination: S.db-wal }")),
        Mistake(line: 5, word: "can't be a directory in the group", text: app("{ app: /x, destination: s-SHM }")),
        Mistake(line: 5, word: "can't be a directory in the group", text: app("{ app: /x/S.db-journal }")),
        Mistake(line: 5, word: "can't be a directory in the group", text: app("{ app: /x, destination: .S_SUPPORT }")),
        Mistake(line: 5, word: "can't be a directory in", text: app("{ app: /x, destination: .groupstore-x }")),
        Mistake(line: 5, word: "is inside its destination", text: app("{ app: HOME/g/x/y, destination: x }")),
        Mistake(line: 5, word: "is no place in the group's directory", text: app("{ app: /x, destination: a/b }")),
        Mistake(line: 5, word: "is no place in the group's directory", text: app("{ app: /x, destination: /srv/x }")),
        Mistake(line: 5, word: "is no place in the group's directory", text: app("{ app: /x, destination: .. }")),
        Mistake(line: 5, word: "is no place in the", text: app("{ app: /x, destination: .groupstore }")),
        Mistake(line: 5, word: "there is no recipe nosuch", text: app("{ recipe: nosuch }")),
        Mistake(line: 5, word: "the recipe can't be used", text: app("{ app: /x, recipe: /nonexistent.yaml }")),
        Mistake(line: 5, word: "rewrite can't be maybe", text: app("{ app: /x, rewrite: maybe }")),
        Mistake(line: 5, word: "has no new", text: app("{ app: /x, rewrite: [{ old: /a }] }")),
        Mistake(
            line: 5, word: "twice", text: app("{ app: /x, rewrite: [{ old: /a, new: /b }, { old: /a, new: /c }] }")),
        Mistake(line: 5, word: "is not a duration", text: app("{ app: /x, deadline: soon }")),
        Mistake(line: 6, word: "are one directory", text: app("{ app: /x }\n      - { app: /x, destination: y }")),
        Mistake(line: 6, word: "one is in the other", text: app("{ app: /x }\n      - { app: /x/y }")),
        Mistake(line: 6, word: "two stores for one file", text: app("{ app: /x/n }\n      - { app: /y/n }")),
        Mistake(
            line: 6, word: "the legacy store of a",
            text: "groups:\n  - id: a\n    directory: HOME/g\n    stores: [{ name: S, legacy: [/x/S] }]\n    apps:\n"
                + "      - { app: /x }"),
        Mistake(
            line: 6, word: "the directory of b",
            text: app("{ app: HOME/h }\n  - { id: b, directory: HOME/h/i }")),
    ]

    @Test(arguments: mistakes)
    func reportsAMistakeWithItsLine(_ mistake: Mistake) throws {
        let error = #expect(throws: ConfigurationError.self) { try parse(mistake.text) }
        let word = mistake.word.replacing("HOME", with: home.path.string)
        #expect(error?.message.contains(word) == true, "\(String(describing: error))")
        #expect(error?.line == mistake.line, "\(String(describing: error))")
        #expect(error?.remedy.isEmpty == false)
    }

    @Test func refusesARecipeThatSaysNoPlace() throws {
        try makeRecipe("p", "recipe: 1\nname: p\nabout: P\nstores: [p.db]\n")
        let error = #expect(throws: ConfigurationError.self) { try parse(Self.app("{ recipe: p }")) }
        #expect(error?.message.contains("doesn't say where") == true)
    }

    /// The app's directory, and perhaps what the link leads to, comes later.
    @Test(arguments: [true, false]) func findsAnOverlapThroughALinkBeforeTheDirectoryIsThere(isTargetThere: Bool) throws
    {
        if isTargetThere { try run("mkdir", [Word(home.path.appending("real"))]) }
        try run("ln", ["-s", "real", Word(home.path.appending("alias"))])
        let (app, legacy) = ("apps: [{ app: HOME/real/n }]", "stores: [{ name: S, legacy: [HOME/alias/n/S] }]")
        let two = "apps: [{ app: HOME/real/n }, { app: HOME/alias/n/inner, destination: y }]"
        let inner = "\(app)\n  - id: b\n    directory: HOME/alias/n/g"
        for text in ["\(legacy)\n    \(app)", two, inner] {
            let error = #expect(throws: ConfigurationError.self) {
                try parse("groups:\n  - id: a\n    directory: HOME/g\n    \(text)")
            }
            #expect(error?.message.contains("one is in the other") == true, "\(String(describing: error))")
        }
    }

    /// As after the move, when a link leads from one to the other.
    @Test func findsThatAStoreIsInAnAppsDirectoryThroughTheLink() throws {
        try run("mkdir", ["-p", Word(home.path.pushing("g/n"))])
        try run("ln", ["-s", "g/n", Word(home.path.appending("n"))])
        let text =
            "groups:\n  - id: a\n    directory: HOME/g\n    stores: [{ name: S, legacy: [HOME/n/S] }]\n"
            + "    apps: [{ app: HOME/n }]"
        let error = #expect(throws: ConfigurationError.self) { try parse(text) }
        #expect(error?.message.contains("the legacy store of a") == true)
    }
}

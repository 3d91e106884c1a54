import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A model in two versions, stores of both versions, and stores of an unrelated model.
package struct ModelStores {
    package static let old = """
        <entity name="Note"><attribute name="title" optional="YES" attributeType="String"/>
        <relationship name="tags" optional="YES" toMany="YES" deletionRule="Nullify" destinationEntity="Tag"
          inverseName="notes" inverseEntity="Tag"/></entity>
        <entity name="Tag"><attribute name="word" optional="YES" attributeType="String"/>
        <relationship name="notes" optional="YES" toMany="YES" deletionRule="Cascade" destinationEntity="Note"
          inverseName="tags" inverseEntity="Note"/></entity>
        """
    /// The newer version, which renames the title.
    package static let new = old.replacing(
        "<attribute name=\"title\"", with: "<attribute name=\"caption\" elementID=\"title\"")

    package let places: Places
    /// The model with the versions `Notes` and `Notes 2`, the current one.
    package let model: FilePath
    private let scratch: TemporaryDirectory
    private let alien: FilePath

    package init(_ fileSystem: Places.FileSystem = .same) throws {
        places = try Places(fileSystem)
        scratch = try TemporaryDirectory()
        model = try ModelBundle.make(in: scratch, [("Notes", Self.old), ("Notes 2", Self.new)])
        alien = try ModelBundle.make(
            in: scratch, named: "Alien",
            [("Alien", "<entity name='Alien'><attribute name='word' optional='YES' attributeType='String'/></entity>")])
    }

    package var legacy: FilePath { places.legacy.appending("Notes.sqlite") }
    package var group: FilePath { places.group.appending("Notes.sqlite") }
    package var configuration: FilePath { places.scratch("config.yaml") }

    /// Makes a store of the older version, with `notes` notes of this title.
    @discardableResult
    package func makeOld(_ path: FilePath, title: String = "old", notes: Int = 1) throws -> StoreFiles {
        try create(path, model, version: "Notes")
        try sqlite(
            path,
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(notes))
            INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) SELECT i, 1, 1, '\(title)' FROM n;
            UPDATE Z_PRIMARYKEY SET Z_MAX = \(notes) WHERE Z_NAME = 'Note'
            """)
        return try StoreFiles(path)
    }

    /// Makes a store that can't be migrated to the model, with a row and external data.
    @discardableResult
    package func makeAlien(_ path: FilePath) throws -> StoreFiles {
        try create(path, alien, version: "Alien")
        try sqlite(path, "INSERT INTO ZALIEN (Z_PK, Z_ENT, Z_OPT, ZWORD) VALUES (1, 1, 1, 'precious')")
        let store = try StoreFiles(path)
        try run("mkdir", ["-p", Word(store.support.appending("_EXTERNAL_DATA"))])
        try write("blob", to: store.support.appending("_EXTERNAL_DATA/1F2E"))
        return store
    }

    private func create(_ path: FilePath, _ model: FilePath, version: String) throws {
        let made = try groupstore("create", Word(path), "--model", Word(model), "--version", Word(version))
        guard made.status == 0 else { throw Unexpected(made.errors) }
    }

    /// Returns the notes' titles in a store of the newer version.
    package func captions(_ path: FilePath) throws -> String {
        try sqlite(path, "SELECT group_concat(ZCAPTION, ' ') FROM ZNOTE").trimmed
    }

    package func relocate(_ options: Word..., environment: [String: String] = [:]) throws -> FinishedProcess {
        try groupstore(
            "relocate", Word(legacy), Word(places.group), "--model", Word(model), "--json", options: options,
            environment: environment)
    }

    /// Returns the stores in the archive, each whole.
    package func archived() throws -> [StoreFiles] {
        let archive = places.group.appending(".groupstore/archive")
        guard FileStatus(following: archive) != nil else { return [] }
        return try Directory(archive).names().map {
            try StoreFiles(archive.appending($0).appending("Notes.sqlite"))
        }
    }

    /// Fails unless the archive holds exactly one store: the whole alien one, with a note that gives the reason.
    package func expectAlienIsArchived(_ circumstances: String = "") throws {
        let archived = try archived()
        #expect(archived.count == 1, "\(circumstances)")
        for store in archived {
            #expect(try sqlite(store.path, "SELECT ZWORD FROM ZALIEN") == "precious\n", "\(circumstances)")
            let blob = store.support.appending("_EXTERNAL_DATA/1F2E")
            #expect(try run("cat", [Word(blob)]).output == "blob", "\(circumstances)")
            let note = try run("cat", [Word(store.directory.appending("about.json"))]).output
            #expect(note.contains("it can't be migrated"), "\(circumstances)")
        }
    }

    /// Starts an agent with these configuration lines for the store.
    package func agent(_ lines: String...) throws -> AgentProcess {
        let store = lines.map { "        \($0)\n" }.joined()
        try write(
            """
            groups:
              - id: \(AgentProcess.group)
                directory: \(places.group)
                stores:
                  - name: Notes.sqlite
                    settle: 1ms

            """ + store, to: configuration)
        return try AgentProcess(["--config", Word(configuration)], socket: places.scratch("agent.sock"))
    }
}

extension String {
    package var trimmed: String { String(trimmingSuffix { $0 == "\n" }) }
    private func trimmingSuffix(_ isLeftOut: (Character) -> Bool) -> Substring {
        var text = self[...]
        while let last = text.last, isLeftOut(last) { text.removeLast() }
        return text
    }
}

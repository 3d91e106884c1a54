import AgentProtocol
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The records of a group container, as releases wrote them.
@Suite struct RecordedRecordTests {
    private let scratch: TemporaryDirectory
    private let container: GroupContainer

    init() throws {
        scratch = try TemporaryDirectory()
        container = try GroupContainer(scratch.path)
    }

    private func put(_ bytes: [UInt8], as name: FilePath.Component, in directory: Directory) throws {
        try DurableFile.write(bytes, as: name, in: directory, mode: 0o600)
    }

    /// Returns true if a record that was read and written again has all that it had.
    private func keepsAll(_ bytes: [UInt8], _ name: FilePath.Component, in directory: Directory) throws -> Bool {
        let written = try #require(try DurableFile.readWithStatus(name, in: directory)?.bytes)
        return try JSONValue(parsing: written).includes(JSONValue(parsing: bytes))
    }

    @Test(arguments: RecordedVersion.all) func understandsJournalsOfEachState(_ version: RecordedVersion) throws {
        var states: Set<String> = []
        for (name, bytes) in try version.files(in: "journals") {
            let bookkeeping = try container.bookkeeping()
            try put(bytes, as: "journal.json", in: bookkeeping)
            let journal = try #require(try container.journal(), "\(name)")
            let state =
                switch journal.state {
                case .intended: "intended"
                case .withdrawn: "withdrawn"
                case .committing: "committing"
                }
            #expect(name.hasSuffix(".\(state).json"))
            states.insert(state)
            let purpose =
                switch journal.transfer.purpose {
                case .publish: "publish"
                case .archive: "archive"
                case .restore: "restore"
                case .discard: "discard"
                }
            #expect(name.hasPrefix(purpose) || name.hasPrefix("undo") && purpose == "restore", "\(name): \(purpose)")
            #expect(journal.transfer.directory.path.string.hasPrefix("/tmp/groupstore-compatibility/"))
            try container.write(journal)
            #expect(try keepsAll(bytes, "journal.json", in: bookkeeping), "\(name)")
        }
        #expect(states == ["intended", "withdrawn", "committing"])
    }

    @Test(arguments: RecordedVersion.all) func understandsReceipts(_ version: RecordedVersion) throws {
        let files = try version.files(in: "receipts")
        var methods: Set<Transfer.Method> = []
        for (name, bytes) in files {
            let id = try #require(RecordedVersion.object(bytes).string("id"))
            let file = try #require(FilePath.Component("\(id).json"))
            let directory = try TemporaryDirectory()
            let group = try GroupContainer(directory.path)
            let bookkeeping = try group.bookkeeping()
            try bookkeeping.makeDirectory("receipts", mode: 0o700)
            let receipts = try bookkeeping.directory("receipts")
            try put(bytes, as: file, in: receipts)
            let receipt = try #require(try group.receipts().first, "\(name)")
            methods.insert(receipt.method)
            #expect(receipt.published != nil)
            try group.write(receipt)
            #expect(try keepsAll(bytes, file, in: receipts), "\(name)")
        }
        #expect(methods.isSuperset(of: [.rename, .migrate, .merge]))
    }

    @Test(arguments: RecordedVersion.all) func understandsArchiveNotes(_ version: RecordedVersion) throws {
        let files = try version.files(in: "archives")
        #expect(!files.isEmpty)
        for (name, bytes) in files {
            let object = try RecordedVersion.object(bytes)
            let id = try #require(object.string("id").flatMap(TransferIdentifier.init))
            let set = try container.archive(id)
            try put(bytes, as: "about.json", in: set)
            let entry = try #require(try container.archives().first { $0.id == id }, "\(name)")
            let note = try #require(entry.note, "\(name)")
            #expect(entry.isTrusted && note.reason == object.string("reason"))
            #expect((note.archived != nil) == (object["archived"] != nil))
            #expect((note.restored != nil) == (name == "restored.json"))
            try container.write(note)
            #expect(try keepsAll(bytes, "about.json", in: set), "\(name)")
        }
    }

    @Test func refusesARecordOfALaterVersion() throws {
        let version = try #require(RecordedVersion.all.first)
        let (_, bytes) = try #require(try version.files(in: "journals").first)
        let later = String(decoding: bytes, as: UTF8.self).replacing("\"version\" : 1", with: "\"version\" : 2")
        try put(Array(later.utf8), as: "journal.json", in: container.bookkeeping())
        #expect(throws: UnreadableRecord.self) { try container.journal() }
    }
}

import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite struct RecordTests {
    private let root: TemporaryDirectory
    private let container: GroupContainer

    init() throws {
        root = try TemporaryDirectory()
        container = try GroupContainer(root.path)
    }

    private func transfer() -> Transfer {
        Transfer(
            id: TransferIdentifier(), purpose: .publish(as: StoredPath("Notes.sqlite")), directory: "/old/place",
            name: "Notes.sqlite", database: FileIdentity(device: 1, inode: 2), support: nil, copies: false,
            retirement: .delete, hadWAL: true)
    }

    @Test func readingCreatesNothing() throws {
        #expect(try container.journal() == nil)
        #expect(try container.receipts().isEmpty)
        #expect(try container.directory.names().isEmpty)
    }

    @Test func readsAJournalAsItWasWritten() throws {
        let id = FileIdentity(device: UInt64.max, inode: UInt64.max - 1)
        for state in [TransferState.intended, .withdrawn, .committing(database: id, support: id, receipt: nil)] {
            var journal = TransferJournal(transfer: transfer(), state: state)
            journal.transfer.closedSupport = id
            try container.write(journal)
            #expect(try container.journal() == journal)
        }
        try container.removeJournal()
        #expect(try container.journal() == nil)
    }

    @Test func storesPathsOfAnyBytes() throws {
        let name = try #require(FilePath.Component(bytes: [0x61, 0xFF, 0x0A, 0x22, 0x62]))
        var transfer = transfer()
        transfer.directory = StoredPath(FilePath("/old").appending(name))
        let journal = TransferJournal(transfer: transfer, state: .intended)
        try container.write(journal)
        #expect(try container.journal()?.transfer.directory.path.lastComponent == name)
    }

    @Test func refusesADamagedJournal() throws {
        try container.write(TransferJournal(transfer: transfer(), state: .intended))
        let bookkeeping = try container.bookkeeping()
        for text in ["", "{", "{\"version\":1}", "{\"version\":2}", "[]"] {
            try DurableFile.write(Array(text.utf8), as: "journal.json", in: bookkeeping, mode: 0o600)
            #expect(throws: UnreadableRecord.self) { try container.journal() }
        }
    }

    /// Of two archived copies of one second, the later one counts.
    @Test func identifiersSortInTheOrderInWhichTheyWereMade() {
        let made = (0..<50).map { _ in
            pause(.microseconds(50))
            return TransferIdentifier().rawValue
        }
        #expect(made == made.sorted())
        #expect(made.allSatisfy { TransferIdentifier($0) != nil })
    }

    @Test func sortsReceiptsByTime() throws {
        for (offset, name) in [(20.0, "b"), (10.0, "a"), (30.0, "a")] {
            let component = try #require(FilePath.Component(name))
            try container.write(
                RelocationReceipt(
                    id: TransferIdentifier(), name: component, from: "/old/a",
                    at: Date(timeIntervalSince1970: offset), method: .rename, bytes: 1, hash: nil, changeCounter: 1,
                    storeUUID: nil, retirement: .delete, assumedClosed: false))
        }
        #expect(try container.receipts().map(\.at.timeIntervalSince1970) == [10, 20, 30])
        #expect(try container.receipts(of: "a").count == 2)
    }

    /// A store that goes to and fro within one second: the last receipt says where it came from.
    @Test func sortsReceiptsOfOneSecondByTheirFiles() throws {
        let places: [FilePath] = ["/f/a", "/b/a", "/e/a", "/a/a", "/d/a", "/c/a"]
        for (number, place) in places.enumerated() {
            let id = TransferIdentifier()
            try container.write(
                RelocationReceipt(
                    id: id, name: "a", from: place, at: Date(timeIntervalSince1970: 10), method: .rename, bytes: 1,
                    hash: nil, changeCounter: 1, storeUUID: nil, retirement: .symlink, assumedClosed: false))
            let file = try container.bookkeeping().directory("receipts").path.appending("\(id).json")
            #expect(try run("touch", ["-d", Word("@10.00\(number)"), Word(file)]).status == 0)
        }
        #expect(try container.receipts().map(\.from.path) == places)
    }

    @Test func ignoresFractionsOfASecond() throws {
        let receipt = RelocationReceipt(
            id: TransferIdentifier(), name: "a", from: "/old/a", at: Date(timeIntervalSince1970: 10), method: .rename,
            bytes: 1, hash: nil, changeCounter: 1, storeUUID: nil, retirement: .delete, assumedClosed: false)
        try container.write(receipt)
        let receipts = try container.bookkeeping().directory("receipts")
        let name = try #require(try receipts.names().first)
        let text = String(decoding: try #require(try DurableFile.read(name, in: receipts)), as: UTF8.self)
        let changed = text.replacing("00:00:10Z", with: "00:00:10.5Z")
        #expect(changed != text)
        try DurableFile.write(Array(changed.utf8), as: name, in: receipts, mode: 0o600)
        #expect(try container.receipts() == [receipt])
    }

    @Test func admitsOneLockHolder() throws {
        guard let first = try container.lock() else {
            return #expect(Bool(false), "the lock is free, and wasn't given")
        }
        try first.write(note: Array("42 test".utf8))
        let isFree = try container.lock() != nil
        #expect(!isFree)
        #expect(container.lockHolder() == "42 test")
        _ = consume first
        // A program that another test is starting shares the lock's descriptor until it runs.
        let deadline = Deadline(after: .ample)
        var isFreeAgain = false
        while !isFreeAgain, !deadline.hasPassed { isFreeAgain = try container.lock() != nil }
        #expect(isFreeAgain)
    }

    @Test func refusesALinkInPlaceOfBookkeeping() throws {
        let elsewhere = try TemporaryDirectory()
        try container.directory.makeSymbolicLink(GroupContainer.bookkeepingName, to: elsewhere.path)
        #expect(throws: SystemError.self) { try container.bookkeeping() }
        #expect(try Directory(elsewhere.path).names().isEmpty)
    }

    @Test func limitsPermissionsToThoseOfTheGroup() throws {
        let narrow: FilePath.Component = "narrow"
        try container.directory.makeDirectory(narrow, mode: 0o700)
        let inner = try GroupContainer(root.path.appending(narrow))
        try inner.write(TransferJournal(transfer: transfer(), state: .intended))
        let bookkeeping = try inner.bookkeeping()
        #expect(try bookkeeping.status().permissions == 0o700)
        #expect(try bookkeeping.status("journal.json")?.permissions == 0o600)
    }

    /// Anybody who may write to the container could leave a journal there for the next user to run.
    @Test func trustsAJournalOnlyForItsWritersDirectories() throws {
        var journal = TransferJournal(transfer: transfer(), state: .intended)
        let mine = try container.directory.status().owner
        for (writer, isBelieved) in [(geteuid(), true), (0, true), (mine, true), (54_321, false)] {
            journal.writer = writer
            if isBelieved {
                #expect(try journal.directory(root.path).identity == container.directory.identity)
            } else {
                #expect(throws: UntrustedJournal.self) { try journal.directory(root.path) }
            }
        }
    }

    @Test func refusesAJournalThatOthersMayWrite() throws {
        try container.write(TransferJournal(transfer: transfer(), state: .intended))
        let file = try container.bookkeeping().open("journal.json", flags: O_RDONLY)
        #expect(fchmod(file.raw, 0o620) == 0)
        #expect(throws: UnreadableRecord.self) { try container.journal() }
        #expect(fchmod(file.raw, 0o644) == 0)
        #expect(try container.journal() != nil)
    }

    /// In a directory that others may write to, one of our names may be a second name of another user's file.
    @Test func refusesAFileWithASecondName() throws {
        let victim = try TemporaryDirectory()
        let elsewhere = try Directory(victim.path)
        try elsewhere.open("file", flags: O_WRONLY | O_CREAT, mode: 0o600).write(Array("kept".utf8), at: 0)
        let bookkeeping = try container.bookkeeping()
        for name: FilePath.Component in ["lock", "journal.json"] {
            try elsewhere.link("file", as: name, in: bookkeeping)
        }
        #expect(throws: SystemError.self) { _ = try container.lock() }
        #expect(throws: SystemError.self) { try container.journal() }
        #expect(try elsewhere.open("file", flags: O_RDONLY).read(count: 9, at: 0) == Array("kept".utf8))
    }

    @Test func acceptsOnlyFileNamesAsIdentifiers() {
        #expect(TransferIdentifier("../../etc") == nil)
        #expect(TransferIdentifier("1-") == nil)
        #expect(TransferIdentifier("12-a.b") == nil)
        #expect(TransferIdentifier(TransferIdentifier().rawValue) != nil)
    }
}

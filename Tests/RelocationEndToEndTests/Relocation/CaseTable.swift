import EndToEndSupport
import SystemPackage
import TestSupport
import Testing

/// One line of the table of situations and the relocation's response to each, tested through the public interface.
struct CaseTableLine: Sendable, CustomTestStringConvertible {
    /// The effect on the places, apart from the output.
    enum Effect: Sendable {
        /// Both directories stay the same, byte for byte.
        case nothing
        /// The group has a store of `notes` notes, and the legacy place has none. `archived` lists the note counts of
        /// the archived stores.
        case moved(notes: Int, archived: [Int] = [])
        /// The same as `moved`, for a file that nobody can read.
        case movedUnread
        /// The legacy place has no database any more, and the group's database stays the same, byte for byte.
        case kept(archived: [Int] = [])
    }

    let name: String
    var options: [Word] = []
    let outcome: String
    var status: Int32 = 0
    /// The error's code, for a refused line.
    var code: String?
    let effect: Effect
    /// The legacy store's state in the agent's status; nil if the agent's configuration can't express the options.
    let state: String?
    var fileSystems = Places.FileSystem.allCases
    /// Sets up the situation. The legacy store is `legacy/Notes.sqlite`, the group's `group/Notes.sqlite`.
    let arrange: @Sendable (Places) throws -> Void

    init(
        _ name: String, _ options: Word..., outcome: String, status: Int32 = 0, code: String? = nil, effect: Effect,
        state: String?, arrange: @escaping @Sendable (Places) throws -> Void
    ) {
        self.name = name
        self.options = options
        self.outcome = outcome
        self.status = status
        self.code = code
        self.effect = effect
        self.state = state
        self.arrange = arrange
    }

    /// Makes a line that changes nothing and gives a reason.
    static func refused(
        _ name: String, _ options: Word..., outcome: String = "refused", status: Int32 = 65, code: String,
        state: String? = "refused", fileSystems: [Places.FileSystem] = Places.FileSystem.allCases,
        arrange: @escaping @Sendable (Places) throws -> Void
    ) -> CaseTableLine {
        var line = CaseTableLine(
            name, outcome: outcome, status: status, code: code, effect: .nothing, state: state, arrange: arrange)
        line.options = options
        line.fileSystems = fileSystems
        return line
    }

    var testDescription: String { name }
}

extension Places {
    var legacyStore: FilePath { legacy.appending("Notes.sqlite") }
    var groupStore: FilePath { group.appending("Notes.sqlite") }
}

/// The lines, in the order of the design's table.
enum CaseTable {
    static let lines = nothingToMove + moved + bothThere + notAStore

    private static let nothingToMove: [CaseTableLine] = [
        .refused("nothing anywhere", status: 74, code: "no_store", state: nil) { _ in },
        CaseTableLine("a store in the group alone", outcome: "nothing_to_do", effect: .nothing, state: "absent") {
            try makeStore($0.groupStore, rows: 7)
        },
        .refused("nothing, and side files in the group", status: 74, code: "no_store", state: nil) {
            try write("left", to: $0.group.appending("Notes.sqlite-wal"))
        },
        CaseTableLine("zero bytes", outcome: "nothing_to_do", effect: .nothing, state: "absent") {
            try write("", to: $0.legacyStore)
        },
        CaseTableLine(
            "zero bytes, and a store in the group", outcome: "nothing_to_do", effect: .nothing, state: "absent"
        ) {
            try write("", to: $0.legacyStore)
            try makeStore($0.groupStore, rows: 7)
        },
    ]

    private static let moved: [CaseTableLine] = [
        CaseTableLine("a store", outcome: "relocated", effect: .moved(notes: 9), state: "relocated") {
            try makeStore($0.legacyStore, rows: 9)
        },
        CaseTableLine(
            "a store with rows in its log", outcome: "relocated", effect: .moved(notes: 9), state: "relocated"
        ) {
            try makeStore($0.legacyStore, rows: 9, unflushed: true)
        },
        CaseTableLine(
            "a store, and side files in the group", outcome: "relocated", effect: .moved(notes: 9), state: "relocated"
        ) {
            try makeStore($0.legacyStore, rows: 9)
            for suffix in ["-wal", "-shm", "-journal"] {
                try write("left", to: $0.group.appending("Notes.sqlite\(suffix)"))
            }
        },
        CaseTableLine(
            "a store, and zero bytes in the group", outcome: "relocated", effect: .moved(notes: 9), state: "relocated"
        ) {
            try makeStore($0.legacyStore, rows: 9)
            try write("", to: $0.groupStore)
        },
        CaseTableLine(
            "an encrypted one, moved unread", "--opaque", outcome: "relocated", effect: .movedUnread, state: nil
        ) {
            try encrypted($0.legacyStore)
        },
    ]

    private static let bothThere: [CaseTableLine] = [
        CaseTableLine(
            "the group's store through a link", outcome: "already_relocated", effect: .nothing, state: "relocated"
        ) {
            try makeStore($0.groupStore, rows: 9)
            try run("ln", ["-s", Word($0.groupStore), Word($0.legacyStore)])
        },
        .refused("the group's store under a second name", code: "two_names", fileSystems: [.same]) {
            try makeStore($0.groupStore, rows: 9)
            try run("ln", [Word($0.groupStore), Word($0.legacyStore)])
        },
        .refused("a store with a second name", code: "hard_linked") {
            try makeStore($0.legacyStore, rows: 9)
            try run("ln", [Word($0.legacyStore), Word($0.legacy.appending("Other.sqlite"))])
        },
        CaseTableLine(
            "a store, and an empty one in the group", outcome: "relocated", effect: .moved(notes: 9, archived: [0]),
            state: "relocated"
        ) {
            try makeStore($0.legacyStore, rows: 9)
            try sqlite($0.groupStore, "PRAGMA journal_mode = WAL; \(schema)")
        },
        CaseTableLine(
            "an empty store, and one in the group", outcome: "already_relocated", effect: .kept(archived: [0]),
            state: "relocated"
        ) {
            try sqlite($0.legacyStore, schema)
            try makeStore($0.groupStore, rows: 7)
        },
        CaseTableLine(
            "the same rows in other bytes", outcome: "already_relocated", effect: .kept(), state: "relocated"
        ) {
            try makeStore($0.legacyStore, rows: 9)
            try sqlite($0.legacyStore, "VACUUM INTO '\($0.groupStore)'; PRAGMA page_size = 1024; VACUUM")
            try run("cp", ["-r", Word($0.legacy.appending(".Notes_SUPPORT")), Word($0.group)])
        },
        CaseTableLine(
            "the same rows, and external data that is there", outcome: "already_relocated", effect: .kept(),
            state: "relocated"
        ) {
            try bothWithTheSameRows($0)
            for directory in [$0.legacy, $0.group] { try externalData("the same", in: directory) }
            try externalData("more", named: "2", in: $0.group)
        },
        .refused(
            "the same rows, and external data that isn't there", outcome: "conflict", status: 73, code: "conflict",
            state: "conflict"
        ) {
            try bothWithTheSameRows($0)
            try externalData("the only copy", in: $0.legacy)
        },
        .refused(
            "the same rows, and other external data", outcome: "conflict", status: 73, code: "conflict",
            state: "conflict"
        ) {
            try bothWithTheSameRows($0)
            try externalData("one", in: $0.legacy)
            try externalData("two", in: $0.group)
        },
        .refused("external data that another store has too", code: "shared_support") {
            try makeStore($0.legacyStore, rows: 9)
            try makeStore($0.legacy.appending("Notes.db"), rows: 1)
            try externalData("whose?", in: $0.legacy)
        },
        .refused("another store's external data in the group", code: "shared_support") {
            try makeStore($0.legacyStore, rows: 9)
            try makeStore($0.group.appending("Notes.db"), rows: 1)
            try externalData("of another", in: $0.group)
        },
        CaseTableLine(
            "an encrypted one, twice", "--opaque", outcome: "already_relocated", effect: .kept(), state: nil
        ) {
            try encrypted($0.legacyStore)
            try run("cp", [Word($0.legacyStore), Word($0.groupStore)])
        },
        .refused("different rows", outcome: "conflict", status: 73, code: "conflict", state: "conflict") {
            try bothWithRows($0)
        },
        CaseTableLine(
            "different rows, the group's kept", "--on-conflict", "keep-group", outcome: "already_relocated",
            effect: .kept(archived: [9]), state: "relocated"
        ) { try bothWithRows($0) },
        CaseTableLine(
            "different rows, the legacy ones kept", "--on-conflict", "keep-legacy", outcome: "relocated",
            effect: .moved(notes: 9, archived: [7]), state: "relocated"
        ) { try bothWithRows($0) },
    ]

    private static let notAStore: [CaseTableLine] = [
        .refused("half a store", code: "half_a_store") {
            try run("rm", [Word(makeStore($0.legacyStore, rows: 9, unflushed: true).path)])
        },
        .refused("half a store, and one in the group", code: "half_a_store") {
            try makeStore($0.groupStore, rows: 7)
            try write("half", to: $0.legacy.appending("Notes.sqlite-journal"))
        },
        .refused("Core Data's XML store", code: "not_a_database") {
            try write("<?xml version=\"1.0\"?>\n<database><databaseInfo/></database>\n", to: $0.legacyStore)
        },
        .refused("Core Data's binary store", code: "not_a_database") {
            try write("bplist00" + String(repeating: "x", count: 4096), to: $0.legacyStore)
        },
        .refused("text", code: "not_a_database") { try write("Dear diary,", to: $0.legacyStore) },
        .refused("an encrypted one", code: "not_a_database") { try encrypted($0.legacyStore) },
        .refused("an encrypted one with a log", "--opaque", code: "opaque_side_files", state: nil) {
            try encrypted($0.legacyStore)
            try write("log", to: $0.legacy.appending("Notes.sqlite-wal"))
        },
        .refused("a store whose schema is rubbish", code: "corrupt") {
            try makeStore($0.legacyStore, rows: 900)
            try run(
                "dd", ["if=/dev/urandom", "of=" + Word($0.legacyStore), "bs=100", "seek=1", "count=39", "conv=notrunc"])
        },
        .refused("a store that ends too early", code: "corrupt") {
            try makeStore($0.legacyStore, rows: 900)
            try run("truncate", ["--size=-8192", Word($0.legacyStore)])
        },
        .refused("a store, and rubbish in the group", code: "not_a_database") {
            try makeStore($0.legacyStore, rows: 9)
            try write("Dear diary,", to: $0.groupStore)
        },
        .refused("a directory", code: "not_a_file") { try run("mkdir", [Word($0.legacyStore)]) },
        .refused("a FIFO", code: "not_a_file") { try run("mkfifo", [Word($0.legacyStore)]) },
    ]

    private static let schema = "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)"

    private static func bothWithRows(_ places: Places) throws {
        try makeStore(places.legacyStore, rows: 9, unflushed: true)
        try makeStore(places.groupStore, rows: 7)
    }

    private static func bothWithTheSameRows(_ places: Places) throws {
        for store in [places.legacyStore, places.groupStore] {
            try run("rm", ["-r", Word(try makeStore(store, rows: 9).support)])
        }
    }

    private static func externalData(_ text: String, named name: String = "1", in directory: FilePath) throws {
        let folder = directory.pushing(".Notes_SUPPORT/_EXTERNAL_DATA")
        try run("mkdir", ["-p", Word(folder)])
        try write(text, to: folder.appending(name))
    }

    /// Writes random bytes, in which nothing identifies a database.
    private static func encrypted(_ path: FilePath) throws {
        try run("dd", ["if=/dev/urandom", "of=" + Word(path), "bs=4096", "count=8"])
    }
}

import AgentProtocol
import AppRelocation
import FoundationEssentials
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import RowShadow
import SQLiteFormat
import SystemPackage

/// The status that a group container's directory shows by itself: its stores and groupstore's records. Writes nothing,
/// and opens no store through SQLite.
struct GroupDirectoryStatus {
    private(set) var rows: [StatusRow] = []
    private(set) var storeCount = 0
    /// The programs' directories that moves have brought here.
    private(set) var appCount = 0
    private(set) var isInterrupted = false

    /// The numbers of stores and apps, for people.
    var counts: String { "\(Counted(storeCount, "store"))\(appCount == 0 ? "" : ", \(Counted(appCount, "app"))")" }

    /// Reads the directory. With `only`, there is no other store's row. Throws `SystemError` and `UnreadableRecord`.
    init(_ path: FilePath, only store: FilePath.Component? = nil) throws {
        let container = try GroupContainer(path)
        var group: JSONObject = [:]
        group.setPath("directory", bytes: path.bytes)
        rows.append(StatusRow("directory", group, lines: PrintablePath(path).description))
        for journal in try container.journals() { add(journal) }
        if store == nil { add(unfinishedIn: path) }
        let receipts = try container.receipts()
        let names = try container.directory.names().sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
        for name in names where store.map({ $0 == name }) ?? true {
            guard let header = Self.header(of: name, in: container.directory) else { continue }
            storeCount += 1
            try add(name, header, in: container.directory, receipts: receipts)
        }
        if store == nil { for app in try container.movedApps() { add(app) } }
        for copy in CopyDiagnosis(group: path).orphans where store.map({ $0 == copy.store?.lastComponent }) ?? true {
            add(copy)
        }
        rows += Self.damagedBranches(in: path, only: store)
    }

    /// Returns a row for each damaged branch whose files a rescue has kept in the directory.
    static func damagedBranches(in path: FilePath, only store: FilePath.Component? = nil) -> [StatusRow] {
        BranchDiagnosis(path, only: store).damaged.map { branch in
            var row: JSONObject = ["code": "branch_damaged"]
            row.setPath("store", bytes: path.appending(branch.name).bytes)
            row.setPath("path", bytes: branch.location.directory.path.bytes)
            row["damage"] = branch.damage.map { .string($0) }
            row["remedy"] = .string(branch.damageRemedy)
            return StatusRow(
                "branch", row, lines: "  \(branch.damageSentence ?? ""); \(branch.damageRemedy)")
        }
    }

    private mutating func add(unfinishedIn path: FilePath) {
        let unfinished = Self.unfinishedApps(in: path)
        if !unfinished.isEmpty { isInterrupted = true }
        rows += unfinished
    }

    /// Returns the rows of a directory's move that was interrupted, and of the programs that one has left stopped.
    static func unfinishedApps(in path: FilePath) -> [StatusRow] {
        let diagnosis = AppDiagnosis(path)
        return [unfinished(diagnosis), stopped(diagnosis)].compactMap { $0 }
    }

    private static func stopped(_ diagnosis: AppDiagnosis) -> StatusRow? {
        guard let stopped = diagnosis.stopped else { return nil }
        var row: JSONObject = ["programs": stopped.programs.json]
        row.setPath("from", bytes: stopped.source.path.bytes)
        row.setPath("to", bytes: stopped.destination.path.bytes)
        row["remedy"] = .string(diagnosis.startRemedy)
        return StatusRow("stopped", row, lines: "  \(AppDiagnosis.sentence(stopped)); \(diagnosis.startRemedy)")
    }

    private static func unfinished(_ diagnosis: AppDiagnosis) -> StatusRow? {
        guard let move = diagnosis.unfinished else { return nil }
        var row: JSONObject = ["id": .string(move.id.rawValue), "hidden": .bool(move.isHidden)]
        row.setPath("from", bytes: move.source.bytes)
        row.setPath("to", bytes: move.destination.bytes)
        row["remedy"] = .string(diagnosis.remedy)
        return StatusRow("interrupted", row, lines: "  \(AppDiagnosis.sentence(move)); \(diagnosis.remedy)")
    }

    private mutating func add(_ app: AppMoveReceipt) {
        appCount += 1
        let (place, from) = (app.move.destination.path, app.move.source.path)
        var row: JSONObject = [:]
        row.setPath("path", bytes: place.bytes)
        row.setPath("from", bytes: from.bytes)
        row["at"] = .string(app.at.formatted(.iso8601))
        row["method"] = .string(app.method.rawValue)
        let stores = try? AppRelocation.stores(in: place)
        row["stores"] = stores.map { .integer(Int64($0.count)) }
        let count = stores.map { ", \(Counted($0.count, "store"))" } ?? ""
        rows.append(
            StatusRow(
                "moved_app", row,
                lines: "  \(PrintablePath(place.lastComponent ?? "."))/  a program's directory\(count)",
                "    moved from \(PrintablePath(from)) (\(app.method.rawValue)) at \(LocalTime(app.at.timeIntervalSince1970))"
            ))
    }

    private mutating func add(_ copy: KeptShadows) {
        guard let store = copy.store else { return }
        var row: JSONObject = ["code": "orphaned_copy"]
        row.setPath("store", bytes: store.bytes)
        row.setPath("path", bytes: copy.place.bytes)
        row["bytes"] = .integer(copy.size)
        row["remedy"] = .string(copy.removal)
        rows.append(
            StatusRow(
                "copy", row,
                lines: "  \(PrintablePath(store)) is gone, and left a copy of its pages and the log of its rows "
                    + "(\(ByteCount(copy.size))); remove them: \(copy.removal)"))
    }

    /// Returns the names of the stores in a group's directory. Throws `SystemError`.
    static func stores(in directory: Directory) throws(SystemError) -> [FilePath.Component] {
        try directory.names().filter { header(of: $0, in: directory) != nil }
    }

    private mutating func add(_ journal: TransferJournal) {
        isInterrupted = true
        var row: JSONObject = [:]
        row.setPath("from", bytes: journal.transfer.directory.path.pushing(journal.transfer.name.path).bytes)
        row["id"] = .string(journal.transfer.id.rawValue)
        rows.append(
            StatusRow(
                "interrupted", row,
                lines: "  a relocation of \(row.printablePath("from")) is under way or was interrupted; "
                    + "the next relocation or agent finishes or undoes it"))
    }

    private mutating func add(
        _ name: FilePath.Component, _ header: DatabaseHeader, in directory: Directory, receipts: [RelocationReceipt]
    ) throws(SystemError) {
        var row: JSONObject = [:]
        row.setPath("name", bytes: name.bytes)
        row.setPath("path", bytes: directory.path.appending(name).bytes)
        let size = try directory.status(name)?.size ?? 0
        row["bytes"] = .integer(size)
        row["journal_mode"] = .string(header.journalMode.rawValue)
        let last = receipts.last { $0.name.path == FilePath(root: nil, [name]) }
        row["last_relocation"] = last.map { .object($0.json) }
        let relocation = last.map { ["    \(AgentStatus.receipt($0.json))"] } ?? []
        let file = "  \(PrintablePath(name))  \(ByteCount(size)), \(header.journalMode.rawValue)"
        rows.append(StatusRow("file", row, lines: [file] + relocation))
    }

    /// Returns a database's header, or nil if the file isn't a SQLite database or can't be read without waiting.
    private static func header(of name: FilePath.Component, in directory: Directory) -> DatabaseHeader? {
        guard StoreName.existing(name) != nil, (try? directory.status(name))?.kind == .regular,
            let file = try? directory.open(name, flags: O_RDONLY)
        else { return nil }
        return (try? file.read(count: DatabaseHeader.length, at: 0)).flatMap(DatabaseHeader.init)
    }
}

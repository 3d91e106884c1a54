import LinuxSystem
import SQLiteStore
import SystemPackage

/// The decision in words.
extension RelocationDecision {
    /// The plan in one sentence.
    var sentence: String {
        let from = PrintablePath(endpoints.legacy.path)
        let to = PrintablePath(endpoints.group.path)
        switch plan {
        case .nothingToDo(let adopted): return adopted ? "no legacy store; \(to) is used" : "no store at \(from)"
        case .alreadyRelocated: return "\(from) and \(to) are one file"
        case .relocate(.none): return "\(needsCopy ? "copy" : "rename") \(from) to \(to)\(retirement)"
        case .relocate(.leftovers): return "set aside \(leftovers), then relocate \(from) to \(to)"
        case .relocate(.store(let reason)): return "archive \(to) (\(reason)), then relocate \(from)"
        case .archiveLegacy(let reason): return "archive \(from): \(reason)\(link)"
        case .retireLegacy: return "retire \(from): \(to) has its content already\(retirement)"
        case .merge: return "merge \(from) into \(to); both are archived\(link)"
        case .conflict: return "refuse: \(from) and \(to) \(difference)"
        case .refuse(let reason, let atGroup): return "refuse \(atGroup ? to : from): \(Self.describe(reason))"
        }
    }

    /// The files without a store that are in the way.
    private var leftovers: String {
        group.parts.map { "\(PrintablePath(endpoints.group.directory.path.appending($0)))" }.joined(separator: ", ")
    }

    private var difference: String {
        switch comparison {
        case .sameRows: "hold the same rows, and external data that differs"
        case .different, .same, .published, .publishedRows, .merged, nil: "both hold rows of their own"
        }
    }

    private var retirement: String {
        switch request.retirement {
        case .delete, nil: ""
        case .archive: ", and keep a copy in the archive"
        case .symlink: link
        }
    }

    private var link: String { request.retirement == .symlink ? ", and leave a symbolic link" : "" }

    /// Returns the failure for a plan of `conflict` or `refuse`.
    func failure() throws -> RelocationFailure {
        guard case .refuse(let reason, let atGroup) = plan else { return try conflict() }
        // Another relocation may have left a link there since the place was looked up.
        if case .notARegularFile = reason, !atGroup { _ = try RelocationEndpoints(request) }
        let store = atGroup ? endpoints.group : endpoints.legacy
        let (code, remedy) = Self.advice(reason, store.path, (atGroup ? group : legacy).status?.kind, atGroup: atGroup)
        var description = Self.describe(reason)
        if case .notARegularFile = reason { description = Self.describe((atGroup ? group : legacy).status?.kind) }
        return RelocationFailure(
            .badData, code: code, "\(PrintablePath(store.path)): \(description)", remedy: remedy)
    }

    private static func describe(_ kind: FileStatus.Kind?) -> String {
        switch kind {
        case .directory: "a directory, not a store"
        case .symbolicLink: "a symbolic link, not a store"
        case .regular, .other, nil: describe(.notARegularFile)
        }
    }

    private static func describe(_ reason: RelocationRefusal) -> String {
        switch reason {
        case .halfAStore: "a -wal or -journal without its database: half a store"
        case .foreign(let format): "not a SQLite database, but \(format)"
        case .corrupt(let problem): "the database can't be read: \(problem)"
        case .hardLinked: "the file has a second hard link, and two names for one database have two journals"
        case .twoNames: "it is the group's store under a second name, and two names have two journals"
        case .notARegularFile: "not a regular file"
        case .unusualPart(let name): "\(name) beside it is of the wrong kind, or has a second name"
        case .opaqueWithSideFiles: "it can't be read, and has a -wal or -journal that only its own program understands"
        }
    }

    private static func notAFileRemedy(_ store: FilePath, _ kind: FileStatus.Kind?, atGroup: Bool) -> String {
        guard atGroup else { return "name the store's database file" }
        guard kind != .symbolicLink else { return "remove the link: rm \(store.shellWord)" }
        return "move it away, or choose another name with --name: \(movingAway(store))"
    }

    private static func movingAway(_ path: FilePath) -> String {
        "mv \(path.shellWord) \(path.appending(suffix: ".old").shellWord)"
    }

    private static func advice(
        _ reason: RelocationRefusal, _ store: FilePath, _ kind: FileStatus.Kind?, atGroup: Bool
    ) -> (code: String, remedy: String) {
        let word = store.shellWord
        return switch reason {
        case .halfAStore:
            ("half_a_store", "put the database back beside it; look in a backup, or in the group container")
        case .foreign:
            (
                "not_a_database",
                "name a SQLite store; an encrypted one may be moved with --opaque while it is closed"
            )
        case .corrupt: ("corrupt", StoreError.recovery(of: store))
        case .hardLinked:
            (
                "hard_linked",
                "remove the other name: find \"$(stat -c %m \(word))\" -ignore_readdir_race -xdev -samefile \(word)"
            )
        case .twoNames: ("two_names", "remove one of the two names; the data is there once")
        case .notARegularFile:
            (
                "not_a_file",
                notAFileRemedy(store, kind, atGroup: atGroup)
            )
        case .unusualPart(let name):
            ("unusual_part", "check it and move it away: \(movingAway(store.removingLastComponent().appending(name)))")
        case .opaqueWithSideFiles: ("opaque_side_files", "let its own program close it properly, then try again")
        }
    }

    private func conflict() throws -> RelocationFailure {
        let receipt = try endpoints.container.receipts(of: endpoints.group.name.database).last
        let since = receipt.map {
            "; it was relocated from \(PrintablePath($0.from.path)) before, so an old program still writes there"
        }
        // Without a link, a program that can't be changed would begin another store again.
        let needsLink = receipt.map { $0.from.path == endpoints.legacy.path && $0.retirement != .symlink } ?? false
        var failure = RelocationFailure(
            .conflict, code: "conflict",
            "\(PrintablePath(endpoints.legacy.path)) and \(PrintablePath(endpoints.group.path)) \(difference)"
                + (since ?? ""),
            remedy: "look at both, then choose keep-group or keep-legacy, which archives the other, or merge, which "
                + "puts the rows of both into one store"
                + (needsLink ? "; --retire symlink then leads the old program to the group's store: " : ": ")
                + "\(endpoints.group.relocationCommand(of: endpoints.legacy.path)) --on-conflict keep-group"
                + (needsLink ? " --retire symlink" : ""))
        failure.sides = try [side(.legacy, legacy), side(.group, group)]
        return failure
    }

    private func side(_ role: ConflictSide.Role, _ snapshot: StoreSnapshot) throws -> ConflictSide {
        let summary = try StoreContents.summary(snapshot)
        return ConflictSide(
            role: role, path: snapshot.location.path,
            modified: max(snapshot.status?.modified ?? 0, snapshot.wal?.modified ?? 0),
            bytes: snapshot.bytes, rows: summary.rows, storeUUID: summary.storeUUID,
            modelIdentifiers: summary.modelIdentifiers)
    }
}

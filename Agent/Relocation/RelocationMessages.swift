import AgentProtocol
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import StoreMerging
import StoreMigration
import StoreRelocation
import SystemPackage

/// The JSON of a relocation, the same on the wire and in the command's output.
extension RelocationSummary {
    /// The members of the line of type `summary`.
    package func members(seconds: Double, dryRun: Bool = false) -> JSONObject {
        var object: JSONObject = ["outcome": .string(outcome.rawValue)]
        if dryRun { object["dry_run"] = true }
        object.setPath("from", bytes: from.bytes)
        object.setPath("to", bytes: to.bytes)
        object["method"] = method.map { .string($0.rawValue) } ?? .null
        object["bytes"] = .integer(bytes)
        object["seconds"] = .number(seconds)
        if let transformed {
            object["from_model"] = transformed.before.map { .string($0) }
            object["to_model"] = .string(transformed.after)
        }
        if let setAside {
            object["reason"] = .string(setAside.reason)
            object.setPath("set_aside", bytes: setAside.store.bytes)
            object.setPath("archive", bytes: setAside.archive.bytes)
        }
        if !losses.isEmpty { object["removes"] = losses.json }
        if let archive { object.setPath("archive", bytes: archive.bytes) }
        if var merge = merge?.sums {
            var places = JSONObject()
            if let group = mergeArchives?.group { places.setPath("group", bytes: group.bytes) }
            if let legacy = mergeArchives?.legacy { places.setPath("legacy", bytes: legacy.bytes) }
            if mergeArchives != nil { merge["archives"] = .object(places) }
            object["merge"] = .object(merge)
        }
        object["notes"] = notes.isEmpty ? nil : .array(notes.map { .string($0) })
        return object
    }
}

extension RelocationFailure {
    /// The outcome as a word.
    package var outcome: String {
        switch kind {
        case .conflict: "conflict"
        case .busy, .interrupted: "busy"
        case .badData, .unusablePlace, .notPermitted: "refused"
        case .failed: "failed"
        }
    }

    /// The members of the line of type `summary`.
    package func members(source: FilePath, seconds: Double) -> JSONObject {
        var object: JSONObject = ["outcome": .string(outcome)]
        object.setPath("from", bytes: source.bytes)
        object["seconds"] = .number(seconds)
        object["error"] = .object([
            "code": .string(code), "message": .string(message), "hint": .string(remedy),
            "exit": .integer(Int64(exitCode)),
        ])
        if !holders.isEmpty { object["holders"] = .array(holders.map { .object($0.json) }) }
        if !sides.isEmpty { object["sides"] = .array(sides.map { .object($0.json) }) }
        return object
    }

    /// The exit code that a command ends with, one of sysexits(3).
    package var exitCode: Int32 {
        switch kind {
        case .conflict: 73
        case .busy: 75
        case .badData: 65
        case .unusablePlace, .failed: 74
        case .interrupted: 130
        case .notPermitted: 77
        }
    }
}

extension RelocationEvent {
    /// The event as a line's type and members; nil for an event that only a progress bar needs.
    package var line: (type: String, members: JSONObject)? {
        switch self {
        case .plan(let sentence, let bytes):
            ("plan", ["text": .string(sentence), "bytes_to_copy": .integer(bytes)])
        case .recovered(let text): ("recovered", ["text": .string(text)])
        case .note(let text): ("note", ["text": .string(text)])
        case .waiting(let holders): ("waiting", ["holders": .array(holders.map { .object($0.json) })])
        case .copied(let bytes, let total): ("progress", ["bytes": .integer(bytes), "of": .integer(total)])
        case .transforming(let fraction, let doing):
            ("progress", ["fraction": .number(fraction), "doing": .string(doing)])
        case .published, .merging: nil
        }
    }
}

extension StoreProgress {
    /// How far a relocation is, for subscribers; nil for an event that says nothing about it.
    init?(_ event: RelocationEvent) {
        switch event {
        case .copied(let bytes, let all):
            self.init(.relocating, fraction: all > 0 ? Double(bytes) / Double(all) : 1, activity: "copying")
        case .transforming(let fraction, let activity): self.init(.migrating, fraction: fraction, activity: activity)
        case .plan, .recovered, .waiting, .published, .merging, .note: return nil
        }
    }
}

extension RemovedContent {
    /// An array with an object for each entity and property, with one of `objects`, `values`, `links` and `changes`.
    package var json: JSONValue {
        .array(
            all.map { loss in
                var object: JSONObject = ["entity": .string(loss.entity)]
                object["property"] = loss.property.map { .string($0) }
                // A position is content that changes, and has no field of its own.
                object[(loss.unit == .positions ? .changes : loss.unit).rawValue] = .integer(loss.count)
                return .object(object)
            })
    }
}

extension InvalidContent.Fault {
    /// The members of lines of the type `fault`: one line, or several if it has very many keys. A line of the protocol
    /// is bounded.
    package var members: [JSONObject] {
        let starts = keys.isEmpty ? [0] : Array(stride(from: 0, to: keys.count, by: 1000))
        return starts.map { start in
            let part = keys[start..<min(start + 1000, keys.count)]
            return [
                "entity": .string(entity), "property": .string(property), "code": .integer(Int64(code)),
                "message": .string(message), "keys": .array(part.map { .integer($0) }),
            ]
        }
    }
}

extension InvalidContent.Fault {
    /// Reads what `members` has written; nil if it is something else.
    package init?(_ object: JSONObject) {
        guard let entity = object.string("entity"), let property = object.string("property"),
            let message = object.string("message"), case .array(let keys)? = object["keys"]
        else { return nil }
        self.init(
            entity: entity, property: property, code: Int(clamping: object.integer("code") ?? 0), message,
            keys: keys.compactMap { if case .integer(let key) = $0 { key } else { nil } })
    }
}

extension FileHolder {
    package var json: JSONObject {
        var object: JSONObject = ["pid": .integer(Int64(pid)), "program": .string(program)]
        if isElsewhere { object["elsewhere"] = true }
        return object
    }
}

extension ConflictSide {
    package var json: JSONObject {
        var object: JSONObject = ["role": .string(role.rawValue)]
        object.setPath("path", bytes: path.bytes)
        object["modified"] = .time(Double(modified) / 1e9)
        object["bytes"] = .integer(bytes)
        var counts = JSONObject()
        for (table, count) in rows { counts[table] = .integer(count) }
        object["rows"] = .object(counts)
        object["store_uuid"] = storeUUID.map { .string($0) } ?? .null
        object["model"] = .array(modelIdentifiers.map { .string($0) })
        return object
    }
}

extension RelocationRequest {
    /// Makes the request of a client's operation. Throws if the agent sees different files at its paths.
    init(_ operation: RelocateOperation) throws(WireError) {
        guard let source = FilePath(bytes: operation.source), let group = FilePath(bytes: operation.group) else {
            throw WireError(code: "bad_request", "a path contains a NUL")
        }
        guard Self.isSame(operation.groupIdentity, group), Self.isSame(operation.sourceIdentity, source) else {
            throw WireError(code: "not_visible", "the agent sees another file there: it is in another mount namespace")
        }
        self.init(source: source, group: group)
        expected = Expectation(
            source: operation.sourceIdentity.map { FileIdentity($0) },
            group: operation.groupIdentity.map { FileIdentity($0) })
        name = operation.name.flatMap { FilePath.Component(bytes: $0) }
        onConflict = try Self.word(operation.onConflict, "on_conflict") ?? .refuse
        retirement = try Self.word(operation.retire, "retire")
        deadline = operation.deadline.map { .milliseconds(Int64($0 * 1000)) } ?? .seconds(30)
        opaque = operation.opaque
        assumeClosed = operation.assumeClosed
        if let word = operation.journalMode {
            guard let mode = DatabaseHeader.JournalMode(word: word) else {
                throw WireError(code: "bad_request", "journal_mode: \(word) is not known", hint: "wal or delete")
            }
            journalMode = mode
        }
    }

    /// Makes the request merge two stores in conflict, if the operation asks for that. The migration comes before it.
    mutating func merge(
        _ operation: RelocateOperation, isCancelled: @escaping @Sendable () -> Bool
    ) throws(WireError) {
        var options = MergeOptions()
        for text in operation.mergeKeys {
            guard let key = MergeKey(text), !options.keys.contains(where: { $0.name.utf8.elementsEqual(key.name.utf8) })
            else {
                throw WireError(code: "bad_request", "merge_keys: \(text) is not a key", hint: "Note=uuid")
            }
            options.keys.append(key)
        }
        for text in operation.mergeReferences {
            guard let reference = MergeReference(text), ([reference] + options.references).firstRepeated == nil else {
                throw WireError(
                    code: "bad_request", "merge_references: \(text) is not a reference", hint: "note_tag.tag_id=tag.id")
            }
            options.references.append(reference)
        }
        for text in operation.preferences {
            guard let preference = MergePreference(text) else {
                throw WireError(
                    code: "bad_request", "prefer: \(text) is not known", hint: "group, legacy or newer:ATTRIBUTE")
            }
            options.preferences.append(preference)
        }
        guard onConflict == .merge else {
            guard operation.mergeKeys.isEmpty, operation.mergeReferences.isEmpty, operation.preferences.isEmpty else {
                throw WireError(
                    code: "bad_request", "merge_keys, merge_references and prefer need on_conflict merge")
            }
            return
        }
        guard !operation.opaque, !operation.undo, operation.onIncompatible ?? "refuse" == "refuse" else {
            throw WireError(code: "bad_request", "on_conflict merge excludes opaque, undo and on_incompatible")
        }
        replacement = nil
        merge(options, isCancelled: isCancelled)
    }

    fileprivate static func word<Word: RawRepresentable<String>>(
        _ text: String?, _ key: String
    ) throws(WireError) -> Word? {
        guard let text else { return nil }
        guard let word = Word(rawValue: text) else {
            throw WireError(code: "bad_request", "\(key): \(text) is not known")
        }
        return word
    }

    fileprivate static func isSame(_ identity: RelocateOperation.Identity?, _ path: FilePath) -> Bool {
        let visible = FileStatus(following: path)?.identity
        return identity?.device == visible?.device && identity?.inode == visible?.inode
    }
}

extension FileIdentity {
    init(_ identity: RelocateOperation.Identity) {
        self.init(device: identity.device, inode: identity.inode)
    }
}

extension RelocateOperation {
    /// True if the agent sees each file that the operation names by device and inode.
    var namesVisibleFiles: Bool {
        do throws(WireError) {
            _ = try RelocationRequest(self)
            _ = try migration
            return true
        } catch {
            return false
        }
    }

    /// The migration that the client requests; nil for none.
    var migration: MigrationRequest? {
        get throws(WireError) {
            guard let model else { return nil }
            var migration = MigrationRequest(try Self.path(model))
            for model in mergedModels { migration.mergedModels.append(try Self.path(model)) }
            migration.configuration = configuration
            migration.version = modelVersion
            for mapping in mappings { migration.mappings.append(try Self.path(mapping)) }
            for text in renamings {
                guard let renaming = ModelRenaming(text) else {
                    throw WireError(code: "bad_request", "renamings: \(text) is not a renaming", hint: "Car=Automobile")
                }
                migration.renamings.append(renaming)
            }
            migration.options.allowsPartialHistory = allowsPartialHistory
            migration.options.validation = try RelocationRequest.word(validation, "validate") ?? .none
            migration.onIncompatible = try RelocationRequest.word(onIncompatible, "on_incompatible") ?? .refuse
            if let defaultStore { migration.defaultStore = try Self.path(defaultStore) }
            return migration
        }
    }

    private static func path(_ file: NamedFile) throws(WireError) -> FilePath {
        guard let path = FilePath(bytes: file.path) else {
            throw WireError(code: "bad_request", "a path contains a NUL")
        }
        guard RelocationRequest.isSame(file.identity, path) else {
            throw WireError(
                code: "not_visible", "the agent sees another \(PrintablePath(path)): it is in another mount namespace")
        }
        return path
    }
}

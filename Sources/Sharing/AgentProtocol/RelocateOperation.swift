/// The arguments of `relocate`. The client identifies its files by device and inode, because the agent may see other
/// files under the same paths (another mount namespace).
package struct RelocateOperation: Sendable, Equatable {
    /// A file's device and inode, as the client sees them.
    package struct Identity: Sendable, Equatable {
        package let device: UInt64
        package let inode: UInt64

        package init(device: UInt64, inode: UInt64) {
            self.device = device
            self.inode = inode
        }
    }

    /// A file or directory of the client, by its absolute path.
    package struct NamedFile: Sendable, Equatable {
        package var path: [UInt8]
        /// The file's identity; nil if the client sees nothing there.
        package var identity: Identity?

        package init(path: [UInt8], identity: Identity?) {
            self.path = path
            self.identity = identity
        }
    }

    /// The absolute path of the legacy store's database.
    package var source: [UInt8]
    /// The database's identity; nil if the client sees nothing there.
    package var sourceIdentity: Identity?
    /// The absolute path of the group container's directory.
    package var group: [UInt8]
    package var groupIdentity: Identity?
    /// The store's name in the group container; nil to keep its name.
    package var name: [UInt8]?
    /// The conflict policy, as on the command line; nil for the default.
    package var onConflict: String?
    package var retire: String?
    /// The deadline in seconds.
    package var deadline: Double?
    package var dryRun = false
    /// True to undo the store's last relocation.
    package var undo = false
    package var opaque = false
    package var assumeClosed = false
    /// The journal mode, as on the command line; nil to keep the current one.
    package var journalMode: String?
    /// The model to migrate the store to; nil for the one in the agent's configuration.
    package var model: NamedFile?
    package var modelVersion: String?
    package var mappings: [NamedFile] = []
    /// The models that are merged with `model`.
    package var mergedModels: [NamedFile] = []
    /// The model's configuration whose entities the store holds; nil for all.
    package var configuration: String?
    /// The renamings, as on the command line, such as `Car=Automobile`.
    package var renamings: [String] = []
    package var allowsPartialHistory = false
    /// The policy for objects that the model's rules don't allow, as on the command line; nil for no validation.
    package var validation: String?
    package var onIncompatible: String?
    package var defaultStore: NamedFile?
    /// The keys of a merge, as on the command line, such as `Note=uuid`.
    package var mergeKeys: [String] = []
    /// References that no schema declares, as on the command line, such as `note_tag.tag_id=tag.id`.
    package var mergeReferences: [String] = []
    /// What decides which of two different objects a merge keeps, as on the command line.
    package var preferences: [String] = []

    /// The limit for mapping models and for renamings.
    package static let maxNames = 256

    package init(source: [UInt8], group: [UInt8]) {
        self.source = source
        self.group = group
    }
}

extension RelocateOperation {
    init(_ object: JSONObject) throws(WireError) {
        source = try Self.absolutePath("source", of: object)
        group = try Self.absolutePath("group", of: object)
        sourceIdentity = try Self.identity("source_file", of: object)
        groupIdentity = try Self.identity("group_file", of: object)
        name = object.path("name")
        if let name, StoreAddress(group: "group", name: name) == nil {
            throw WireError(code: "bad_request", "name isn't a file name")
        }
        onConflict = object.string("on_conflict")
        retire = object.string("retire")
        deadline = object.seconds("deadline")
        if let deadline, !(0...86_400).contains(deadline) {
            throw WireError(code: "bad_request", "deadline must be 0 to 86400 seconds")
        }
        dryRun = object.bool("dry_run") ?? false
        undo = object.bool("undo") ?? false
        guard !undo || !dryRun else { throw WireError(code: "bad_request", "undo and dry_run exclude each other") }
        opaque = object.bool("opaque") ?? false
        assumeClosed = object.bool("assume_closed") ?? false
        journalMode = object.string("journal_mode")
        model = try Self.file("model", of: object)
        modelVersion = object.string("model_version")
        configuration = object.string("configuration")
        for value in try Self.list("models", of: object) {
            guard case .object(let model) = value else {
                throw WireError(code: "bad_request", "models contains something that isn't an object")
            }
            mergedModels.append(try NamedFile(model))
        }
        for value in try Self.list("mappings", of: object) {
            guard case .object(let mapping) = value else {
                throw WireError(code: "bad_request", "mappings contains something that isn't an object")
            }
            mappings.append(try NamedFile(mapping))
        }
        renamings = try Self.strings("renamings", of: object)
        allowsPartialHistory = object.bool("allow_partial_history") ?? false
        validation = object.string("validate")
        onIncompatible = object.string("on_incompatible")
        defaultStore = try Self.file("default_store", of: object)
        mergeKeys = try Self.strings("merge_keys", of: object)
        mergeReferences = try Self.strings("merge_references", of: object)
        preferences = try Self.strings("prefer", of: object)
        let needsModel =
            modelVersion != nil || configuration != nil || validation != nil || onIncompatible != nil
            || defaultStore != nil
            || !mappings.isEmpty || !mergedModels.isEmpty
        guard model != nil || !needsModel else {
            throw WireError(
                code: "bad_request", "a migration needs a model", hint: "add model, or omit the other members")
        }
    }

    /// Returns the file under the key, or nil if the key is missing.
    private static func file(_ key: String, of object: JSONObject) throws(WireError) -> NamedFile? {
        guard let value = object[key] else { return nil }
        guard case .object(let file) = value else {
            throw WireError(code: "bad_request", "\(key) isn't an object", hint: "write {\"path\":…,\"file\":…}")
        }
        return try NamedFile(file)
    }

    private static func list(_ key: String, of object: JSONObject) throws(WireError) -> [JSONValue] {
        guard let value = object[key] else { return [] }
        guard case .array(let values) = value, values.count <= maxNames else {
            throw WireError(code: "bad_request", "\(key) isn't a list of at most \(maxNames)")
        }
        return values
    }

    private static func strings(_ key: String, of object: JSONObject) throws(WireError) -> [String] {
        var found: [String] = []
        for value in try list(key, of: object) {
            guard case .string(let text) = value else {
                throw WireError(code: "bad_request", "\(key) contains something that isn't a string")
            }
            found.append(text)
        }
        return found
    }

    fileprivate static func absolutePath(_ key: String, of object: JSONObject) throws(WireError) -> [UInt8] {
        guard let path = object.path(key), path.first == UInt8(ascii: "/"), !path.contains(0), path.count < 4096 else {
            throw WireError(code: "bad_request", "\(key) is missing or not an absolute path")
        }
        return path
    }

    /// Parses device and inode, which are strings: numbers above 2^53 lose precision in other languages.
    static func identity(_ key: String, of object: JSONObject) throws(WireError) -> Identity? {
        guard let value = object.object(key) else { return nil }
        guard let device = value.string("dev").flatMap({ UInt64($0) }),
            let inode = value.string("ino").flatMap({ UInt64($0) })
        else { throw WireError(code: "bad_request", "\(key) is not {\"dev\":\"…\",\"ino\":\"…\"}") }
        return Identity(device: device, inode: inode)
    }

    func write(to object: inout JSONObject) {
        object.setPath("source", bytes: source)
        object["source_file"] = sourceIdentity.map { .object($0.json) }
        object.setPath("group", bytes: group)
        object["group_file"] = groupIdentity.map { .object($0.json) }
        if let name { object.setPath("name", bytes: name) }
        object["on_conflict"] = onConflict.map { .string($0) }
        object["retire"] = retire.map { .string($0) }
        object["deadline"] = deadline.map { .number($0) }
        for (key, flag) in [("dry_run", dryRun), ("undo", undo), ("opaque", opaque), ("assume_closed", assumeClosed)]
        where flag {
            object[key] = true
        }
        object["journal_mode"] = journalMode.map { .string($0) }
        object["model"] = model.map { .object($0.json) }
        object["model_version"] = modelVersion.map { .string($0) }
        if !mergedModels.isEmpty { object["models"] = .array(mergedModels.map { .object($0.json) }) }
        object["configuration"] = configuration.map { .string($0) }
        if !mappings.isEmpty { object["mappings"] = .array(mappings.map { .object($0.json) }) }
        if !renamings.isEmpty { object["renamings"] = .array(renamings.map { .string($0) }) }
        if allowsPartialHistory { object["allow_partial_history"] = true }
        object["validate"] = validation.map { .string($0) }
        object["on_incompatible"] = onIncompatible.map { .string($0) }
        object["default_store"] = defaultStore.map { .object($0.json) }
        if !mergeKeys.isEmpty { object["merge_keys"] = .array(mergeKeys.map { .string($0) }) }
        if !mergeReferences.isEmpty { object["merge_references"] = .array(mergeReferences.map { .string($0) }) }
        if !preferences.isEmpty { object["prefer"] = .array(preferences.map { .string($0) }) }
    }
}

extension RelocateOperation.Identity {
    var json: JSONObject { ["dev": .string(String(device)), "ino": .string(String(inode))] }
}

extension RelocateOperation.NamedFile {
    fileprivate init(_ object: JSONObject) throws(WireError) {
        path = try RelocateOperation.absolutePath("path", of: object)
        identity = try RelocateOperation.identity("file", of: object)
    }

    fileprivate var json: JSONObject {
        var object = JSONObject()
        object.setPath("path", bytes: path)
        object["file"] = identity.map { .object($0.json) }
        return object
    }
}

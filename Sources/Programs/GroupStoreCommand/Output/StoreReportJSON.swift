import AgentProtocol
import LinuxSystem
import SQLiteStore

/// A store's description as JSON, one object per line.
extension StoreDescription {
    func json(_ report: EntityReport?) -> [JSONObject] {
        let entities = report?.entities ?? coreData?.entities ?? []
        var summary: JSONObject = ["type": "summary", "outcome": "described"]
        summary.setPath("path", bytes: path.bytes)
        summary["tables"] = .integer(Int64(tables.count))
        summary["rows"] = .integer(rows)
        summary["entities"] = .integer(Int64(entities.count))
        var store = store
        store["missing_external_files"] = report?.missingFilesJSON()
        return [store] + tables.map(\.json) + entities.map { $0.json(report) } + [summary]
    }

    private var store: JSONObject {
        var object: JSONObject = ["type": "store"]
        object.setPath("path", bytes: path.bytes)
        object["files"] = .array(files.map { .object($0.json) })
        object["support"] = support.map { .object($0.json) } ?? .null
        object["modified"] = .time(Double(modified) / 1e9)
        for member in settings.json.members { object[member.key] = member.value }
        object["holders"] = .array(holders.map { .object($0.json) })
        object["core_data"] = coreData.map { .object($0.json) } ?? .null
        return object
    }
}

extension StoreDescription.File {
    fileprivate var json: JSONObject {
        let word =
            switch part {
            case .database: "database"
            case .wal: "wal"
            case .sharedMemory: "shm"
            case .journal: "journal"
            case .support: "support"
            }
        var object: JSONObject = ["part": .string(word)]
        object.setPath("name", bytes: name.bytes)
        object["bytes"] = .integer(size)
        object["modified"] = .time(Double(modified) / 1e9)
        return object
    }
}

extension StoreDescription.SupportFolder {
    fileprivate var json: JSONObject {
        var object = JSONObject()
        object.setPath("name", bytes: name.bytes)
        object["files"] = .integer(Int64(files))
        object["bytes"] = .integer(size)
        return object
    }
}

extension StoreDescription.Settings {
    fileprivate var json: JSONObject {
        [
            "journal_mode": .string(journalMode.rawValue), "page_size": .integer(pageSize),
            "page_count": .integer(pageCount), "free_pages": .integer(freePages), "encoding": .string(encoding),
            "auto_vacuum": .string("\(autoVacuum)"), "user_version": .integer(userVersion),
            "application_id": .integer(applicationID), "change_counter": .integer(Int64(changeCounter)),
        ]
    }
}

extension StoreDescription.Table {
    fileprivate var json: JSONObject {
        var object: JSONObject = ["type": "table", "name": .string(name)]
        object["rows"] = rows.map { .integer($0) } ?? .null
        object["virtual"] = .bool(isVirtual)
        object["problem"] = problem.map { .string($0) }
        return object
    }
}

extension CoreDataMetadata {
    fileprivate var json: JSONObject {
        var object = JSONObject()
        object["uuid"] = uuid.map { .string($0) } ?? .null
        object["store_type"] = storeType.map { .string($0) } ?? .null
        object["framework_version"] = frameworkVersion.map { .integer(Int64($0)) } ?? .null
        object["version_identifiers"] = .array(versionIdentifiers.map { .string($0) })
        object["hashes_digest"] = hashesDigest.map { .string($0) } ?? .null
        object["model_checksum"] = modelChecksum.map { .string($0) } ?? .null
        object["application_keys"] = .array(applicationKeys.map { .string($0) })
        object["problem"] = problem.map { .string($0) }
        return object
    }
}

extension CoreDataMetadata.Entity {
    fileprivate func json(_ report: EntityReport?) -> JSONObject {
        var object: JSONObject = ["type": "entity", "name": .string(name)]
        object["number"] = number.map { .integer($0) } ?? .null
        object["parent"] = parent.map { .integer($0) } ?? .null
        object["highest_key"] = highestKey.map { .integer($0) } ?? .null
        object["objects"] = report?.objects(of: self).map { .integer($0) } ?? .null
        object["relationships"] = report?.json(self)
        object["hash"] = hash.map { .string($0) } ?? .null
        return object
    }
}

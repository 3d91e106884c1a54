import AgentProtocol
import LinuxSystem
import SQLiteStore

/// A store's description as text.
extension StoreDescription {
    func lines(_ entities: EntityReport?) -> [String] {
        [PrintablePath(path).description] + facts.lines(indent: "  ") + [""] + tableLines
            + (coreData.map { [""] + $0.lines(entities) } ?? [])
    }

    private var facts: TextTable {
        var table = TextTable()
        for (index, file) in files.enumerated() {
            let name = PrintablePath(file.name).description
            table.add(.text(index == 0 ? "files" : ""), .text("\(name), \(ByteCount(file.size))"))
        }
        if let support {
            let name = PrintablePath(support.name)
            table.add(.text(""), .text("\(name)/, \(Counted(support.files, "file")), \(ByteCount(support.size))"))
        }
        table.add(.text("written"), .text("\(LocalTime(Double(modified) / 1e9))"))
        let mode = settings.journalMode == .writeAhead ? "write-ahead log (wal)" : "rollback journal"
        table.add(.text("journal"), .text(mode))
        let free = settings.freePages == 0 ? "" : ", \(settings.freePages) free"
        table.add(.text("pages"), .text("\(settings.pageCount) of \(settings.pageSize) bytes\(free)"))
        table.add(.text("encoding"), .text(settings.encoding))
        table.add(.text("auto-vacuum"), .text("\(settings.autoVacuum)"))
        table.add(.text("user version"), .text("\(settings.userVersion)"))
        table.add(.text("application id"), .text("\(settings.applicationID)"))
        table.add(.text("change counter"), .text("\(settings.changeCounter)"))
        table.add(
            .text("open in"), .text(holders.isEmpty ? "no process visible from here" : holders.list))
        return table
    }

    private var tableLines: [String] {
        guard !tables.isEmpty else { return ["no tables"] }
        var table = TextTable()
        table.add(.number("rows"), .text("table"))
        for entry in tables {
            let note = entry.problem.map { "  could not be counted: \($0)" } ?? (entry.isVirtual ? "  virtual" : "")
            table.add(.number(entry.rows.map(String.init) ?? "?"), .text(entry.name + note))
        }
        return table.lines(indent: "  ")
    }
}

extension CoreDataMetadata {
    fileprivate func lines(_ report: EntityReport?) -> [String] {
        var facts = TextTable()
        facts.add(.text("store UUID"), .text(uuid ?? "none"))
        if let problem { facts.add(.text("metadata"), .text(problem)) }
        if let storeType { facts.add(.text("store type"), .text(storeType)) }
        if let frameworkVersion { facts.add(.text("framework"), .text("\(frameworkVersion)")) }
        let identifiers = versionIdentifiers.filter { !$0.isEmpty }.joined(separator: ", ")
        facts.add(.text("model version"), .text(identifiers.isEmpty ? "not named" : identifiers))
        if let modelChecksum { facts.add(.text("model checksum"), .text(modelChecksum)) }
        if let hashesDigest { facts.add(.text("hashes digest"), .text(hashesDigest)) }
        if !applicationKeys.isEmpty {
            facts.add(.text("app's keys"), .text(applicationKeys.joined(separator: ", ")))
        }
        var table = TextTable()
        table.add(.number("Z_ENT"), .number("Z_MAX"), .number("objects"), .text("entity"), .text("version hash"))
        for entity in report?.entities ?? entities {
            table.add(
                .number(entity.number.map(String.init) ?? "-"), .number(entity.highestKey.map(String.init) ?? "-"),
                .number(report?.objects(of: entity).map(String.init) ?? "-"),
                .text(entity.name), .text(entity.hash ?? "none"))
        }
        return ["Core Data"] + facts.lines(indent: "  ") + [""] + table.lines(indent: "  ")
            + (report?.relationshipLines() ?? []) + (report?.missingFileLines() ?? [])
    }
}

extension CoreDataMetadata.Entity {
    /// The version hash in hexadecimal digits.
    var hash: String? {
        versionHash.map { bytes in
            bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
    }
}

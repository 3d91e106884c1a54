import AgentProtocol
import CommandSupport
import CoreDataStore
import FoundationEssentials
import Glibc
import GroupStoreAgent
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SystemPackage

/// Prints the results of `groupstore model check`.
struct CheckPrinter {
    private let output: Output
    private let format: CheckFormat

    init(_ output: Output, _ format: CheckFormat) {
        self.output = output
        self.format = format
    }

    /// Prints a row for each older version with its verdict, then the findings of each. `newer` are the versions after
    /// the current one.
    func print(all reports: [CheckReport], _ newer: [String]) {
        if let current = reports.first?.new.name {
            if !output.json, format == .text { output.record([:], lines: matrix(reports, current)) }
        } else if output.json || format != .sarif {
            let text = Self.nothingToCheck(newer)
            output.record(["type": "note", "text": .string(text)], format == .github ? "::notice ::\(text)" : text)
        }
        for name in newer where output.json || format != .sarif {
            let text = "\(name) is newer than the current version: stores aren't migrated backwards"
            output.record(
                ["type": "note", "version": .string(name), "text": .string(text)],
                lines: format == .github ? ["::notice ::\(text)"] : ["", text])
        }
        for report in reports where output.json || format == .github || !report.findings.isEmpty || report.isRefused {
            if !output.json, format == .text { output.record([:], "") }
            print(report)
        }
    }

    /// Says why there is no check.
    static func nothingToCheck(_ newer: [String]) -> String {
        newer.isEmpty
            ? "there is no older version: nothing to check"
            : "the current version is the first, and all others are newer: nothing to check"
    }

    private func matrix(_ reports: [CheckReport], _ current: String) -> [String] {
        var table = TextTable()
        table.add(.text("version"), .text("to \(current)"), .number("errors"), .number("warnings"))
        for report in reports {
            let findings = report.findings
            table.add(
                .text(report.old.name), .text(report.sentence),
                .number("\(findings.filter { $0.severity == .error }.count)"),
                .number("\(findings.filter { $0.severity == .warning }.count)"))
        }
        return table.lines() + ["", CheckReport.summary(of: reports)]
    }

    func print(_ report: CheckReport) {
        output.record(report.record, lines: lines(report))
        for finding in report.findings {
            switch (output.json, format) {
            case (true, _): output.record(report.record(of: finding), "")
            case (false, .github): output.record([:], CheckAnnotation(finding, report).workflowCommand)
            // Part of the text above, or of the document that is printed last.
            case (false, .text), (false, .sarif), (false, .html): break
            }
        }
        if report.isRefused {
            Output.write("groupstore: \(heading(report)) (each finding names a remedy)", to: STDERR_FILENO)
        }
    }

    private func lines(_ report: CheckReport) -> [String] {
        switch format {
        case .text: text(report)
        case .github: [heading(report)]
        case .sarif, .html: []
        }
    }

    /// Prints the versions that are no longer what a commit had.
    func print(_ changes: [BaseComparison.Change], since commit: String) {
        for change in changes {
            switch format {
            case .text: output.record(change.record(commit), lines: text(change))
            case .github: output.record(change.record(commit), CheckAnnotation(change).workflowCommand)
            case .sarif, .html: break
            }
        }
        guard changes.isEmpty, format == .text else { return }
        output.record([:], lines: output.json ? [] : ["each version of \(commit) is there, unchanged"])
    }

    private func text(_ change: BaseComparison.Change) -> [String] {
        var lines = [
            "\(change.version)", "  \(change.finding.severity.rawValue)  \(change.finding.message)",
            "           \(change.finding.remedy)",
            "  checksum \(change.baseChecksum) in the commit, \(change.checksum ?? "none") in the working tree",
        ]
        guard !change.entities.isEmpty else { return lines }
        var table = TextTable()
        table.add(.text("entity"), .text("commit's hash"), .text("working tree's hash"))
        for entity in change.entities {
            table.add(
                .text(entity.name), .text(entity.base?.hexadecimal ?? "none"),
                .text(entity.working?.hexadecimal ?? "none"))
        }
        lines += table.lines(indent: "  ")
        return lines
    }

    /// Prints all findings as one document.
    func printDocument(_ reports: [CheckReport], _ changes: [BaseComparison.Change], notes: [CheckAnnotation]) {
        guard format == .sarif else { return }
        let findings = reports.flatMap { report in report.findings.map { CheckAnnotation($0, report) } }
        output.record([:], SARIFDocument(findings + changes.map { CheckAnnotation($0) } + notes).json.text)
    }

    func summarize(_ reports: [CheckReport], _ changes: [BaseComparison.Change]) {
        let order = ["compatible", "inferred", "mapped", "stepwise", "refused"]
        let worst = reports.map(\.word).max { (order.firstIndex(of: $0) ?? 0) < (order.firstIndex(of: $1) ?? 0) }
        let warnings = reports.flatMap(\.findings).filter { $0.severity == .warning }.count
        let faults = changes.filter { $0.finding.severity == .error }.count
        let refused = reports.filter(\.isRefused).count
        guard output.json else { return }
        var record: JSONObject = [
            "type": "summary", "outcome": .string(faults > 0 ? "refused" : worst ?? "compatible"),
            "checks": .integer(Int64(reports.count)), "refused": .integer(Int64(refused)),
            "warnings": .integer(Int64(warnings)),
        ]
        if faults > 0 { record["changed_versions"] = .integer(Int64(faults)) }
        output.record(record, "")
    }

    private func heading(_ report: CheckReport) -> String {
        "\(report.old.name) → \(report.new.name): \(report.sentence)"
    }

    private func text(_ report: CheckReport) -> [String] {
        var lines = [heading(report)]
        for finding in report.findings {
            let code = finding.code.map { "\($0) " } ?? ""
            let location = [finding.entity, finding.property].compactMap(\.self).joined(separator: ".")
            let subject = location.isEmpty ? "" : location + ": "
            lines.append("  \(finding.severity.rawValue)  \(code)\(subject)\(finding.message)")
            lines.append("           \(finding.remedy)")
        }
        if !report.check.differingEntities.isEmpty, report.isRefused { lines += incompatibility(report) }
        return lines
    }

    /// Returns the content of Core Data's error when the store is opened without migration.
    private func incompatibility(_ report: CheckReport) -> [String] {
        let code = CoreDataError.incompatibleVersionHash
        var lines = ["  without migration: \(code) \(CoreDataError.reason(code))"]
        if let store = report.store {
            let identifiers = store.metadata.versionIdentifiers.map { "\"\($0)\"" }.joined(separator: ", ")
            let version = store.metadata.frameworkVersion.map(String.init) ?? "unknown"
            lines.append(
                "  metadata: NSStoreUUID \(store.metadata.uuid ?? "none"), NSPersistenceFrameworkVersion \(version), "
                    + "NSStoreModelVersionIdentifiers [\(identifiers)]")
        }
        var table = TextTable()
        table.add(.text("entity"), .text(report.store == nil ? "older hash" : "store's hash"), .text("newer hash"))
        for entity in report.check.differingEntities {
            table.add(
                .text(entity.name), .text(entity.oldHash?.hexadecimal ?? "none"),
                .text(entity.newHash?.hexadecimal ?? "none"))
        }
        return lines + table.lines(indent: "  ")
    }
}

extension BaseComparison.Change {
    fileprivate func record(_ commit: String) -> JSONObject {
        var object: JSONObject = [
            "type": "version_change", "change": .string(kind.rawValue), "version": .string(version),
            "base": .string(commit), "severity": .string(finding.severity.rawValue),
            "base_checksum": .string(baseChecksum), "checksum": checksum.map { .string($0) } ?? .null,
            "entities": .array(
                entities.map { entity in
                    .object([
                        "entity": .string(entity.name), "base": entity.base.map { .string($0.hexadecimal) } ?? .null,
                        "working": entity.working.map { .string($0.hexadecimal) } ?? .null,
                    ])
                }),
            "message": .string(finding.message), "remedy": .string(finding.remedy),
        ]
        object.setPath("file", bytes: path.bytes)
        return object
    }
}

extension CheckReport {
    fileprivate var record: JSONObject {
        var object: JSONObject = [
            "type": "check", "from": .string(old.name), "to": .string(new.name), "verdict": .string(word),
        ]
        switch check.verdict {
        case .compatible: object["steps"] = .array([])
        case .inferred(let mapping), .mapped(let mapping):
            object["steps"] = .array([.string(new.name)])
            object["mappings"] = .array(mapping.entityMappings.map { .string($0.name) })
        case .stepwise(let steps): object["steps"] = .array(steps.map { .string($0) })
        case .refused(let code):
            object["code"] = .integer(Int64(code))
            object["message"] = .string(CoreDataError.reason(code))
        }
        if !check.mappingNames.isEmpty {
            object["mapping_models"] = .array(check.mappingNames.map { $0.map { .string($0) } ?? .null })
        }
        if !check.differingEntities.isEmpty {
            object["unmigrated_code"] = .integer(Int64(CoreDataError.incompatibleVersionHash))
        }
        object["differing_entities"] = .array(
            check.differingEntities.map { entity in
                .object([
                    "entity": .string(entity.name), "old": entity.oldHash.map { .string($0.hexadecimal) } ?? .null,
                    "new": entity.newHash.map { .string($0.hexadecimal) } ?? .null,
                ])
            })
        if !check.losses.isEmpty { object["removes"] = check.losses.json }
        object["metadata"] = metadata.map { .object($0) }
        return object
    }

    /// The store's metadata that Core Data's error quotes.
    private var metadata: JSONObject? {
        guard let metadata = store?.metadata else { return nil }
        var object = JSONObject()
        object["NSStoreUUID"] = metadata.uuid.map { .string($0) } ?? .null
        object["NSStoreType"] = metadata.storeType.map { .string($0) } ?? .null
        object["NSPersistenceFrameworkVersion"] = metadata.frameworkVersion.map { .integer(Int64($0)) } ?? .null
        object["NSStoreModelVersionIdentifiers"] = .array(metadata.versionIdentifiers.map { .string($0) })
        var hashes = JSONObject()
        for (name, hash) in metadata.versionHashes.sorted(by: { $0.key.precedes($1.key) }) {
            hashes[name] = .string(hash.hexadecimal)
        }
        object["NSStoreModelVersionHashes"] = .object(hashes)
        return object
    }

    fileprivate func record(of finding: MigrationFinding) -> JSONObject {
        var object: JSONObject = [
            "type": "finding", "from": .string(old.name), "to": .string(new.name),
            "severity": .string(finding.severity.rawValue),
        ]
        object["code"] = finding.code.map { .integer(Int64($0)) }
        object["entity"] = finding.entity.map { .string($0) }
        object["property"] = finding.property.map { .string($0) }
        object["message"] = .string(finding.message)
        object["remedy"] = .string(finding.remedy)
        if let location = location(of: finding) {
            object.setPath("file", bytes: location.path.bytes)
            object["line"] = location.line.map { .integer(Int64($0)) }
        }
        return object
    }
}

import AgentProtocol
import CoreDataStore
import FoundationEssentials
import Glibc
import GroupStoreAgent
import LinuxSystem
import MappingModels
import SystemPackage

/// Prints what `groupstore model check` found.
struct CheckPrinter {
    private let output: Output
    private let format: CheckFormat

    init(_ output: Output, _ format: CheckFormat) {
        self.output = output
        self.format = format
    }

    /// A row for each older version: what becomes of its stores. Then what is to be said of each. `newer` are the versions
    /// that come after the current one.
    func print(all reports: [CheckReport], _ newer: [String]) {
        if !output.json, format == .text { output.record([:], lines: matrix(reports)) }
        for name in newer {
            let text = "\(name) is newer than the current version: its stores aren't migrated backwards"
            output.record(
                ["type": "note", "version": .string(name), "text": .string(text)],
                lines: format == .github ? ["::notice ::\(text)"] : ["", text])
        }
        for report in reports where output.json || format == .github || !report.findings.isEmpty || report.isRefused {
            if !output.json, format == .text { output.record([:], "") }
            print(report)
        }
    }

    private func matrix(_ reports: [CheckReport]) -> [String] {
        guard let current = reports.first?.new.name else { return ["there is no older version: nothing to check"] }
        var table = TextTable()
        table.add(.text("version"), .text("to \(current)"), .number("errors"), .number("warnings"))
        for report in reports {
            let findings = report.findings
            table.add(
                .text(report.old.name), .text(report.sentence),
                .number("\(findings.filter { $0.severity == .error }.count)"),
                .number("\(findings.filter { $0.severity == .warning }.count)"))
        }
        return table.lines()
    }

    func print(_ report: CheckReport) {
        output.record(report.record, lines: format == .github ? [heading(report)] : text(report))
        for finding in report.findings {
            switch (output.json, format) {
            case (true, _): output.record(report.record(of: finding), "")
            case (false, .github): output.record([:], GitHubAnnotation(finding, report).line)
            // Part of the text already.
            case (false, .text): break
            }
        }
        if report.isRefused {
            Output.write("groupstore: \(heading(report)) (see each reason for what would help)", to: STDERR_FILENO)
        }
    }

    func summarize(_ reports: [CheckReport]) {
        let order = ["compatible", "inferred", "mapped", "stepwise", "refused"]
        let worst = reports.map(\.word).max { (order.firstIndex(of: $0) ?? 0) < (order.firstIndex(of: $1) ?? 0) }
        let warnings = reports.flatMap(\.findings).filter { $0.severity == .warning }.count
        let refused = reports.filter(\.isRefused).count
        guard output.json else { return }
        output.record(
            [
                "type": "summary", "outcome": .string(worst ?? "compatible"),
                "checks": .integer(Int64(reports.count)), "refused": .integer(Int64(refused)),
                "warnings": .integer(Int64(warnings)),
            ], "")
    }

    private func heading(_ report: CheckReport) -> String {
        "\(report.old.name) → \(report.new.name): \(report.sentence)"
    }

    private func text(_ report: CheckReport) -> [String] {
        var lines = [heading(report)]
        for finding in report.findings {
            let code = finding.code.map { "\($0) " } ?? ""
            let place = [finding.entity, finding.property].compactMap(\.self).joined(separator: ".")
            let subject = place.isEmpty ? "" : place + ": "
            lines.append("  \(finding.severity.rawValue)  \(code)\(subject)\(finding.message)")
            lines.append("           \(finding.remedy)")
        }
        if !report.check.differingEntities.isEmpty, report.isRefused { lines += incompatibility(report) }
        return lines
    }

    /// What Core Data's error holds when the store is opened without a migration.
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

    /// What Core Data's error would quote of the store.
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
        if let place = place(of: finding) {
            object.setPath("file", bytes: place.path.bytes)
            object["line"] = place.line.map { .integer(Int64($0)) }
        }
        return object
    }
}

/// A workflow command (docs.github.com, "Workflow commands for GitHub Actions").
struct GitHubAnnotation {
    private let finding: MigrationFinding
    private let report: CheckReport

    init(_ finding: MigrationFinding, _ report: CheckReport) {
        self.finding = finding
        self.report = report
    }

    var line: String {
        let command = finding.severity == .note ? "notice" : finding.severity.rawValue
        var properties: [String] = []
        if let place = report.place(of: finding) {
            properties.append("file=" + Self.property(Self.relative(place.path)))
            if let line = place.line { properties.append("line=\(line)") }
        }
        let code = finding.code.map { " (\($0))" } ?? ""
        properties.append("title=" + Self.property("\(report.old.name) → \(report.new.name)\(code)"))
        let subject = [finding.entity, finding.property].compactMap(\.self).joined(separator: ".")
        let text = (subject.isEmpty ? "" : subject + ": ") + finding.message + ". To do: " + finding.remedy
        return "::\(command) \(properties.joined(separator: ","))::\(Self.data(text))"
    }

    /// GitHub knows files by their path in the repository: the nearest directory above with a `.git`, which is a file in a
    /// worktree; where there is none, the directory that the job runs in.
    static func relative(_ path: FilePath) -> String {
        let working = FilePath(workingDirectory())
        var absolute = path.absolute(in: working).lexicallyNormalized()
        guard absolute.removePrefix(repository(of: absolute) ?? working) else { return PrintablePath(path).description }
        return PrintablePath(absolute).description
    }

    private static func repository(of path: FilePath) -> FilePath? {
        var place = path
        while place.removeLastComponent() {
            if FileStatus(following: place.appending(".git")) != nil { return place }
        }
        return nil
    }

    private static func data(_ text: String) -> String {
        text.replacing("%", with: "%25").replacing("\r", with: "%0D").replacing("\n", with: "%0A")
    }

    private static func property(_ text: String) -> String {
        data(text).replacing(":", with: "%3A").replacing(",", with: "%2C")
    }
}

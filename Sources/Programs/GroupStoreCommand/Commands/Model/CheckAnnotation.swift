import AgentProtocol
import LinuxSystem
import MappingModels
import SystemPackage

/// A finding of `model check` with its place, in the forms of tools that show it beside the code.
struct CheckAnnotation {
    let severity: MigrationFinding.Severity
    /// A stable word for the kind of finding.
    let rule: String
    let title: String
    let text: String
    let path: FilePath?
    let line: Int?
    /// `Entity` or `Entity.property`.
    let element: String?

    init(_ finding: MigrationFinding, _ report: CheckReport) {
        let code = finding.code.map { " (\($0))" } ?? ""
        let location = report.location(of: finding)
        self.init(
            finding, rule: finding.code.map { "core_data_\($0)" } ?? "migration_\(finding.severity.rawValue)",
            title: "\(report.old.name) → \(report.new.name)\(code)", path: location?.path, line: location?.line)
    }

    init(_ change: BaseComparison.Change) {
        self.init(
            change.finding, rule: "version_" + change.kind.rawValue, title: change.version, path: change.path, line: nil
        )
    }

    private init(_ finding: MigrationFinding, rule: String, title: String, path: FilePath?, line: Int?) {
        severity = finding.severity
        self.rule = rule
        self.title = title
        self.path = path
        self.line = line
        let subject = [finding.entity, finding.property].compactMap(\.self).joined(separator: ".")
        element = subject.isEmpty ? nil : subject
        text = (subject.isEmpty ? "" : subject + ": ") + finding.message + ". To do: " + finding.remedy
    }

    /// A remark without a place in a file.
    init(note title: String, _ text: String) {
        (severity, rule, self.title, self.text) = (.note, "version_note", title, text)
        (path, line, element) = (nil, nil, nil)
    }

    /// Returns the path as tools know files: relative to the repository, the nearest parent directory with a `.git` (a
    /// file in a worktree). Without one, relative to the directory that the job runs in; nil outside of both.
    static func relative(_ path: FilePath) -> FilePath? {
        let working = FilePath(workingDirectory())
        var absolute = path.absolute(in: working).lexicallyNormalized()
        return absolute.removePrefix(repository(of: absolute) ?? working) ? absolute : nil
    }

    private static func repository(of path: FilePath) -> FilePath? {
        var location = path
        while location.removeLastComponent() {
            if FileStatus(following: location.appending(".git")) != nil { return location }
        }
        return nil
    }
}

extension CheckAnnotation {
    /// The annotation as a workflow command of GitHub Actions (docs.github.com, "Workflow commands for GitHub
    /// Actions").
    var workflowCommand: String {
        let command = severity == .note ? "notice" : severity.rawValue
        var properties: [String] = []
        if let path {
            properties.append("file=" + Self.property(PrintablePath(Self.relative(path) ?? path).description))
            if let line { properties.append("line=\(line)") }
        }
        properties.append("title=" + Self.property(title))
        return "::\(command) \(properties.joined(separator: ","))::\(Self.data(text))"
    }

    private static func data(_ text: String) -> String {
        text.replacing("%", with: "%25").replacing("\r", with: "%0D").replacing("\n", with: "%0A")
    }

    private static func property(_ text: String) -> String {
        data(text).replacing(":", with: "%3A").replacing(",", with: "%2C")
    }
}

/// A document of the Static Analysis Results Interchange Format, version 2.1.0 (docs.oasis-open.org/sarif), which code
/// hosts and editors show.
struct SARIFDocument {
    private let annotations: [CheckAnnotation]

    init(_ annotations: [CheckAnnotation]) { self.annotations = annotations }

    var json: JSONObject {
        let rules = Set(annotations.map(\.rule)).sorted()
        let results = annotations.map { annotation in
            JSONValue.object(Self.result(annotation, ruleIndex: rules.firstIndex(of: annotation.rule) ?? 0))
        }
        let driver: JSONObject = [
            "name": "groupstore", "semanticVersion": .string(GroupStoreCommand.configuration.version),
            "rules": .array(rules.map { .object(Self.rule($0)) }),
        ]
        return [
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
            "runs": .array([
                .object([
                    "tool": .object(["driver": .object(driver)]), "columnKind": "unicodeCodePoints",
                    "results": .array(results),
                ])
            ]),
        ]
    }

    private static func rule(_ name: String) -> JSONObject {
        let code = name.hasPrefix("core_data_") ? Int(name.dropFirst("core_data_".count)) : nil
        let text =
            code.map { "Core Data error \($0): \(CoreDataError.reason($0))" }
            ?? (descriptions[name] ?? "A finding about a migration between two versions of a model")
        return ["id": .string(name), "shortDescription": .object(["text": .string(text)])]
    }

    private static let descriptions = [
        "version_edited": "A version was edited after it was shipped",
        "version_renaming_edited": "A shipped version has other renaming identifiers",
        "version_renamed": "A shipped version has another name", "version_deleted": "A shipped version was deleted",
        "version_set_back": "The current version was set back", "version_note": "A remark on a version",
    ]

    private static func result(_ annotation: CheckAnnotation, ruleIndex: Int) -> JSONObject {
        var result: JSONObject = [
            "ruleId": .string(annotation.rule), "ruleIndex": .integer(Int64(ruleIndex)),
            "level": .string(annotation.severity.rawValue),
            "message": .object(["text": .string(annotation.title + ": " + annotation.text)]),
        ]
        var location = JSONObject()
        if let path = annotation.path {
            var physical: JSONObject = ["artifactLocation": .object(["uri": .string(uri(path))])]
            if let line = annotation.line { physical["region"] = .object(["startLine": .integer(Int64(line))]) }
            location["physicalLocation"] = .object(physical)
        }
        if let element = annotation.element {
            location["logicalLocations"] = .array([.object(["fullyQualifiedName": .string(element)])])
        }
        if !location.members.isEmpty { result["locations"] = .array([.object(location)]) }
        return result
    }

    /// Returns the path as a URI reference (RFC 3986): relative to the repository, or a `file` URI outside of it.
    private static func uri(_ path: FilePath) -> String {
        let relative = CheckAnnotation.relative(path)
        let bytes = (relative ?? path.absolute(in: FilePath(workingDirectory()))).bytes
        let digits = Array("0123456789ABCDEF".utf8)
        let text = bytes.flatMap { byte -> [UInt8] in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "~"), UInt8(ascii: "/"):
                [byte]
            default: [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
        return (relative == nil ? "file://" : "") + String(decoding: text, as: UTF8.self)
    }
}

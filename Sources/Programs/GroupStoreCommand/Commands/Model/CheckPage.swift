import LinuxSystem
import MappingModels
import StoreMigration

/// The check of all versions of a model as a page: a row for each version, and the findings of each below.
struct CheckPage {
    private let title: String
    private let reports: [CheckReport]
    private let newer: [String]

    /// - Parameter newer: The versions after the current one, whose stores aren't migrated.
    init(_ title: String, _ reports: [CheckReport], newer: [String]) {
        (self.title, self.reports, self.newer) = (title, reports, newer)
    }

    var lines: [String] {
        var page = HTMLPage(title)
        guard let current = reports.first?.new.name else {
            page.add("<p>" + HTMLPage.text(CheckPrinter.nothingToCheck(newer)) + "</p>")
            addNewer(to: &page)
            return page.lines
        }
        page.add("<p>" + HTMLPage.text(CheckReport.summary(of: reports)) + "</p>")
        page.addTable(["version", "to \(current)", "steps", "errors", "warnings"], reports.map(row))
        addNewer(to: &page)
        for report in reports where !report.findings.isEmpty || report.isRefused {
            page.add("<h2 id=\"\(anchor(report))\">\(HTMLPage.text(report.old.name))</h2>")
            page.add("<p class=\"\(report.isRefused ? "bad" : "good")\">\(HTMLPage.text(report.sentence))</p>")
            page.addTable(["", "where", "finding", "remedy"], report.findings.map { finding($0) })
        }
        return page.lines
    }

    private func addNewer(to page: inout HTMLPage) {
        for name in newer {
            page.add(
                "<p class=\"note\">"
                    + HTMLPage.text("\(name) is newer than the current version: stores aren't migrated backwards")
                    + "</p>")
        }
    }

    private func anchor(_ report: CheckReport) -> String {
        "v\(reports.firstIndex { $0.old.name == report.old.name } ?? 0)"
    }

    private func row(_ report: CheckReport) -> (style: String?, cells: [String]) {
        let findings = report.findings
        let name = HTMLPage.text(report.old.name)
        let link = findings.isEmpty && !report.isRefused ? name : "<a href=\"#\(anchor(report))\">\(name)</a>"
        let steps = report.check.steps.map(\.destinationName).joined(separator: " → ")
        return (
            nil,
            [
                link, "<span class=\"\(report.isRefused ? "bad" : "good")\">\(HTMLPage.text(report.sentence))</span>",
                HTMLPage.text(steps), Self.number(of: .error, in: findings),
                Self.number(of: .warning, in: findings),
            ]
        )
    }

    /// Returns the number of findings of a severity; empty if there is none, so that the others stand out.
    private static func number(of severity: MigrationFinding.Severity, in findings: [MigrationFinding]) -> String {
        let count = findings.count { $0.severity == severity }
        let style = severity == .error ? "bad" : "warning"
        return count == 0 ? "" : "<span class=\"\(style)\">\(count)</span>"
    }

    private func finding(_ finding: MigrationFinding) -> (style: String?, cells: [String]) {
        let style =
            switch finding.severity {
            case .error: "bad"
            case .warning: "warning"
            case .note: "note"
            }
        let place = [finding.entity, finding.property].compactMap(\.self).joined(separator: ".")
        return (
            nil,
            [
                "<span class=\"\(style)\">\(finding.severity.rawValue)</span>", "<code>\(HTMLPage.text(place))</code>",
                HTMLPage.text(finding.message), HTMLPage.text(finding.remedy),
            ]
        )
    }
}

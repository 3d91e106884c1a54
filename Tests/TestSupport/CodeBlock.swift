import Foundation
import SystemPackage

/// A fenced block of the README, the documentation, the DocC catalogues or the samples' pages.
package struct CodeBlock {
    package let page: String
    /// The number of its first line in the page, from 1.
    package let line: Int
    package let language: String
    package let lines: [String]

    /// True for a Package.swift that depends on this package, or for a part of one.
    package var isManifest: Bool { lines.contains { $0.contains(".package(") } }
    /// True for a whole file of a program.
    package var isProgram: Bool { lines.contains { $0.hasPrefix("@main") } }

    /// The package's directory.
    package static let root = FilePath(#filePath).removingLastComponent().removingLastComponent()
        .removingLastComponent()

    private static func pages() throws -> [String] {
        let folders = ["Clients", "Documentation", "Samples", "Sources"]
        let found = try folders.flatMap { folder in
            try FileManager.default.subpathsOfDirectory(atPath: root.string + "/" + folder).map { folder + "/" + $0 }
        }
        return ["README.md", "CONTRIBUTING.md"] + found.filter { $0.hasSuffix(".md") }.sorted()
    }

    /// Returns all blocks, in the order of the pages.
    package static func all() throws -> [CodeBlock] {
        try pages().flatMap { page in
            var found: [CodeBlock] = []
            var open: (line: Int, language: String, lines: [String])?
            let text = try String(contentsOfFile: root.string + "/" + page, encoding: .utf8)
            for (number, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
                if line.hasPrefix("```") {
                    if let block = open {
                        found.append(
                            CodeBlock(page: page, line: block.line, language: block.language, lines: block.lines))
                        open = nil
                    } else {
                        open = (number + 2, String(line.dropFirst(3)), [])
                    }
                } else {
                    open?.lines.append(String(line))
                }
            }
            return found
        }
    }
}

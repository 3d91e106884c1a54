import LinuxSystem
import SystemPackage

/// The reason why a Core Data XML store can't be read. The file is unchanged.
package struct XMLStoreError: ActionableError, Equatable {
    package let path: FilePath
    let reason: String
    /// The line in the file, from 1; nil if no single one is concerned.
    let line: Int?
    package let remedy: String

    package var errorCode: String { "bad_xml_store" }
    package var message: String {
        "\(PrintablePath(path))\(line.map { ", line \($0)" } ?? ""): \(PrintableText(reason))"
    }
    package var errorPath: FilePath? { path }

    init(_ path: FilePath, _ reason: String, line: Int? = nil, remedy: String) {
        self.path = path
        self.reason = reason
        self.line = line
        self.remedy = remedy
    }
}

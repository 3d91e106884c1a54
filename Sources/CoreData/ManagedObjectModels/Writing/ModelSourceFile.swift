import Glibc
import LinuxSystem
import SystemPackage
import XMLDocuments

extension ManagedObjectModel {
    /// The model as the `contents` of an `.xcdatamodel`: the XML that Xcode reads.
    ///
    /// Some settings, such as an attribute's data as the default value, have no place in the XML and are left out.
    /// ``writeSource(to:)`` names them.
    ///
    /// - Throws: ``ModelFault`` if a name contains a character that XML doesn't permit.
    public func sourceDocument() throws -> String { try XMLModelWriter.document(of: self) }

    /// Writes the model as an `.xcdatamodel`, or as an `.xcdatamodeld` with one version, and reads it back: the version
    /// hashes are those of this model, or nothing is written.
    ///
    /// ```swift
    /// let omitted = try model.writeSource(to: "/srv/recovered/Notes.xcdatamodel")
    /// ```
    ///
    /// - Parameter path: The new directory, which must not exist. Its extension decides the form.
    /// - Returns: A note for each setting that the XML can't express; no version hash covers them.
    /// - Throws: ``ModelError`` with the code ``ModelError/Code/inexpressible`` if the hashes depend on a setting that
    ///   XML can't express, or another one if the files can't be written.
    public func writeSource(to path: FilePath) throws -> [ModelReadingNote] {
        do { return try ModelSourceFile(path).write(self) } catch let error as SystemError {
            throw error.errno == .fileExists
                ? ModelError(.exists, path, "this exists already", remedy: "name another path", cause: error)
                : ModelError(error, path)
        }
    }
}

/// An `.xcdatamodel` or `.xcdatamodeld` that is made under a temporary name, and gets its own name when it is whole.
private struct ModelSourceFile {
    private let path: FilePath

    init(_ path: FilePath) { self.path = path }

    func write(_ model: ManagedObjectModel) throws -> [ModelReadingNote] {
        guard let name = path.lastComponent, ["xcdatamodel", "xcdatamodeld"].contains(name.extension),
            let version = FilePath.Component(name.stem + ".xcdatamodel")
        else {
            throw ModelError(
                .notAModel, path, "a model's source is a directory that ends in .xcdatamodel or .xcdatamodeld",
                remedy: "name it so")
        }
        let (contents, omissions) = try document(of: model)
        let parent = path.removingLastComponent()
        let directory = try Directory(parent.isEmpty ? "." : parent)
        guard try directory.status(name) == nil else { throw SystemError("mkdir", .fileExists, path: path) }
        let random = String(UInt64.random(in: .min ... .max), radix: 16)
        guard let temporary = FilePath.Component(".groupstore-model-" + random) else { return [] }
        do {
            try directory.makeDirectory(temporary, mode: 0o777)
            let made = try directory.directory(temporary)
            if name.extension == "xcdatamodeld" {
                try made.makeDirectory(version, mode: 0o777)
                try write(contents, "contents", in: made.directory(version))
                try write(Self.currentVersion(version.string), ".xccurrentversion", in: made)
            } else {
                try write(contents, "contents", in: made)
            }
            try made.synchronize()
            try directory.rename(temporary, to: name, in: directory, .refuse)
            try directory.synchronize()
        } catch {
            try? directory.removeTree(temporary)
            throw error
        }
        return omissions
    }

    private func write(_ text: String, _ name: FilePath.Component, in directory: Directory) throws(SystemError) {
        let file = try directory.open(name, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o666)
        let place = directory.path.appending(name)
        try file.write(Array(text.utf8), at: 0, path: place)
        try file.synchronize(path: place)
        try directory.synchronize()
    }

    /// Returns the document, which says exactly what the version hashes cover, and notes on what else it leaves out.
    private func document(of model: ManagedObjectModel) throws -> (String, [ModelReadingNote]) {
        let text: String
        do { text = try model.sourceDocument() } catch let fault as ModelFault {
            throw ModelError(.inexpressible, path, element: fault.element, fault.message, remedy: fault.remedy)
        }
        let written = try XMLModelReader.read(Array(text.utf8), path: path, name: path.stem ?? "").model
        let omissions = ModelOmissions(of: model, in: written).notes
        let hashes = written.entityVersionHashesByName
        let differing = model.entities.map(\.name).filter { hashes[$0] != model.entityVersionHashesByName[$0] }
        guard differing.isEmpty, hashes.count == model.entities.count else {
            let reasons = omissions.filter { $0.entity.map(differing.contains) ?? false }.prefix(5).map { note in
                [note.entity, note.property].compactMap(\.self).joined(separator: ".") + ": " + note.message
            }
            throw ModelError(
                .inexpressible, path, element: differing.first,
                (["the version hashes would differ for \(differing.joined(separator: ", "))"] + reasons)
                    .joined(separator: "; "),
                remedy: "use the store itself as the model: every command that takes a model takes a store")
        }
        return (text, omissions)
    }

    private static func currentVersion(_ name: String) -> String {
        """
        <?xml version="1.0" encoding="UTF-8"?>
        <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
        <plist version="1.0">
        <dict>
        \t<key>_XCCurrentVersionName</key>
        \t<string>\(name.escapedForMarkup)</string>
        </dict>
        </plist>

        """
    }
}

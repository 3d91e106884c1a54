import Glibc
import LinuxSystem
import PropertyLists
import SystemPackage
import XMLDocuments

/// A reader of a model's files: it finds the versions and the current one.
struct ModelFiles {
    /// The limit of a file, in bytes.
    private static let maximumFileSize: Int64 = 64 << 20
    private static let maximumVersionCount = 2_000

    private let path: FilePath

    init(_ path: FilePath) { self.path = path }

    /// Reads all versions. Throws `ModelError`.
    func bundle() throws -> ModelBundle {
        guard let status = FileStatus(following: path) else {
            throw ModelError(SystemError.last("stat", path: path), path)
        }
        guard status.kind == .directory else { return try file() }
        let names = try names(path)
        if names.contains(where: { $0.extension == "xcdatamodel" }), !names.contains("contents") {
            return try bundle(names, extension: "xcdatamodel", currentName: currentXcodeVersion(names))
        }
        if names.contains(where: { $0.extension == "mom" }) {
            return try bundle(names, extension: "mom", currentName: currentCompiledVersion(names))
        }
        if names.contains("contents") || path.extension == "xcdatamodel" {
            return try single(try xmlVersion(path, named: stem(path)))
        }
        throw ModelError(
            .notAModel, path, "there is no model in this directory",
            remedy: "name an .xcdatamodeld, .xcdatamodel, .momd or .mom")
    }

    /// Reads a single file: a compiled model, or the `contents` of a source model.
    private func file() throws -> ModelBundle {
        let bytes = try bytes(path)
        if bytes.starts(with: Array("SQLite format 3".utf8)) {
            throw ModelError(
                .notAModel, path, "this is a store, not a model", remedy: "name the store's model")
        }
        if path.lastComponent == "contents" {
            return try single(try xmlVersion(path.removingLastComponent(), named: stem(path.removingLastComponent())))
        }
        if bytes.starts(with: Array("<".utf8)), path.extension != "mom" {
            return try single(XMLModelReader.read(bytes, path: path, name: stem(path)))
        }
        return try single(ArchivedModelReader.read(bytes, path: path, name: stem(path)))
    }

    private func single(_ version: ModelVersion) throws -> ModelBundle {
        guard let bundle = ModelBundle(path: path, versions: [version], currentName: nil) else { throw noVersions }
        return bundle
    }

    private func bundle(
        _ names: [FilePath.Component], extension kind: String, currentName: String?
    ) throws -> ModelBundle {
        let files = names.filter { $0.extension == kind }
        guard files.count <= Self.maximumVersionCount else {
            throw ModelError(.malformed, path, "there are \(files.count) versions", remedy: "name one of them")
        }
        var versions: [ModelVersion] = []
        var unreadable: [UnreadableVersion] = []
        for name in files {
            let file = path.appending(name)
            if kind != "xcdatamodel" {
                versions.append(try ArchivedModelReader.read(bytes(file), path: file, name: name.stem))
            } else if let error = legacyFormatError(file) {
                // Xcode leaves such a version unchanged until it is saved again. It doesn't affect the other versions.
                unreadable.append(UnreadableVersion(name: name.stem, error: error))
            } else {
                versions.append(try xmlVersion(file, named: name.stem))
            }
        }
        if let current = unreadable.first(where: { $0.name == currentName }) { throw current.error }
        guard
            let bundle = ModelBundle(
                path: path, versions: versions, unreadable: unreadable, currentName: currentName)
        else { throw unreadable.first?.error ?? noVersions }
        return bundle
    }

    private var noVersions: ModelError {
        ModelError(.notAModel, path, "the bundle contains no version", remedy: "add a model version to it")
    }

    /// Returns an error for a version in Xcode 3's format: binary files of its own instead of `contents`. Otherwise
    /// nil.
    private func legacyFormatError(_ directory: FilePath) -> ModelError? {
        guard FileStatus(following: directory.appending("contents")) == nil,
            FileStatus(following: directory.appending("elements")) != nil
        else { return nil }
        return ModelError(
            .notAModel, directory, "the model is in the format of Xcode 3",
            remedy: "open it in Xcode 4 or later and save it")
    }

    /// Reads an `.xcdatamodel`, a directory with a file `contents`.
    private func xmlVersion(_ directory: FilePath, named name: String) throws -> ModelVersion {
        if let error = legacyFormatError(directory) { throw error }
        let file = directory.appending("contents")
        guard FileStatus(following: file) != nil else {
            throw ModelError(
                .notAModel, directory, "the model has no file “contents”",
                remedy: "name an .xcdatamodel with its contents")
        }
        return try XMLModelReader.read(bytes(file), path: file, name: name)
    }

    // MARK: Current version

    /// Returns the version that `.xccurrentversion` names. A bundle without that file has one version.
    private func currentXcodeVersion(_ names: [FilePath.Component]) throws -> String? {
        guard names.contains(".xccurrentversion") else { return nil }
        let file = path.appending(".xccurrentversion")
        guard let name = try propertyList(file)["_XCCurrentVersionName"]?.string else { return nil }
        return try validatedVersion(
            name.removingSuffix(".xcdatamodel"), among: names, extension: "xcdatamodel", namedIn: file)
    }

    private func currentCompiledVersion(_ names: [FilePath.Component]) throws -> String? {
        guard names.contains("VersionInfo.plist") else { return nil }
        let file = path.appending("VersionInfo.plist")
        guard let name = try propertyList(file)["NSManagedObjectModel_CurrentVersionName"]?.string else { return nil }
        return try validatedVersion(name, among: names, extension: "mom", namedIn: file)
    }

    /// Returns `name` if the bundle has that version. The version of a bundle with only one is current whatever the
    /// file says, as in Xcode.
    private func validatedVersion(
        _ name: String, among names: [FilePath.Component], extension kind: String, namedIn file: FilePath
    ) throws -> String? {
        let versions = names.filter { $0.extension == kind }.map(\.stem)
        if versions.contains(name) { return name }
        guard versions.count > 1 else { return versions.first }
        throw ModelError(
            .invalid, file, "the current version “\(name)” is not in the bundle",
            remedy: "choose the current version again")
    }

    private func propertyList(_ file: FilePath) throws -> [String: PropertyListValue] {
        let bytes = try bytes(file)
        let list: PropertyListValue
        do throws(PropertyListError) { list = try PropertyListValue(parsing: bytes) } catch {
            throw ModelError(.malformed, file, line: error.line, error.message, remedy: "restore the file")
        }
        guard let members = list.dictionary else {
            throw ModelError(.malformed, file, "the property list is not a dictionary", remedy: "restore the file")
        }
        return members
    }

    // MARK: Files

    private func names(_ directory: FilePath) throws -> [FilePath.Component] {
        do throws(SystemError) { return try Directory(directory).names() } catch { throw ModelError(error, directory) }
    }

    private func bytes(_ file: FilePath) throws -> [UInt8] {
        do throws(SystemError) {
            let descriptor = try Descriptor(opening: file, flags: O_RDONLY | O_NONBLOCK)
            let status = try descriptor.status(path: file)
            if status.kind == .regular, status.size <= Self.maximumFileSize {
                return try descriptor.read(count: Int(status.size), at: 0, path: file)
            }
        } catch {
            throw ModelError(error, file)
        }
        throw ModelError(
            .malformed, file, "this is not a regular file, or it is larger than \(Self.maximumFileSize >> 20) MiB",
            remedy: "name a model")
    }

    private func stem(_ path: FilePath) -> String { path.lastComponent?.stem ?? "" }
}

extension String {
    fileprivate func removingSuffix(_ suffix: String) -> String {
        hasSuffix(suffix) ? String(dropLast(suffix.count)) : self
    }
}

import LinuxSystem
import StrictYAML
import SystemPackage

/// Why a recipe can't be used, with its file and line.
package struct AppRecipeError: ActionableError, Equatable {
    package let path: FilePath
    package let line: Int?
    package let reason: String
    package var remedy: String

    package var errorCode: String { "recipe" }
    package var errorPath: FilePath? { path }
    package var message: String { "\(PrintablePath(path))\(line.map { ":\($0)" } ?? ""): \(reason)" }
    package var description: String { message }
}

extension AppRecipe {
    package static let directoryName: FilePath.Component = "apps.d"
    private static let reader = YAMLReader(aliases: .refused, maximumBytes: 1 << 18, maximumDepth: 8)
    private static let keys: Set = [
        "recipe", "name", "about", "directory", "stores", "files", "leave", "keys", "rewrite", "after",
    ]

    /// Reads a recipe, strictly: an unknown key or a wrong value is an error with its line. Throws `AppRecipeError`.
    package init(reading path: FilePath) throws(AppRecipeError) {
        let bytes: [UInt8]
        do throws(SystemError) {
            let file = try Descriptor(opening: path, flags: 0)
            bytes = try file.read(count: (1 << 18) + 1, at: 0, path: path)
        } catch {
            throw AppRecipeError(
                path: path, line: nil, reason: "\(error)", remedy: "see the recipes: groupstore app recipes")
        }
        try self.init(bytes, at: path)
    }

    package init(_ bytes: [UInt8], at path: FilePath) throws(AppRecipeError) {
        do {
            guard let root = try Self.reader.root(of: bytes) else { throw RecipeFault(nil, "it is empty") }
            try self.init(YAMLSection(root, "a recipe", keys: Self.keys))
        } catch let fault as RecipeFault {
            throw AppRecipeError(path: path, line: fault.line, reason: fault.reason, remedy: "change that line")
        } catch let error as YAMLError {
            throw AppRecipeError(
                path: path, line: error.line, reason: error.reason.description, remedy: "change that line")
        } catch {
            throw AppRecipeError(path: path, line: nil, reason: "\(error)", remedy: "change it")
        }
    }

    private init(_ section: YAMLSection) throws {
        let version = try section.required("recipe")
        guard try version.integer("recipe") == 1 else {
            throw RecipeFault(version.line, "this version of recipes is unknown: write recipe: 1")
        }
        name = try section.required("name").string("name")
        about = try section.required("about").string("about")
        directory = try section["directory"]?.string("directory")
        stores = try Self.patterns(section.required("stores"), "stores")
        guard !stores.isEmpty else { throw RecipeFault(try section.required("stores").line, "stores is empty") }
        files = try section["files"].map { try Self.patterns($0, "files") } ?? []
        leave = try section["leave"].map { try Self.patterns($0, "leave") } ?? []
        keys = try section["keys"].map { try Self.patterns($0, "keys") } ?? []
        rewrite = try section["rewrite"]?.boolean("rewrite") ?? false
        after = try section["after"].map(Self.checks) ?? []
    }

    private static func patterns(_ node: YAMLNode, _ key: String) throws -> [PathPattern] {
        try node.elements(key).map { element in
            let text = try element.string(key)
            guard let pattern = PathPattern(text) else {
                let fault = PathPattern.fault(in: text) ?? "is not a pattern"
                throw RecipeFault(element.line, "\(PrintableText(text)) \(fault)")
            }
            return pattern
        }
    }

    private static func checks(_ node: YAMLNode) throws -> [Check] {
        try node.elements("after").map { element in
            let section = try YAMLSection(element, "a check", keys: ["store", "table"])
            let text = try section.required("store").string("store")
            let store = FilePath(text)
            guard PathPattern.isInside(text), store.lexicallyNormalized() == store else {
                throw RecipeFault(element.line, "\(PrintableText(text)) is not a store's path in the directory")
            }
            return Check(store: store, table: try section.required("table").string("table"))
        }
    }

    // MARK: - Where recipes are

    /// Returns the directories of recipes, first those that count first: the user's, then the system's
    /// (`$XDG_DATA_DIRS`).
    package static func directories(environment: [String: String]) -> [FilePath] {
        func variable(_ name: String) -> String? { environment[name].flatMap { $0.isEmpty ? nil : $0 } }
        let user = variable("XDG_CONFIG_HOME") ?? variable("HOME").map { $0 + "/.config" }
        let system = variable("XDG_DATA_DIRS") ?? "/usr/local/share:/usr/share"
        let places: [String] = [user].compactMap { $0 } + system.split(separator: ":").map { String($0) }
        return places.map { FilePath($0) }.filter { $0.isAbsolute }
            .map { $0.appending(["groupstore", directoryName]) }
    }

    /// Returns the files of all recipes by their names, those of a user before the system's.
    package static func files(environment: [String: String]) -> [FilePath] {
        var names: Set<FilePath.Component> = []
        return directories(environment: environment).flatMap { place -> [FilePath] in
            let found = ((try? Directory(place).names()) ?? []).filter { $0.extension == "yaml" }
            return found.sorted { $0.string < $1.string }.filter { names.insert($0).inserted }.map(place.appending)
        }
    }

    /// Returns the file of a recipe that is named, or the path itself: a name has no slash.
    package static func file(_ text: FilePath, environment: [String: String]) -> FilePath {
        guard text.components.count == 1, text.isRelative, text.extension == nil else { return text }
        let files = files(environment: environment)
        return files.first { $0.lastComponent?.stem == text.string } ?? text
    }
}

/// A value that a recipe can't have.
private struct RecipeFault: Error {
    let line: Int?
    let reason: String

    init(_ line: Int?, _ reason: String) { (self.line, self.reason) = (line, reason) }
}

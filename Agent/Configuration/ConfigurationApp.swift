import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StrictYAML
import SystemPackage

/// Parses the entry of one app: a program's directory that is moved into the group.
extension ConfigurationFile {
    private static let appKeys: Set<String> = [
        "app", "destination", "recipe", "rewrite", "settle", "deadline", "stop-holders", "assume-closed",
    ]

    /// - Parameter group: The group's directory.
    func read(
        app node: YAMLNode, of group: FilePath, _ builder: inout ConfigurationBuilder
    ) throws(ConfigurationError) {
        let section = try section(node, "an app", keys: Self.appKeys)
        var recipe: AppRecipe?
        if let value = section["recipe"] { recipe = try self.recipe(value) }
        let (source, place) = try source(section, recipe, node)
        guard let last = source.lastComponent else {
            throw invalid(place.line, "\(PrintablePath(source)) is no program's directory", "name that")
        }
        try checkHome(source, place)
        var name = last
        if let value = section["destination"] { name = try destination(value, in: group) }
        try checkReserved(name, section["destination"] ?? place)
        var app = Configuration.App(source: source, name: name)
        app.recipe = recipe
        app.rewritesOwnPath = recipe?.rewrite ?? false
        if let value = section["rewrite"] { try read(rewrite: value, &app) }
        if let value = section["settle"] { app.settle = try duration(value) }
        if let value = section["deadline"] { app.deadline = try duration(value) }
        if let value = section["stop-holders"] { app.stopsHolders = try boolean(value, "stop-holders") }
        if let value = section["assume-closed"] { app.assumeClosed = try boolean(value, "assume-closed") }
        try builder.add(app, line: place.line)
    }

    /// Returns the directory that the entry names, else the recipe's, and the node that names it.
    private func source(
        _ section: YAMLSection, _ recipe: AppRecipe?, _ node: YAMLNode
    ) throws(ConfigurationError) -> (FilePath, YAMLNode) {
        if let value = section["app"] { return (try legacyPath(value), value) }
        guard let value = section["recipe"] else {
            throw invalid(node.line, "an app has neither app nor recipe", "name its directory: add app:")
        }
        guard let text = recipe?.directory else {
            throw invalid(value.line, "the recipe doesn't say where the directory is", "name it: add app:")
        }
        return (try absolute(text, at: value), value)
    }

    /// Throws for a name that a store beside the directory, or groupstore itself, may have for a file.
    private func checkReserved(_ name: FilePath.Component, _ node: YAMLNode) throws(ConfigurationError) {
        guard StoreName.isReserved(name) else { return }
        throw invalid(
            node.line, "\(PrintablePath(name)) can't be a directory in the group: a store's files have such names",
            "add destination: with a name that doesn't end in -wal, -shm or -journal, and is neither .NAME_SUPPORT "
                + "nor begins with .groupstore")
    }

    /// Throws for the home directory, and for one that holds it.
    private func checkHome(_ source: FilePath, _ node: YAMLNode) throws(ConfigurationError) {
        guard let text = environment["HOME"], text.hasPrefix("/") else { return }
        let home = FilePath(text).lexicallyNormalized()
        guard home.starts(with: source) || home.resolvingLinks.starts(with: source.resolvingLinks) else { return }
        throw invalid(
            node.line, "\(PrintablePath(source)) is no program's directory: it is, or holds, the home directory",
            "name the program's")
    }

    /// Returns the name in the group's directory that is written as such, or as a path.
    private func destination(
        _ node: YAMLNode, in group: FilePath
    ) throws(ConfigurationError) -> FilePath.Component {
        let text = try string(node, "destination")
        let isPath = text.hasPrefix("/") || text.hasPrefix("~")
        let path = isPath ? try absolute(text, at: node) : group.appending(text)
        guard let name = path.lastComponent, name.kind == .regular, path.removingLastComponent() == group,
            name != GroupContainer.bookkeepingName, name.bytes.count <= NAME_MAX
        else {
            throw invalid(
                node.line, "\(text) is no place in the group's directory \(PrintablePath(group))",
                "write a name, without a directory")
        }
        return name
    }

    private func recipe(_ node: YAMLNode) throws(ConfigurationError) -> AppRecipe {
        let text = try string(node, "recipe")
        let found = AppRecipe.file(FilePath(text), environment: environment)
        guard found.isAbsolute || text.contains("/") else {
            throw invalid(node.line, "there is no recipe \(text)", "see which there are: groupstore app recipes")
        }
        let path = found.isAbsolute ? found : try absolute(text, at: node)
        do throws(AppRecipeError) {
            return try AppRecipe(reading: path)
        } catch {
            throw invalid(node.line, "the recipe can't be used: \(error.message)", error.remedy)
        }
    }

    /// Parses `true`, `false`, or a list of paths to change.
    private func read(rewrite node: YAMLNode, _ app: inout Configuration.App) throws(ConfigurationError) {
        guard node.scalar == nil else { return app.rewritesOwnPath = try boolean(node, "rewrite") }
        for entry in try list(node, "rewrite") {
            let section = try section(entry, "an entry of rewrite", keys: ["old", "new"])
            let (old, new) = (try absolute(required("old", in: section)), try absolute(required("new", in: section)))
            guard let rewrite = PathRewrite(old: old, new: new) else {
                throw invalid(entry.line, "\(PrintablePath(old)) can't be changed", "name a path below the root")
            }
            guard !app.rewrites.contains(where: { $0.old.path == old }) else {
                throw invalid(entry.line, "rewrite names \(PrintablePath(old)) twice", "keep one")
            }
            app.rewrites.append(rewrite)
        }
    }
}

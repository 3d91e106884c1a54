import AgentProtocol
import ArgumentParser
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A store named on the command line: a path, or `GROUP_ID/NAME`.
struct StoreArgument {
    private let text: String

    init(_ text: String) { self.text = text }

    /// Returns the store's location with symbolic links resolved. A path that exists takes precedence over a group. A
    /// group's directory is the one that the agent serves, else the standard one.
    ///
    /// Throws `StoreError`, `SystemError`, `CommandFailure` if there is no such store or group, and the errors of
    /// finding a group.
    func location() throws -> StoreLocation {
        let given = ArgumentBytes.path(text)
        let path = try Self.resolved(given) ?? Self.groupStore(given).flatMap(Self.resolved)
        guard let path else { throw try MissingStore(given).failure() }
        guard let last = path.lastComponent, let name = StoreName.existing(last) else {
            throw StoreError.notAFile(path)
        }
        return StoreLocation(directory: try Directory(path.removingLastComponent()), name: name)
    }

    /// The place of the symbolic link that the path is; nil if it is none. Programs may still have the store open that
    /// had this name before.
    var link: StoreLocation? {
        let path = ArgumentBytes.path(text).absolute(in: FilePath(workingDirectory()))
        guard let last = path.lastComponent, let name = StoreName.existing(last),
            let directory = try? Directory(resolving: path.removingLastComponent()),
            (try? directory.status(last))?.kind == .symbolicLink
        else { return nil }
        return StoreLocation(directory: directory, name: name)
    }

    /// Returns the path of `GROUP_ID/NAME`, where there need not be a store yet; nil if there is no such group. A store
    /// may also be in a directory of the group, as in a program's that was moved there.
    static func groupStore(_ given: FilePath) throws -> FilePath? {
        guard given.isRelative, given.components.count > 1, given.components.allSatisfy({ $0.kind == .regular }),
            let first = given.components.first, let group = GroupIdentifier(first.string),
            let directory = try NamedGroup(group).directory
        else { return nil }
        return directory.appending(given.components.dropFirst())
    }

    /// Returns nil if nothing has that name.
    private static func resolved(_ path: FilePath) throws(SystemError) -> FilePath? {
        guard let found = path.withPlatformString({ realpath($0, nil) }) else {
            let error = SystemError.last("realpath", path: path)
            if error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory { return nil }
            throw error
        }
        defer { free(found) }
        return FilePath(platformString: found)
    }
}

extension GroupIdentifier {
    /// Returns the group's directory in the standard configuration, else the default one; nil if `HOME` isn't set.
    func standardDirectory(environment: [String: String]) throws(ConfigurationError) -> FilePath? {
        let configured = try Configuration.standard(environment: environment)?.group(rawValue)?.directory
        return configured ?? defaultDirectory(environment: environment)
    }
}

extension Configuration {
    /// Loads the standard configuration; nil if there is no file.
    static func standard(environment: [String: String]) throws(ConfigurationError) -> Configuration? {
        guard !ConfigurationSources(environment: environment).files().files.isEmpty else { return nil }
        return try ConfigurationLoader(environment: environment).load()
    }
}

/// The options with which an agent names a store to its own child process. The agent may run as root, and other users
/// may write to the group's directory: nothing that they put there may redirect it.
struct HeldStoreOptions: ParsableArguments {
    /// True if the store must be the named file itself, not a symbolic link.
    @Flag(help: .hidden)
    var noLinks = false

    /// The file, DEVICE:INODE, that the requesting user may open.
    @Option(help: .hidden)
    var onlyFile: FileIdentity?

    /// Returns the store's location. With these options the directory is held open, and symbolic links on the way to it
    /// are followed only as far as they can be trusted. Throws `StoreError` for anything but a regular file.
    func location(_ text: String) throws -> StoreLocation {
        guard noLinks || onlyFile != nil else { return try StoreArgument(text).location() }
        let path = ArgumentBytes.path(text)
        guard let last = path.lastComponent, let name = StoreName.existing(last) else {
            throw StoreError.notAFile(path)
        }
        let directory = try Directory(path.removingLastComponent())
        guard let found = try directory.status(last) else { throw StoreError.missing(path) }
        guard found.kind == .regular else { throw StoreError.notAFile(path) }
        return StoreLocation(directory: directory, name: name, granted: onlyFile)
    }
}

extension FileIdentity: ExpressibleByArgument {
    public init?(argument: String) {
        let numbers = argument.split(separator: ":", omittingEmptySubsequences: false).map { UInt64($0) }
        guard numbers.count == 2, let device = numbers[0], let inode = numbers[1] else { return nil }
        self.init(device: device, inode: inode)
    }
}

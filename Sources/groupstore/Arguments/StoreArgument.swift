import AgentProtocol
import ArgumentParser
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A store as it is named on the command line: a path, or `GROUP_ID/NAME`.
struct StoreArgument {
    private let text: String

    init(_ text: String) { self.text = text }

    /// Where the store is, symbolic links followed. What exists as a path is one; only then a group is thought of,
    /// whose directory is the standard configuration's, else the default one.
    ///
    /// Throws `StoreError`, `SystemError`, and `ConfigurationError` for a configuration that can't be read.
    func location() throws -> StoreLocation {
        let given = ArgumentBytes.path(text)
        let path = try Self.resolved(given) ?? groupStore().flatMap(Self.resolved)
        guard let path else { throw StoreError.missing(given) }
        guard let last = path.lastComponent, let name = StoreName(last) else { throw StoreError.notAFile(path) }
        return StoreLocation(directory: try Directory(path.removingLastComponent()), name: name)
    }

    private func groupStore() throws -> FilePath? {
        guard let address = StoreAddress(bytes: ArgumentBytes.path(text).bytes),
            let group = GroupIdentifier(address.group), let name = FilePath.Component(bytes: address.name)
        else { return nil }
        let environment = ProcessVariables.all
        let configured = try ConfigurationFile.standardPath(environment: environment).flatMap { path in
            try ConfigurationFile(path, environment: environment).load().group(group.rawValue)?.directory
        }
        return (configured ?? group.defaultDirectory(environment: environment))?.appending(name)
    }

    /// Nil when there is nothing by that name.
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

/// How an agent names a store to a child of its own. The agent may be root, and others may write to the group's
/// directory: what they put there must not lead it elsewhere.
struct HeldStoreOptions: ParsableArguments {
    /// The store is the file of that name itself, and no symbolic link.
    @Flag(help: .hidden)
    var noLinks = false

    /// The file, DEVICE:INODE, that whoever asks may open.
    @Option(help: .hidden)
    var onlyFile: FileIdentity?

    /// The directory is held open, and links on the way to it are followed as far as they may be believed. Throws
    /// `StoreError` for anything but a regular file.
    func location(_ text: String) throws -> StoreLocation {
        guard noLinks || onlyFile != nil else { return try StoreArgument(text).location() }
        let path = ArgumentBytes.path(text)
        guard let last = path.lastComponent, let name = StoreName(last) else { throw StoreError.notAFile(path) }
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

extension CommandFailure {
    init(_ error: ConfigurationError) {
        self.init(
            error.kind == .notPermitted ? .notPermitted : .configuration, code: "bad_configuration", "\(error)",
            remedy: error.remedy)
    }

    init(_ error: StoreError) {
        let (status, code): (ExitStatus, String) =
            switch error {
            case .missing: (.inputOutput, "no_such_store")
            case .notAFile: (.badData, "not_a_file")
            case .foreign: (.badData, "not_a_database")
            case .corrupt: (.badData, "corrupt")
            case .busy: (.busy, "in_use")
            case .superJournalElsewhere: (.badData, "super_journal")
            case .sqlite: error.isPermission ? (.notPermitted, "not_permitted") : (.inputOutput, "sqlite_error")
            }
        self.init(status, code: code, "\(error)", remedy: error.remedy)
    }

    init(_ error: SystemError) {
        switch error.errno {
        case .permissionDenied, .notPermitted:
            self.init(.notPermitted, code: "not_permitted", "\(error)", remedy: "run this as the owner of these files")
        case .noSpace where error.call == "inotify_add_watch":
            self.init(
                .inputOutput, code: "io_error", "\(error)",
                remedy: ResourceLimit(error)?.remedy ?? "raise what is reached: fs.inotify.max_user_watches")
        case .noSpace, .diskQuotaExceeded:
            self.init(.inputOutput, code: "no_space", "\(error)", remedy: "free space there, or set TMPDIR")
        case .noSuchFileOrDirectory:
            self.init(
                .inputOutput, code: "io_error", "\(error)",
                remedy: "there is nothing at this path: make the directory, or correct the path")
        case .tooManyOpenFiles, .tooManyOpenFilesInSystem:
            self.init(
                .inputOutput, code: "io_error", "\(error)",
                remedy:
                    "start it with fewer files open, or raise what is reached: ulimit -n, fs.inotify.max_user_instances"
            )
        case _ where error.obstacleRemedy != nil:
            self.init(.inputOutput, code: "obstacle", "\(error)", remedy: error.obstacleRemedy ?? "")
        default:
            self.init(
                .inputOutput, code: "io_error", "\(error)", remedy: "see what the kernel logged: dmesg or journalctl -k"
            )
        }
    }
}

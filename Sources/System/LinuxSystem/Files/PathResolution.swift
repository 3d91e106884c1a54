import CLinux
import Glibc
import SystemPackage

/// A path whose symbolic links are followed one by one, and only if they are trusted: created by root, by this
/// process's user, or by the owner of the target. Any other user who may write to a directory on the way could redirect
/// this process to a place that only it can reach.
///
/// The resolved path is opened without following links (`RESOLVE_NO_SYMLINKS` of openat2(2)), so that replacing a
/// directory with a link meanwhile causes an error, not a detour.
struct PathResolution: ~Copyable {
    /// The kernel's limit on followed links (path_resolution(7)).
    fileprivate static let maxLinks = 40

    let descriptor: Descriptor
    /// The resolved path, which contains no links.
    let path: FilePath

    /// Opens the directory. Throws ELOOP for an untrusted link.
    init(directory given: FilePath) throws(SystemError) {
        var path = given
        var linkOwners: [uid_t] = []
        // A repeated path is a cycle and need not be followed to the limit.
        var visited: Set<FilePath> = []
        while visited.count <= Self.maxLinks, visited.insert(path).inserted {
            if let descriptor = try Self.open(path) {
                try Self.checkTrust(
                    linkOwners: linkOwners, targetOwner: descriptor.status(path: given).owner, path: given)
                self.descriptor = descriptor
                self.path = path
                return
            }
            if let link = try Self.firstLink(of: path) {
                path = link.target
                linkOwners.append(link.owner)
            }
        }
        throw SystemError("open", .tooManySymbolicLinkLevels, path: given)
    }

    consuming func take() -> Descriptor { descriptor }

    /// Returns nil if the path contains a link.
    private static func open(_ path: FilePath) throws(SystemError) -> Descriptor? {
        let flags = O_RDONLY | O_DIRECTORY
        do throws(SystemError) {
            return Descriptor(
                owning: try retrying("open", path: path) {
                    path.withPlatformString { gs_openat_no_links(AT_FDCWD, $0, flags) }
                })
        } catch {
            switch error.errno {
            case .tooManySymbolicLinkLevels: return nil
            // The kernel, or a system call filter, lacks openat2(2). A concurrent replacement goes unnoticed then.
            case .noFunction, .notPermitted:
                guard try firstLink(of: path) == nil else { return nil }
                return try Descriptor(opening: path, flags: flags | O_NOFOLLOW)
            default: throw error
            }
        }
    }

    struct Link {
        /// The whole path with the link replaced by its target.
        let target: FilePath
        let owner: uid_t
    }

    /// Returns the first component that is a link, or nil if none is.
    private static func firstLink(of path: FilePath) throws(SystemError) -> Link? {
        var prefix = FilePath(root: path.root, [])
        var remaining = Array(path.components)
        while !remaining.isEmpty {
            let parent = prefix
            prefix.append(remaining.removeFirst())
            let found = try Descriptor(opening: prefix, flags: gs_o_path | O_NOFOLLOW)
            let status = try found.status(path: prefix)
            guard status.kind == .symbolicLink else { continue }
            var target = parent.pushing(try found.linkTarget(path: prefix))
            target.append(remaining)
            return Link(target: target, owner: status.owner)
        }
        return nil
    }

    /// Throws ELOOP unless every link to a file of `targetOwner` is trusted.
    static func checkTrust(linkOwners: [uid_t], targetOwner: uid_t, path: FilePath) throws(SystemError) {
        guard linkOwners.contains(where: { ![0, geteuid(), targetOwner].contains($0) && !isUnmapped($0) }) else {
            return
        }
        throw SystemError("open", .tooManySymbolicLinkLevels, path: path)
    }

    /// In a user namespace, all users without an id in it, including root, share one id (user_namespaces(7)).
    private static func isUnmapped(_ user: uid_t) -> Bool { user == 65_534 && isInUserNamespace }

    private static let isInUserNamespace: Bool = {
        guard let file = try? Descriptor(opening: "/proc/self/uid_map", flags: O_RDONLY),
            let map = try? file.read(count: 256, at: 0)
        else { return false }
        return map.split(whereSeparator: { $0 == 0x20 || $0 == 0x0A }).map { String(decoding: $0, as: UTF8.self) }
            != ["0", "0", "4294967295"]
    }()
}

extension Descriptor {
    /// Returns the target of a symbolic link opened with O_PATH.
    package func linkTarget(path: FilePath) throws(SystemError) -> FilePath {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = try retrying("readlink", path: path) { readlinkat(raw, "", &buffer, buffer.count) }
        guard let target = FilePath(bytes: buffer.prefix(count).map { UInt8(bitPattern: $0) }), !target.isEmpty else {
            throw SystemError("readlink", .invalidArgument, path: path)
        }
        return target
    }
}

extension Directory {
    /// Resolves a file's location, including a link at its own name. Returns the directory and the name in it. The file
    /// need not exist, unless a link leads to it. Throws ELOOP for an untrusted link (see `PathResolution`).
    package static func resolving(
        file given: FilePath
    ) throws(SystemError) -> (directory: Directory, name: FilePath.Component) {
        var path = given
        var linkOwners: [uid_t] = []
        var visited: Set<FilePath> = []
        while visited.count <= PathResolution.maxLinks, visited.insert(path).inserted {
            let parent = path.removingLastComponent()
            guard let name = path.lastComponent else { throw SystemError("open", .isDirectory, path: given) }
            let directory = try Directory(resolving: parent.isEmpty ? "." : parent)
            guard let status = try directory.status(name) else {
                guard linkOwners.isEmpty else { throw SystemError("open", .noSuchFileOrDirectory, path: given) }
                return (directory, name)
            }
            guard status.kind == .symbolicLink else {
                try PathResolution.checkTrust(linkOwners: linkOwners, targetOwner: status.owner, path: given)
                return (directory, name)
            }
            let link = try directory.open(name, flags: gs_o_path)
            linkOwners.append(try link.status(path: path).owner)
            path = directory.path.pushing(try link.linkTarget(path: path))
        }
        throw SystemError("open", .tooManySymbolicLinkLevels, path: given)
    }
}

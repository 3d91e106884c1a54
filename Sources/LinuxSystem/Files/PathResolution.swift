import CLinux
import Glibc
import SystemPackage

/// A path whose symbolic links are followed one by one, and only those that may be believed: made by root, by the user
/// who runs this, or by the owner of what they lead to. Anybody else who may write to a directory on the way could
/// send us to any place that only we can reach.
///
/// What was resolved is opened without following a link (`RESOLVE_NO_SYMLINKS` of openat2(2)), so that a directory that
/// is swapped for a link meanwhile is an error and no detour.
struct PathResolution: ~Copyable {
    /// As many links as the kernel follows (path_resolution(7)).
    fileprivate static let mostLinks = 40

    let descriptor: Descriptor
    /// The same place without a link on the way.
    let path: FilePath

    /// Opens the directory. Throws ELOOP for a link that is not believed.
    init(directory given: FilePath) throws(SystemError) {
        var path = given
        var makers: [uid_t] = []
        // Who comes by again goes round in a circle: no need to do it forty times.
        var passed: Set<FilePath> = []
        while passed.count <= Self.mostLinks, passed.insert(path).inserted {
            if let descriptor = try Self.open(path) {
                try Self.check(makers, descriptor.status(path: given).owner, given)
                self.descriptor = descriptor
                self.path = path
                return
            }
            if let link = try Self.firstLink(of: path) {
                path = link.target
                makers.append(link.maker)
            }
        }
        throw SystemError("open", .tooManySymbolicLinkLevels, path: given)
    }

    consuming func take() -> Descriptor { descriptor }

    /// Nil when a link is on the way.
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
            // A kernel, or a filter of system calls, without openat2(2): what is swapped meanwhile isn't noticed.
            case .noFunction, .notPermitted:
                guard try firstLink(of: path) == nil else { return nil }
                return try Descriptor(opening: path, flags: flags | O_NOFOLLOW)
            default: throw error
            }
        }
    }

    struct Link {
        /// The whole path with the link replaced by what it says.
        let target: FilePath
        let maker: uid_t
    }

    /// The first component that is a link; nil when none is.
    private static func firstLink(of path: FilePath) throws(SystemError) -> Link? {
        var prefix = FilePath(root: path.root, [])
        var rest = Array(path.components)
        while !rest.isEmpty {
            let parent = prefix
            prefix.append(rest.removeFirst())
            let found = try Descriptor(opening: prefix, flags: gs_o_path | O_NOFOLLOW)
            let status = try found.status(path: prefix)
            guard status.kind == .symbolicLink else { continue }
            var target = parent.pushing(try found.linkTarget(path: prefix))
            target.append(rest)
            return Link(target: target, maker: status.owner)
        }
        return nil
    }

    /// Throws ELOOP unless each link may be believed that leads to something of `owner`.
    static func check(_ makers: [uid_t], _ owner: uid_t, _ path: FilePath) throws(SystemError) {
        guard makers.contains(where: { ![0, geteuid(), owner].contains($0) && !isNameless($0) }) else { return }
        throw SystemError("open", .tooManySymbolicLinkLevels, path: path)
    }

    /// In a user namespace all users without a number in it, root among them, are one (user_namespaces(7)).
    private static func isNameless(_ user: uid_t) -> Bool { user == 65_534 && isInUserNamespace }

    private static let isInUserNamespace: Bool = {
        guard let file = try? Descriptor(opening: "/proc/self/uid_map", flags: O_RDONLY),
            let map = try? file.read(count: 256, at: 0)
        else { return false }
        return map.split(whereSeparator: { $0 == 0x20 || $0 == 0x0A }).map { String(decoding: $0, as: UTF8.self) }
            != ["0", "0", "4294967295"]
    }()
}

extension Descriptor {
    /// What a symbolic link, opened with O_PATH, says.
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
    /// Where a file is, a link at its own name followed too: the directory, and the name in it. The file need not be
    /// there, unless a link leads to it. Throws ELOOP for a link that is not believed (see `PathResolution`).
    package static func resolving(
        file given: FilePath
    ) throws(SystemError) -> (directory: Directory, name: FilePath.Component) {
        var path = given
        var makers: [uid_t] = []
        var passed: Set<FilePath> = []
        while passed.count <= PathResolution.mostLinks, passed.insert(path).inserted {
            let parent = path.removingLastComponent()
            guard let name = path.lastComponent else { throw SystemError("open", .isDirectory, path: given) }
            let directory = try Directory(resolving: parent.isEmpty ? "." : parent)
            guard let status = try directory.status(name) else {
                guard makers.isEmpty else { throw SystemError("open", .noSuchFileOrDirectory, path: given) }
                return (directory, name)
            }
            guard status.kind == .symbolicLink else {
                try PathResolution.check(makers, status.owner, given)
                return (directory, name)
            }
            let link = try directory.open(name, flags: gs_o_path)
            makers.append(try link.status(path: path).owner)
            path = directory.path.pushing(try link.linkTarget(path: path))
        }
        throw SystemError("open", .tooManySymbolicLinkLevels, path: given)
    }
}

import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// The kernel's way from the root to a path: each directory and symbolic link on it, opened one by one.
struct PathWalk {
    /// A file on the way. Its descriptor (O_PATH) identifies it to inotify(7) and must be closed soon: an open
    /// directory lives on after its removal, and no event reports that.
    final class Step {
        let file: Descriptor
        let status: FileStatus
        /// The path, for messages.
        let path: FilePath
        /// The directory that contains its name, or nil for the root.
        let parent: Step?
        let name: FilePath.Component?

        fileprivate init(
            _ file: consuming Descriptor, path: FilePath, parent: Step?, name: FilePath.Component?
        ) throws(SystemError) {
            status = try file.status(path: path)
            self.file = file
            self.path = path
            self.parent = parent
            self.name = name
        }

        var isDirectory: Bool { status.kind == .directory }

        /// Returns a name in the directory that will probably stay, or nil if the directory is empty. Throws if it
        /// can't be read.
        ///
        /// - Parameter avoided: A name to return only if there is no better one.
        func stableName(otherThan avoided: FilePath.Component?) throws(SystemError) -> FilePath.Component? {
            var buffer = [CChar](repeating: 0, count: 256)
            let found = try retrying("read", path: path) {
                guard let avoided else { return gs_stable_name(file.raw, nil, &buffer, buffer.count) }
                return avoided.withPlatformString { gs_stable_name(file.raw, $0, &buffer, buffer.count) }
            }
            guard found == 1 else { return nil }
            return FilePath.Component(bytes: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) })
        }
    }

    /// The point at which the path leads to nothing.
    struct Obstacle: Equatable {
        /// The name that is missing or does not belong to a directory.
        let name: FilePath.Component
        let errno: Errno
    }

    /// The steps, beginning at the root. A file in a directory's place is the last one.
    private(set) var steps: [Step] = []
    private(set) var obstacle: Obstacle?

    private static let maxLinks = 40
    private static let proc: UInt64 = 0x9FA0

    /// Walks as far as the path leads. Throws errors that don't come from the path, such as EMFILE.
    init(_ path: FilePath) throws(SystemError) {
        let root = try Step(Descriptor(opening: "/", flags: gs_o_path), path: "/", parent: nil, name: nil)
        steps = [root]
        var directory = root
        var remaining = Array(path.components.reversed())
        var links = 0
        while let name = remaining.popLast() {
            if name.kind == .currentDirectory { continue }
            do throws(SystemError) {
                let step = try Self.open(name, in: directory)
                steps.append(step)
                switch step.status.kind {
                case .directory: directory = step
                case .symbolicLink:
                    links += 1
                    guard links <= Self.maxLinks else {
                        throw SystemError("open", .tooManySymbolicLinkLevels, path: path)
                    }
                    let target = try step.file.linkTarget(path: step.path)
                    if target.isAbsolute { directory = root }
                    remaining += target.components.reversed()
                case .regular, .other: throw SystemError("open", .notDirectory, path: step.path)
                }
            } catch {
                guard Self.comesFromPath(error.errno) else { throw error }
                obstacle = Obstacle(name: name, errno: error.errno)
                if directory !== deepest { steps.append(directory) }
                return
            }
        }
        if directory !== steps.last { steps.append(directory) }
    }

    /// Opens one step. The kernel resolves a link of proc(5) differently from its text, so such a link is followed by
    /// the kernel.
    private static func open(_ name: FilePath.Component, in directory: Step) throws(SystemError) -> Step {
        let path = directory.path.appending(name)
        func opened(_ flags: CInt) throws(SystemError) -> Step {
            let raw = try retrying("open", path: path) {
                name.withPlatformString { gs_openat(directory.file.raw, $0, gs_o_path | flags, 0) }
            }
            return try Step(Descriptor(owning: raw), path: path, parent: directory, name: name)
        }
        let step = try opened(O_NOFOLLOW)
        guard step.status.kind == .symbolicLink else { return step }
        var system = gs_filesystem()
        guard gs_statfs(directory.file.raw, &system) == 0, system.type == proc else { return step }
        return try opened(0)
    }

    private static func comesFromPath(_ errno: Errno) -> Bool {
        switch errno {
        case .noSuchFileOrDirectory, .notDirectory, .permissionDenied, .tooManySymbolicLinkLevels, .fileNameTooLong:
            true
        default: false
        }
    }

    /// The directory that the path names, or nil if there is none.
    var target: Step? { obstacle == nil ? steps.last : nil }

    /// The last directory on the way, which would contain the next name.
    var deepest: Step? { steps.last { $0.isDirectory } }

    /// True if both walks lead through the same files.
    func isSame(as other: PathWalk) -> Bool {
        obstacle == other.obstacle && steps.map(\.status.identity) == other.steps.map(\.status.identity)
    }
}

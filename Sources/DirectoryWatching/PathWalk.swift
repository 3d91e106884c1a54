import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// The way that the kernel goes from the root to a path: each directory and each symbolic link on it, opened one by one.
struct PathWalk {
    /// One of them. Its descriptor (O_PATH) names it to inotify(7), and is closed soon: an open directory that is removed
    /// lives on, and nobody is told.
    final class Step {
        let file: Descriptor
        let status: FileStatus
        /// For messages.
        let path: FilePath
        /// The directory in which it has its name; nil for the root.
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

        /// A name in the directory that will probably stay; nil when it is empty. Throws what keeps it from being read.
        func lastingName() throws(SystemError) -> FilePath.Component? {
            var buffer = [CChar](repeating: 0, count: 256)
            let found = try retrying("read", path: path) { gs_lasting_name(file.raw, &buffer, buffer.count) }
            guard found == 1 else { return nil }
            return FilePath.Component(bytes: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) })
        }
    }

    /// Where the path leads to nothing.
    struct Obstacle: Equatable {
        /// The name that isn't there, or is no directory's.
        let name: FilePath.Component
        let errno: Errno
    }

    /// From the root on. What stands in a directory's place is the last one.
    private(set) var steps: [Step] = []
    private(set) var obstacle: Obstacle?

    private static let mostLinks = 40
    private static let proc: UInt64 = 0x9FA0

    /// Goes as far as the path leads. Throws what says nothing of the path, such as EMFILE.
    init(_ path: FilePath) throws(SystemError) {
        let root = try Step(Descriptor(opening: "/", flags: gs_o_path), path: "/", parent: nil, name: nil)
        steps = [root]
        var directory = root
        var rest = Array(path.components.reversed())
        var links = 0
        while let name = rest.popLast() {
            if name.kind == .currentDirectory { continue }
            do throws(SystemError) {
                let step = try Self.open(name, in: directory)
                steps.append(step)
                switch step.status.kind {
                case .directory: directory = step
                case .symbolicLink:
                    links += 1
                    guard links <= Self.mostLinks else {
                        throw SystemError("open", .tooManySymbolicLinkLevels, path: path)
                    }
                    let target = try step.file.linkTarget(path: step.path)
                    if target.isAbsolute { directory = root }
                    rest += target.components.reversed()
                case .regular, .other: throw SystemError("open", .notDirectory, path: step.path)
                }
            } catch {
                guard Self.isOfThePath(error.errno) else { throw error }
                obstacle = Obstacle(name: name, errno: error.errno)
                if directory !== deepest { steps.append(directory) }
                return
            }
        }
        if directory !== steps.last { steps.append(directory) }
    }

    /// A link of proc(5) leads elsewhere than its text says: the kernel follows it.
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

    private static func isOfThePath(_ errno: Errno) -> Bool {
        switch errno {
        case .noSuchFileOrDirectory, .notDirectory, .permissionDenied, .tooManySymbolicLinkLevels, .fileNameTooLong:
            true
        default: false
        }
    }

    /// What the path names; nil where nothing is, or no directory.
    var target: Step? { obstacle == nil ? steps.last : nil }

    /// The last directory on the way, in which the next name would be.
    var deepest: Step? { steps.last { $0.isDirectory } }

    /// Whether it leads through the same files.
    func isSame(as other: PathWalk) -> Bool {
        obstacle == other.obstacle && steps.map(\.status.identity) == other.steps.map(\.status.identity)
    }
}

import DirectoryWatching
import InotifyToolsWatching
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

typealias Access = InotifySource.Access

/// A directory to modify, and the source that watches it.
struct WatchedTree {
    let root: TemporaryDirectory
    let privateDirectory: TemporaryDirectory
    let source: InotifySource
    // Must be the last property, so that it is released after the source.
    private let turn: Turn?

    init(_ access: Access) throws {
        turn = access == .systemCalls ? nil : Turn()
        root = try TemporaryDirectory()
        privateDirectory = try TemporaryDirectory()
        source = try InotifySource(privateDirectory: privateDirectory.path, through: access)
    }

    func path(_ relative: String) -> FilePath { root.path.pushing(FilePath(relative)) }

    func script(_ commands: String) throws {
        let done = try run("sh", ["-e", "-c", Word("cd \(root.path.string)\n" + commands)])
        guard done.status == 0 else { throw Unexpected("sh: \(done.errors)") }
    }

    /// Returns all notices of the operations so far.
    func notices() throws -> [Notice] { try source.allNotices() }

    /// Returns the events of a directory so far as words, such as `create one`.
    func events(_ directory: String) throws -> [String] {
        try notices().compactMap { notice in
            guard case .event(let event) = notice, event.directory == path(directory) else { return nil }
            return "\(Self.word(event.kinds)) \(PrintablePath(event.name))"
        }
    }

    static func word(_ kinds: DirectoryEvent.Kinds) -> String {
        let words: [(DirectoryEvent.Kinds, String)] = [
            (.created, "create"), (.deleted, "delete"), (.movedIn, "in"), (.movedOut, "out"), (.modified, "modify"),
        ]
        return words.filter { kinds.contains($0.0) }.map(\.1).joined(separator: "+")
    }

    /// Returns the indexes passed to `onFastPath`, and the notices.
    func fastPathWrites() throws -> ([Int], [Notice]) {
        var numbers: [Int] = []
        let notices = try source.next(timeout: .zero, onReadable: nil) { numbers.append($0) }
        return (numbers, notices)
    }

    func watch(_ directory: String) throws {
        try source.watch(path(directory), for: [.created])
        #expect(try notices() == [.directoryAppeared(path(directory))])
    }

    func expectReplacement(_ directory: String) throws {
        #expect(try notices() == [.directoryVanished(path(directory)), .directoryAppeared(path(directory))])
        try script("touch \(directory)/after")
        let event = DirectoryEvent(directory: path(directory), name: "after", kinds: .created)
        #expect(try notices() == [.event(event)])
    }

    /// Returns the events requested from the kernel for a directory, or nil if it isn't watched.
    func mask(of directory: String) throws -> UInt32? {
        let inode = try Directory(path(directory)).identity.inode
        let descriptors = try Directory("/proc/self/fdinfo")
        for name in try descriptors.names() {
            guard let file = try? Descriptor(opening: descriptors.path.appending(name), flags: 0),
                let bytes = try? file.read(count: 1 << 16, at: 0)
            else { continue }
            let text = String(decoding: bytes, as: UTF8.self)
            for line in text.split(separator: "\n") where line.contains("ino:\(String(inode, radix: 16)) ") {
                guard let word = line.firstMatch(of: /mask:([0-9a-f]+)/)?.1 else { continue }
                return UInt32(word, radix: 16)
            }
        }
        return nil
    }
}

extension InotifySource {
    /// Returns all notices so far. `next` returns none also after internal work, of which a full queue may hold 64
    /// batches.
    func allNotices() throws -> [Notice] {
        var all: [Notice] = []
        var emptyCount = 0
        while emptyCount < 100 {
            let next = try next(timeout: .zero)
            emptyCount = next.isEmpty ? emptyCount + 1 : 0
            all += next
        }
        return all
    }
}

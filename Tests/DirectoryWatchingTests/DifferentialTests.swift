import CLinux
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import DirectoryWatching
import InotifyToolsWatching

/// Both ways to the kernel, side by side on the same directories, report the same. Without libinotifytools, two
/// instances of the one way are compared.
@Suite(.serialized, .ownDescriptors) struct DifferentialTests {
    private let root: TemporaryDirectory
    private let privateDirectory: TemporaryDirectory
    // Must be the last property, so that it is released after all sources, which the tests hold.
    private let turn: Turn

    init() throws {
        turn = Turn()
        // Not on the disk. A file system without a journal passes over the inodes of files that were removed in the
        // last minute: a storm removes thousands, and each test that makes a file then looks at all of them.
        root = try TemporaryDirectory(in: "/dev/shm")
        privateDirectory = try TemporaryDirectory()
    }

    private func instances() throws -> [InstanceLog] {
        let first = InstanceLog(try SystemInotify())
        #if InotifyTools
            return [first, InstanceLog(try InotifyTools(privateDirectory: privateDirectory.path))]
        #else
            return [first, InstanceLog(try SystemInotify())]
        #endif
    }

    private func sources() throws -> [InotifySource] {
        try [.systemCalls, .standard].map { try InotifySource(privateDirectory: privateDirectory.path, through: $0) }
    }

    /// The instances are read at different times. The kernel merges an event with an equal one before it only if that
    /// is still in the queue, so equal neighbours count as one.
    @Test(arguments: 1...5) func bothInstancesReturnTheSameEvents(_ seed: UInt64) throws {
        let instances = try instances()
        var storm = FileStorm(in: root.path, seed: seed)
        for directory in storm.directories { for instance in instances { try instance.watch(directory) } }
        for _ in 0..<1000 {
            if let directory = storm.perform() { for instance in instances { try instance.watch(directory) } }
            // Events of the former watch are still in the queue then, and must be returned as such.
            if storm.number(0...40) == 0 {
                let directory = storm.directories[storm.number(0...storm.directories.count - 1)]
                for instance in instances { try instance.rewatch(directory) }
            }
            for instance in instances where storm.number(0...15) == 0 { try instance.read() }
        }
        for instance in instances { try instance.read() }
        let logs = instances.map(\.log)
        #expect(logs[0].count > 5000)
        for kind in Self.expectedKinds { #expect(logs[0].contains { $0.mask & UInt32(kind) != 0 }, "\(kind)") }
        #expect(!logs[0].contains { $0.mask & UInt32(IN_Q_OVERFLOW) != 0 })
        expectEqual(logs[0], logs[1])
    }

    private static let expectedKinds = [
        IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE, IN_CLOSE_NOWRITE, IN_OPEN, IN_MOVED_FROM, IN_MOVED_TO,
        IN_CREATE,
        IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF, IN_IGNORED,
    ]

    @Test func bothInstancesReturnTheSameEventsUpToAnOverflow() throws {
        let instances = try instances()
        var storm = FileStorm(in: root.path, seed: 9)
        for directory in storm.directories { for instance in instances { try instance.watch(directory) } }
        try overflow(&storm)
        for instance in instances { try instance.read() }
        let logs = instances.map(\.log)
        #expect(logs[0].last?.mask == UInt32(IN_Q_OVERFLOW))
        expectEqual(logs[0], logs[1])
    }

    private func expectEqual<Element: Equatable>(_ first: [Element], _ second: [Element]) {
        #expect(first.count == second.count)
        if let different = zip(first, second).enumerated().first(where: { $0.element.0 != $0.element.1 }) {
            Issue.record("\(different.offset): \(different.element.0) and \(different.element.1)")
        }
    }

    /// Performs more operations than the kernel queues events. An operation causes six on average.
    private func overflow(_ storm: inout FileStorm) throws {
        let limit = try Descriptor(opening: "/proc/sys/fs/inotify/max_queued_events", flags: 0).read(count: 32, at: 0)
        let count = try #require(Int(String(decoding: limit.prefix { $0 != 0x0A }, as: UTF8.self)))
        for _ in 0..<count / 4 { _ = storm.perform(replacing: false) }
    }

    private static let kinds: DirectoryEvent.Kinds = [
        .created, .deleted, .movedIn, .movedOut, .modified, .closedAfterWriting, .attributes,
    ]

    /// The notices depend on the directories at the time of reading, so both sources read before the storm continues.
    @Test(arguments: 11...15) func bothSourcesReportTheSameNotices(_ seed: UInt64) throws {
        let sources = try sources()
        var storm = FileStorm(in: root.path, seed: seed)
        for directory in storm.directories {
            for source in sources { try source.watch(directory, for: Self.kinds) }
        }
        var total = 0
        for _ in 0..<60 {
            if storm.number(0...4) == 0 {
                try performSuspended(&storm, sources)
            } else {
                for _ in 0..<storm.number(1...40) { _ = storm.perform() }
            }
            total += try expectSameNotices(sources)
        }
        #expect(total > 1000)
    }

    /// Returns the number of notices since the last call.
    private func expectSameNotices(_ sources: [InotifySource]) throws -> Int {
        let notices = try sources.map { try $0.allNotices() }
        expectEqual(notices[0], notices[1])
        return notices[0].count
    }

    /// Performs operations while the write events of a directory are suspended in both sources.
    private func performSuspended(_ storm: inout FileStorm, _ sources: [InotifySource]) throws {
        let directory = storm.directories[storm.number(0...storm.directories.count - 1)]
        let files: [FilePath: [FilePath.Component]] = [directory: ["1", "2", "store-wal", "absent"]]
        try sources[0].withModifyEventsSuspended(except: files) {
            try sources[1].withModifyEventsSuspended(except: files) {
                for _ in 0..<storm.number(1...40) { _ = storm.perform() }
            }
        }
    }

    @Test func bothSourcesReportAnOverflow() throws {
        let sources = try sources()
        var storm = FileStorm(in: root.path, seed: 19)
        for directory in storm.directories {
            for source in sources { try source.watch(directory, for: Self.kinds) }
        }
        for source in sources { _ = try source.allNotices() }
        try overflow(&storm)
        let notices = try sources.map { try $0.allNotices() }
        #expect(notices[0].contains(.overflow))
        expectEqual(notices[0], notices[1])
        for _ in 0..<200 { _ = storm.perform() }
        let later = try sources.map { try $0.allNotices() }
        #expect(!later[0].isEmpty && !later[0].contains(.overflow))
        expectEqual(later[0], later[1])
    }
}

/// An instance, and the events that it has returned, by directory instead of by watch.
private final class InstanceLog {
    struct Entry: Equatable, CustomStringConvertible {
        /// The directory with the number of its watch, or nil for an event of none.
        let place: String?
        let mask: UInt32
        let name: [UInt8]

        var description: String {
            "\(place ?? "nothing"): \(String(mask, radix: 16)) \(PrintablePath(bytes: name))"
        }
    }

    /// IN_ALL_EVENTS of inotify(7).
    private static let allEvents: UInt32 = 0xFFF

    private let instance: any InotifyInstance
    private var places: [CInt: String] = [:]
    private var current: [FilePath: CInt] = [:]
    private(set) var log: [Entry] = []

    init(_ instance: any InotifyInstance) { self.instance = instance }

    func watch(_ path: FilePath) throws {
        let directory = try Descriptor(opening: path, flags: gs_o_path | O_DIRECTORY)
        let number = try instance.watch(directory, mask: Self.allEvents, path: path)
        if let place = places[number] { throw Unexpected("\(path) has the watch of \(place)") }
        places[number] = "\(path.lastComponent?.string ?? "") (watch \(places.count))"
        current[path] = number
    }

    func rewatch(_ path: FilePath) throws {
        if let number = current[path] { instance.remove(number) }
        try watch(path)
    }

    /// Reads all events.
    func read() throws {
        while let next = try instance.next(timeout: .zero, onReadable: nil, fastPath: nil) {
            guard case .event(let event) = next else { throw Unexpected("\(next)") }
            let entry = Entry(place: places[event.watch], mask: event.mask, name: event.name)
            if entry != log.last { log.append(entry) }
        }
    }
}

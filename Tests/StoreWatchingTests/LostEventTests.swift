import AgentProtocol
import DirectoryWatching
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import StoreWatching

/// A commit after any number of lost events is reported, and so is what they were of.
@Suite struct LostEventTests {
    /// The kernel's events, and notices that a test adds.
    private final class InjectedSource: EventSource {
        let source: InotifySource
        var injected: [Notice] = []

        init() throws { source = try InotifySource() }

        func watch(_ directory: FilePath, for kinds: DirectoryEvent.Kinds) throws {
            try source.watch(directory, for: kinds)
        }
        func setKinds(_ kinds: DirectoryEvent.Kinds, of directory: FilePath) throws {
            try source.setKinds(kinds, of: directory)
        }
        func unwatch(_ directory: FilePath) { source.unwatch(directory) }
        func watchFile(_ name: FilePath.Component, in directory: FilePath, enabled: Bool) throws {
            try source.watchFile(name, in: directory, enabled: enabled)
        }
        func watchOpenFile(_ file: borrowing Descriptor, as name: FilePath.Component, in directory: FilePath) throws {
            try source.watchOpenFile(file, as: name, in: directory)
        }
        func recheckPaths() { source.recheckPaths() }
        func setFastPath(_ name: FilePath.Component, in directory: FilePath, index: Int?) {
            source.setFastPath(name, in: directory, index: index)
        }
        func next(timeout: Duration?, onReadable: (() -> Void)?, onFastPath: ((Int) -> Void)?) throws -> [Notice] {
            guard injected.isEmpty else {
                defer { injected = [] }
                return try source.next(timeout: .zero, onReadable: nil, onFastPath: nil) + injected
            }
            return try source.next(timeout: timeout, onReadable: onReadable, onFastPath: onFastPath)
        }
        func withModifyEventsSuspended(
            except files: [FilePath: [FilePath.Component]], _ body: () throws -> Void
        ) throws {
            try source.withModifyEventsSuspended(except: files, body)
        }
        func wake() { source.wake() }
    }

    private let source: InjectedSource
    private let rig: DirectRig

    init() throws {
        source = try InjectedSource()
        rig = try DirectRig(source: source)
    }

    private func prepare(_ mode: String) throws {
        try rig.sqlite("PRAGMA journal_mode = \(mode); CREATE TABLE note (text)")
        try rig.watch(rig.store)
        _ = try rig.settle(.milliseconds(20))
    }

    private func isChange(_ found: DirectRig.Found) -> Bool { if case .change = found.event { true } else { false } }

    @Test(arguments: ["WAL", "DELETE"], [1, 2, 3])
    func reportsACommitAfterOverflows(_ mode: String, count: Int) throws {
        try prepare(mode)
        for _ in 1...count {
            source.injected = [.overflow]
            _ = try rig.events { $0.event == .reset(.overflow) }
        }
        for _ in 1...3 {
            try rig.sqlite("INSERT INTO note VALUES ('x')")
            _ = try rig.events(until: isChange)
        }
    }

    /// The commit is made between two overflows, and the events of neither are seen.
    @Test func reportsAnOverflowAgainAfterACommitBesideIt() throws {
        try prepare("WAL")
        source.injected = [.overflow, .overflow]
        _ = try rig.events { $0.event == .reset(.overflow) }
        try rig.sqlite("INSERT INTO note VALUES ('x')")
        source.injected = [.overflow]
        _ = try rig.events { $0.event == .reset(.overflow) }
    }

    /// A relocation reserves a name in the store's directory, and nothing is opened for a while.
    @Test func reportsAnOverflowAfterAPause() throws {
        try prepare("WAL")
        let name: FilePath.Component = ".groupstore-1"
        let event = DirectoryEvent(directory: rig.store.removingLastComponent(), name: name, kinds: .created)
        source.injected = [.event(event), .overflow]
        _ = try rig.events { $0.event == .reset(.overflow) }
    }

    /// The watch is set again at once, while the places of all stores are looked for.
    @Test func reportsAChangeWhenADirectoryIsWatchedAgain() throws {
        try prepare("WAL")
        let directory = rig.store.removingLastComponent()
        source.unwatch(directory)
        source.injected = [.unwatchable(directory, SystemError("inotify_add_watch", .noSpace, path: directory))]
        let found = try rig.events(until: isChange)
        #expect(found.first?.event == .reset(.unreadable))
    }
}

import CInotifyTools
import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// An event source that reads the kernel's directory events through libinotifytools.
package final class InotifySource: EventSource {
    private let tools: InotifyTools
    private let paths: WatchedPaths
    private let wakeFile: WakeFile
    private var pending: [Notice] = []

    /// Creates a source. It creates a file in `privateDirectory`, through which `wake()` works, and removes it at the
    /// end. Throws `SystemError`, with EBUSY while another source exists in this process.
    package init(privateDirectory: FilePath) throws {
        tools = try InotifyTools()
        wakeFile = try WakeFile(in: privateDirectory, tools)
        paths = WatchedPaths(tools)
    }

    package func watch(_ directory: FilePath, for kinds: DirectoryEvent.Kinds) throws {
        pending += try paths.add(directory, kinds)
    }

    package func watchFile(_ name: FilePath.Component, in directory: FilePath, enabled: Bool) throws {
        try paths.watchFile(name, in: directory, enabled: enabled)
    }

    package func recheckPaths() { pending += paths.updateAll() }

    package func unwatch(_ directory: FilePath) { paths.remove(directory) }

    package func wake() { wakeFile.wake() }

    package func setFastPath(_ name: FilePath.Component, in directory: FilePath, index: Int?) {
        paths.fastPath[name, directory] = index
    }

    package func withModifyEventsSuspended(except files: [FilePath: [FilePath.Component]], _ body: () throws -> Void)
        throws
    {
        var suspended: [SuspendedDirectory] = []
        // If a directory's watch can't be changed, it stays as it is.
        for (path, names) in files {
            guard let directory = paths.suspendedDirectory(at: path) else { continue }
            suspended.append(directory)
            try? paths.suspendModifyEvents(in: directory, except: names)
        }
        // Must resume all of them, whatever fails: a suspended directory would stay silent.
        defer { for directory in suspended { pending += paths.resumeModifyEvents(in: directory) } }
        try body()
    }

    package func next(timeout: Duration?, onFastPath: ((Int) -> Void)?) throws -> [Notice] {
        var notices = pending
        pending = []
        if notices.isEmpty {
            let untilRecheck = paths.timeUntilRecheck
            switch try first([timeout, untilRecheck].compactMap { $0 }.min(), usesFastPath: onFastPath != nil) {
            case .event(let event)?: notices += handle(event)
            case .fastPath(let index)?: onFastPath?(index)
            case nil: break
            }
            if untilRecheck != nil { notices += paths.recheckDuePaths() }
        }
        var previous: InotifyTools.Event?
        for _ in 0..<Self.batch {
            guard let event = try tools.next(waits: false) else { break }
            // The kernel repeats an event only after the first was read: somebody writes continuously, and the writes
            // so far are to be handled. Any other event that comes twice has happened twice.
            if event == previous, event.mask == UInt32(IN_MODIFY) { break }
            notices += handle(event)
            previous = event
        }
        return notices
    }

    /// The most events to handle at once.
    package static let batch = 256

    private func handle(_ event: InotifyTools.Event) -> [Notice] {
        event.watch == wakeFile.watch ? [.woken] : paths.notices(of: event)
    }

    /// Reads the first event. The library's timeouts are whole seconds, and most timeouts here are shorter.
    private func first(_ timeout: Duration?, usesFastPath: Bool) throws(SystemError) -> InotifyTools.NextEvent? {
        let fastPath: (CInt, UInt32, UnsafeRawBufferPointer) -> Int? = { [paths] watch, mask, name in
            usesFastPath && mask == UInt32(IN_MODIFY) ? paths.fastPath.index(watch: watch, name: name) : nil
        }
        guard let timeout else {
            while true { if let event = try tools.next(waits: true, fastPath: fastPath) { return event } }
        }
        let deadline = Deadline(after: timeout)
        while true {
            if let event = try tools.next(waits: false, fastPath: fastPath) { return event }
            guard let left = deadline.remaining, left > .zero else { return nil }
            tools.wait(left)
        }
    }
}

/// A private file. Writing to it wakes the thread that waits for events.
private final class WakeFile: Sendable {
    let watch: CInt
    private let file: Descriptor
    private let directory: Directory
    private let name: FilePath.Component

    init(in path: FilePath, _ tools: InotifyTools) throws {
        directory = try Directory(path)
        let unique = "wake-\(getpid())-\(String(UInt64.random(in: 0...UInt64.max), radix: 36))"
        name = FilePath.Component(unique) ?? "wake"
        file = try directory.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        watch = try tools.watch(file: FilePath("/proc/self/fd/\(directory.raw)/\(unique)"), mask: UInt32(IN_MODIFY))
    }

    deinit { try? directory.removeFile(name) }

    func wake() {
        var byte: UInt8 = 0
        _ = pwrite(file.raw, &byte, 1, 0)
    }
}

import CInotifyTools
import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Directory events from the kernel, through libinotifytools.
package final class InotifySource: EventSource {
    private let tools: InotifyTools
    private let places: WatchedPlaces
    private let bell: Bell
    private var pending: [Notice] = []

    /// `privateDirectory` gets a file of ours by which `wake` is heard; it is removed in the end. Throws
    /// `SystemError`; EBUSY while another source lives in this process.
    package init(privateDirectory: FilePath) throws {
        tools = try InotifyTools()
        bell = try Bell(in: privateDirectory, tools)
        places = WatchedPlaces(tools)
    }

    package func watch(_ directory: FilePath, for kinds: DirectoryEvent.Kinds) throws {
        pending += try places.add(directory, kinds)
    }

    package func unwatch(_ directory: FilePath) { places.remove(directory) }

    package func wake() { bell.ring() }

    package func next(timeout: Duration?) throws -> [Notice] {
        var notices = pending
        pending = []
        if notices.isEmpty, let first = try firstEvent(timeout) { notices += try take(first) }
        while notices.count < Self.mostAtOnce, let event = try tools.next(waits: false) {
            notices += try take(event)
        }
        return notices
    }

    /// Writers can be faster than this thread: it must come to look at what they wrote all the same.
    private static let mostAtOnce = 128

    private func take(_ event: InotifyTools.Event) throws -> [Notice] {
        event.watch == bell.watch ? [.woken] : try places.notices(of: event)
    }

    /// The library's time-outs are whole seconds, and ours are mostly shorter.
    private func firstEvent(_ timeout: Duration?) throws(SystemError) -> InotifyTools.Event? {
        guard let timeout else {
            while true { if let event = try tools.next(waits: true) { return event } }
        }
        let deadline = Deadline(after: timeout)
        while true {
            if let event = try tools.next(waits: false) { return event }
            guard let left = deadline.remaining, left > .zero else { return nil }
            pause(min(left, .milliseconds(1)))
        }
    }
}

/// A file of our own: writing to it wakes the thread that waits for events.
private final class Bell: Sendable {
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

    func ring() {
        var byte: UInt8 = 0
        _ = pwrite(file.raw, &byte, 1, 0)
    }
}

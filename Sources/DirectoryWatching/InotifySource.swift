import CInotifyTools
import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Directory events from the kernel, through libinotifytools.
package final class InotifySource: EventSource {
    private let tools: InotifyTools
    private let places: WatchedPaths
    private let bell: Bell
    private var pending: [Notice] = []

    /// `privateDirectory` gets a file of ours by which `wake` is heard; it is removed in the end. Throws
    /// `SystemError`; EBUSY while another source lives in this process.
    package init(privateDirectory: FilePath) throws {
        tools = try InotifyTools()
        bell = try Bell(in: privateDirectory, tools)
        places = WatchedPaths(tools)
    }

    package func watch(_ directory: FilePath, for kinds: DirectoryEvent.Kinds) throws {
        pending += try places.add(directory, kinds)
    }

    package func watch(_ name: FilePath.Component, in directory: FilePath, alone: Bool) throws {
        try places.watch(name, in: directory, alone: alone)
    }

    package func lookAtPlaces() { pending += places.placeAll() }

    package func unwatch(_ directory: FilePath) { places.remove(directory) }

    package func wake() { bell.ring() }

    package func mark(_ name: FilePath.Component, in directory: FilePath, as number: Int?) {
        places.marks[name, directory] = number
    }

    package func rest(hearing files: [FilePath: [FilePath.Component]], while body: () throws -> Void) throws {
        var resting: [SuspendedDirectory] = []
        // Where one can't be watched otherwise, it is as before.
        for (path, names) in files {
            guard let place = places.restingPlace(path) else { continue }
            resting.append(place)
            try? places.beginRest(of: place, hearing: names)
        }
        // All of them, whatever fails: one that stayed at rest would be silent.
        defer { for place in resting { pending += places.endRest(of: place) } }
        try body()
    }

    package func next(timeout: Duration?, written: ((Int) -> Void)?) throws -> [Notice] {
        var notices = pending
        pending = []
        if notices.isEmpty {
            let revisit = places.timeUntilRevisit
            switch try first([timeout, revisit].compactMap { $0 }.min(), marks: written != nil) {
            case .event(let event)?: notices += take(event)
            case .marked(let number)?: written?(number)
            case nil: break
            }
            if revisit != nil { notices += places.revisit() }
        }
        var previous: InotifyTools.Event?
        for _ in 0..<Self.batch {
            guard let event = try tools.next(waits: false) else { break }
            // What the kernel says again, it says because the first was read: somebody writes without rest, and what was
            // written is to be told. Anything but a write that is said twice has happened twice.
            if event == previous, event.mask == UInt32(IN_MODIFY) { break }
            notices += take(event)
            previous = event
        }
        return notices
    }

    /// Events that are taken at once, at most.
    package static let batch = 256

    private func take(_ event: InotifyTools.Event) -> [Notice] {
        event.watch == bell.watch ? [.woken] : places.notices(of: event)
    }

    /// The library's time-outs are whole seconds, and ours are mostly shorter.
    private func first(_ timeout: Duration?, marks: Bool) throws(SystemError) -> InotifyTools.First? {
        let mark: (CInt, UInt32, UnsafeRawBufferPointer) -> Int? = { [places] watch, mask, name in
            marks && mask == UInt32(IN_MODIFY) ? places.marks.number(watch, name) : nil
        }
        guard let timeout else {
            while true { if let event = try tools.first(waits: true, mark: mark) { return event } }
        }
        let deadline = Deadline(after: timeout)
        while true {
            if let event = try tools.first(waits: false, mark: mark) { return event }
            guard let left = deadline.remaining, left > .zero else { return nil }
            tools.wait(left)
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

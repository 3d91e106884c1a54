import Glibc
import SystemPackage

/// The numbers of marked files, found by what an event of theirs looks like: names are hashed and compared where they lie.
struct FastPathIndex {
    private struct Found {
        let watch: CInt
        let name: [UInt8]
        let number: Int
    }

    private var numbers: [FilePath: [FilePath.Component: Int]] = [:]
    /// By which events they were found, each at the place of its name's hash; the last one of those that have the same.
    private var found = [Found?](repeating: nil, count: count)
    private static let count = 256

    subscript(name: FilePath.Component, directory: FilePath) -> Int? {
        get { numbers[directory]?[name] }
        set {
            numbers[directory, default: [:]][name] = newValue
            if numbers[directory]?.isEmpty == true { numbers[directory] = nil }
            forgetFound()
        }
    }

    /// Another directory may be behind a name, or another name may lead to a directory.
    mutating func forgetFound() { found = [Found?](repeating: nil, count: Self.count) }

    /// The event was the marked file's alone.
    mutating func note(_ event: InotifyTools.Event, _ number: Int) {
        event.name.withUnsafeBytes { name in
            found[Self.place(name)] = Found(watch: event.watch, name: event.name, number: number)
        }
    }

    func number(_ watch: CInt, _ name: UnsafeRawBufferPointer) -> Int? {
        guard let start = name.baseAddress, let found = found[Self.place(name)], found.watch == watch,
            found.name.count == name.count
        else { return nil }
        return found.name.withUnsafeBytes { $0.baseAddress.map { memcmp($0, start, name.count) == 0 } } == true
            ? found.number : nil
    }

    private static func place(_ name: UnsafeRawBufferPointer) -> Int {
        // FNV-1a.
        var hash: UInt32 = 2_166_136_261
        for byte in name { hash = (hash ^ UInt32(byte)) &* 16_777_619 }
        return Int(hash % UInt32(count))
    }
}

import Glibc
import SystemPackage

/// Maps write events of registered files to their indexes. Names are hashed and compared in place.
struct FastPathIndex {
    private struct CachedEvent {
        let watch: CInt
        let name: [UInt8]
        let index: Int
    }

    private var indexes: [FilePath: [FilePath.Component: Int]] = [:]
    /// The events that led to registered files, by the hash of their name. Of colliding ones, the last.
    private var cache = [CachedEvent?](repeating: nil, count: count)
    private var isCacheEmpty = true
    private static let count = 256

    subscript(name: FilePath.Component, directory: FilePath) -> Int? {
        get { indexes[directory]?[name] }
        set {
            indexes[directory, default: [:]][name] = newValue
            if indexes[directory]?.isEmpty == true { indexes[directory] = nil }
            invalidateCache()
        }
    }

    /// Clears the cache, because a path or a name may lead to another directory.
    mutating func invalidateCache() {
        guard !isCacheEmpty else { return }
        cache = [CachedEvent?](repeating: nil, count: Self.count)
        isCacheEmpty = true
    }

    /// Records an event that belongs to this registered file alone.
    mutating func record(_ event: InotifyEvent, index: Int) {
        isCacheEmpty = false
        event.name.withUnsafeBytes { name in
            cache[Self.slot(name)] = CachedEvent(watch: event.watch, name: event.name, index: index)
        }
    }

    func index(watch: CInt, name: UnsafeRawBufferPointer) -> Int? {
        guard let start = name.baseAddress, let cached = cache[Self.slot(name)], cached.watch == watch,
            cached.name.count == name.count
        else { return nil }
        return cached.name.withUnsafeBytes { $0.baseAddress.map { memcmp($0, start, name.count) == 0 } } == true
            ? cached.index : nil
    }

    private static func slot(_ name: UnsafeRawBufferPointer) -> Int {
        // FNV-1a.
        var hash: UInt32 = 2_166_136_261
        for byte in name { hash = (hash ^ UInt32(byte)) &* 16_777_619 }
        return Int(hash % UInt32(count))
    }
}

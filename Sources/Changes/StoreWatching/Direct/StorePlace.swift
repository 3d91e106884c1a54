import AgentProtocol
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A path that a caller named, and where the store is to which it leads.
package struct StorePlace: Equatable {
    /// The directory of the store, by a path that may itself lead through symbolic links.
    package let directory: FilePath
    package let name: FilePath.Component
    /// The directories of the symbolic links that the path itself is. A change there may lead elsewhere.
    let linkDirectories: Set<FilePath>

    package var path: FilePath { directory.appending(name) }

    private static let maximumLinks = 40

    /// Follows an absolute path as far as its last component is a symbolic link, as SQLite does. The place need not
    /// exist. Returns nil for a path that can't be a store's.
    package init?(_ path: FilePath) {
        guard path.isAbsolute else { return nil }
        var path = path
        var linkDirectories: Set<FilePath> = []
        for _ in 0..<Self.maximumLinks {
            guard let name = path.lastComponent, StoreName(name) != nil else { return nil }
            let directory = path.removingLastComponent()
            guard let target = Self.linkTarget(of: path) else {
                self.directory = directory
                self.name = name
                self.linkDirectories = linkDirectories
                return
            }
            linkDirectories.insert(directory)
            path = target.absolute(in: directory)
        }
        return nil
    }

    private static func linkTarget(of path: FilePath) -> FilePath? {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = path.withPlatformString { readlink($0, &buffer, buffer.count - 1) }
        guard count > 0 else { return nil }
        return buffer.withUnsafeBufferPointer { $0.baseAddress.map { FilePath(platformString: $0) } }
    }
}

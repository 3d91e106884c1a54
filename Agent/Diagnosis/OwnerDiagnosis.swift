import Glibc
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

/// Finds the owners of stores in a directory who can't reach it or write to it. Only root can ask for other users.
package struct OwnerDiagnosis {
    private let path: FilePath

    package init(_ path: FilePath) { self.path = path }

    /// Returns one finding per owner that is kept out.
    package func findings() -> [Finding] {
        guard geteuid() == 0, let directory = try? Directory(path), let names = try? directory.names() else {
            return []
        }
        var stores: [uid_t: FilePath.Component] = [:]
        for name in names where StoreName(name) != nil {
            guard let status = try? directory.status(name), status.kind == .regular, status.owner != 0,
                let file = try? directory.open(name, flags: O_RDONLY | O_NONBLOCK),
                let start = try? file.read(count: DatabaseHeader.length, at: 0), DatabaseHeader(start) != nil
            else { continue }
            stores[status.owner] = stores[status.owner] ?? name
        }
        return stores.sorted { $0.key < $1.key }.compactMap { owner, name in
            guard let obstacle = try? OwnerAccess(of: owner, to: directory).obstacle(from: "/") else { return nil }
            return Finding(
                "owner", .problem(.notPermitted),
                "\(PrintablePath(path.appending(name))): user \(owner), who owns it, \(obstacle.words)",
                remedy: obstacle.remedy, code: "owner_locked_out")
        }
    }
}

import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

/// Finds the owners of stores in a directory, or in a program's directory that was moved there, who can't reach the
/// store or write beside it. Only root can ask for other users.
package struct OwnerDiagnosis {
    private let path: FilePath

    package init(_ path: FilePath) { self.path = path }

    /// Returns one finding per owner that is kept out, and remedy.
    package func findings() -> [Finding] {
        guard geteuid() == 0 else { return [] }
        var remedies: Set<String?> = []
        return ([path] + appDirectories).flatMap(Self.findings(in:)).filter { remedies.insert($0.remedy).inserted }
    }

    /// The directories with stores in the programs' directories that moves have brought here.
    private var appDirectories: [FilePath] {
        let apps = (try? GroupContainer(path).movedApps()) ?? []
        let parents = apps.flatMap { app in
            let place = app.move.destination.path
            return ((try? AppRelocation.stores(in: place)) ?? []).map { place.pushing($0).removingLastComponent() }
        }
        return Set(parents).sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
    }

    private static func findings(in path: FilePath) -> [Finding] {
        guard let directory = try? Directory(path), let names = try? directory.names() else { return [] }
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

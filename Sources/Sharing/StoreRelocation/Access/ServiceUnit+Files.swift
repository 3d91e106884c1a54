import CLinux
import Glibc
import LinuxSystem
import SystemPackage

// The services of the system, read from their files.
extension ServiceUnit {
    /// The directories of unit files, first those that count first (systemd.unit(5), "Unit File Load Path").
    private static let places: [FilePath] = [
        "etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
        "lib/systemd/system",
    ]
    private static let sizeLimit = 1 << 16

    /// Throws `RelocationFailure` if a service of the system that uses the directory could not write to its new place.
    ///
    /// - Parameter root: The directory that holds the system's files.
    package static func check(
        owner: uid_t, from directory: FilePath, to place: FilePath, leavesLink: Bool, root: FilePath = "/"
    ) throws(RelocationFailure) {
        let used = UnitPath(directory.string)
        for unit in all(root, thatMayUse: used, owner: owner) {
            let isOwners = owner != 0 && unit.user.flatMap(UserNames.user) == owner
            guard unit.uses(used, isOwners: isOwners),
                let obstacle = unit.obstacle(from: directory, to: place, leavesLink: leavesLink)
            else { continue }
            throw RelocationFailure(
                .notPermitted, code: "service_locked_out",
                "\(unit.name), which uses \(PrintablePath(directory)), could not use \(PrintablePath(place)): it has "
                    + obstacle.reason,
                remedy: obstacle.lines.isEmpty
                    ? "name another place, or change that setting: systemctl edit "
                        + ShellText.word(Array(unit.name.utf8))
                    : "allow it: \(unit.command(adding: obstacle.lines))")
        }
    }

    /// Returns the services of the system whose files are below `root`. Leaves out what can't be read, services without
    /// a setting that could keep them from a place, and services that can't name the directory: most have none, and
    /// to understand the settings of all takes ten times as long as to read them.
    private static func all(_ root: FilePath, thatMayUse directory: UnitPath, owner: uid_t) -> [ServiceUnit] {
        var seen: Set<FileIdentity> = []
        // `/lib` is a link to `/usr/lib`, mostly.
        let directories = places.compactMap { try? Directory(root.pushing($0)) }
            .filter { seen.insert($0.identity).inserted }
        let found = files(of: directories, ending: [".service", ".service.d"])
        // A text names a directory by its last component, except with what a quotation or a specifier stands for. A
        // service of the directory's owner may name a directory above it.
        let signs = [directory.lastComponent, "\"", "'", "%"] + (owner == 0 ? [] : ["User"])
        let hasPlaces = containsPlaces(directory)
        return found[0].sorted { $0.key < $1.key }.compactMap { name, directories in
            guard let text = text(name, in: directories[0]) else { return nil }
            let folder = "\(name).d"
            let texts = [text] + dropIns(in: found[1][folder] ?? [], named: folder)
            guard texts.contains(where: { contains($0, anyOf: restrictions) }),
                hasPlaces || texts.contains(where: { contains($0, anyOf: signs) })
            else { return nil }
            return ServiceUnit(name: name, texts: texts.map { String(decoding: $0, as: UTF8.self) })
        }
    }

    /// Returns the names with each ending, and for each name the directories that have it, in their order.
    ///
    /// Names are texts here: a path of each of some hundred files would take longer than to read them.
    private static func files(of directories: [Directory], ending: [StaticString]) -> [[String: [Directory]]] {
        var found = [[String: [Directory]]](repeating: [:], count: ending.count)
        for directory in directories {
            try? directory.forEachEntry { name, _, _ in
                guard let kind = ending.firstIndex(where: { ends(name, with: $0) }) else { return }
                found[kind][String(decoding: name, as: UTF8.self), default: []].append(directory)
            }
        }
        return found
    }

    private static func ends(_ name: UnsafeBufferPointer<UInt8>, with ending: StaticString) -> Bool {
        let rest = name.count - ending.utf8CodeUnitCount
        guard rest >= 0, let start = name.baseAddress else { return false }
        return memcmp(start + rest, ending.utf8Start, ending.utf8CodeUnitCount) == 0
    }

    /// Parts of the names of all settings that `access` and `obstacle` depend on.
    private static let restrictions = [
        "Protect", "DynamicUser", "PrivateTmp", "TemporaryFileSystem", "Paths", "Directory",
    ]

    private static func contains(_ text: [UInt8], anyOf words: [String]) -> Bool {
        text.withUnsafeBytes { text in words.contains { gs_contains(text.baseAddress, text.count, $0) } }
    }

    private static func dropIns(in directories: [Directory], named folder: String) -> [[UInt8]] {
        guard !directories.isEmpty, let name = FilePath.Component(folder) else { return [] }
        return files(of: directories.compactMap { try? $0.directory(name) }, ending: [".conf"])[0]
            .sorted { $0.key < $1.key }
            .compactMap { text($0.key, in: $0.value[0]) }
    }

    /// Returns a file's text; a link to `/dev/null` masks a unit.
    private static func text(_ name: String, in directory: Directory) -> [UInt8]? {
        let raw = openat(directory.raw, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard raw >= 0 else { return nil }
        let file = Descriptor(owning: raw)
        guard (try? file.status())?.kind == .regular else { return nil }
        return try? file.read(count: sizeLimit, at: 0)
    }

    /// The command that gives the unit a drop-in.
    private func command(adding lines: [String]) -> String {
        let folder = ShellText.word(Array("/etc/systemd/system/\(name).d".utf8))
        let words = (["[Service]"] + lines).map { ShellText.word(Array($0.utf8)) }.joined(separator: " ")
        return "mkdir -p \(folder) && printf '%s\\n' \(words) >>\(folder)/groupstore.conf && systemctl daemon-reload"
    }
}

/// The user database.
package enum UserNames {
    /// Returns the number of a user, by name or number. The last number is no user's: chown(2) takes it for
    /// "unchanged".
    package static func user(_ text: String) -> uid_t? {
        if let number = uid_t(text) { return number == uid_t.max ? nil : number }
        var (entry, found) = (passwd(), UnsafeMutablePointer<passwd>?.none)
        var buffer = [CChar](repeating: 0, count: 16_384)
        return getpwnam_r(text, &entry, &buffer, buffer.count, &found) == 0 && found != nil ? entry.pw_uid : nil
    }

    /// Returns the path of a user's home directory; the root for a user that isn't known.
    package static func home(of user: uid_t) -> String {
        var (entry, found) = (passwd(), UnsafeMutablePointer<passwd>?.none)
        var buffer = [CChar](repeating: 0, count: 16_384)
        guard getpwuid_r(user, &entry, &buffer, buffer.count, &found) == 0, found != nil, let home = entry.pw_dir
        else { return "/" }
        return String(cString: home)
    }

    /// Returns the number of a group, by name or number. The last number is no group's.
    package static func group(_ text: String) -> gid_t? {
        if let number = gid_t(text) { return number == gid_t.max ? nil : number }
        var (entry, found) = (Glibc.group(), UnsafeMutablePointer<Glibc.group>?.none)
        var buffer = [CChar](repeating: 0, count: 65_536)
        return getgrnam_r(text, &entry, &buffer, buffer.count, &found) == 0 && found != nil ? entry.gr_gid : nil
    }

    /// Returns the number of a user's first group.
    package static func firstGroup(of user: uid_t) -> gid_t { PeerCredentials.user(user).gid }
}

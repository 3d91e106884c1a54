import CLinux
import Glibc
import SystemPackage

/// A file's permissions for its owner, groups and others, as defined by acl(5) and path_resolution(7): the mode, and
/// the POSIX ACL if the file has one.
///
/// Hand-written because libacl reads and edits lists, but doesn't evaluate one for another user.
struct AccessControlList {
    /// The entries' tags, as the kernel encodes them in `system.posix_acl_access`.
    private enum Tag: UInt16 {
        case owner = 0x01
        case user = 0x02
        case owningGroup = 0x04
        case group = 0x08
        case mask = 0x10
        case others = 0x20
    }

    private struct Entry {
        let tag: Tag
        let permissions: CInt
        let identifier: UInt32
    }

    private let owner: uid_t
    private let group: gid_t
    private let entries: [Entry]

    /// Reads a file's permissions. `descriptor` may be an O_PATH one. Throws if the permissions can't be determined.
    init(of descriptor: borrowing Descriptor, _ status: FileStatus) throws(SystemError) {
        self.init(
            owner: status.owner, group: status.group, mode: status.permissions,
            attribute: try Self.attribute(of: descriptor.raw))
    }

    /// Creates the permissions from a mode and `attribute`, the content of `system.posix_acl_access`, or nil without
    /// one. A list that can't be parsed grants nothing.
    init(owner: uid_t, group: gid_t, mode: mode_t, attribute: [UInt8]?) {
        self.owner = owner
        self.group = group
        // The kernel ignores a list with an empty mask. With a list, the mode's group bits are the mask.
        let list = mode & 0o070 == 0 ? nil : attribute
        entries =
            list.map(Self.parse)
            ?? [
                Entry(tag: .owner, permissions: CInt(mode >> 6 & 7), identifier: 0),
                Entry(tag: .owningGroup, permissions: CInt(mode >> 3 & 7), identifier: 0),
                Entry(tag: .others, permissions: CInt(mode & 7), identifier: 0),
            ]
    }

    /// True if the user has all of the access in `mode` (`R_OK`, `W_OK`, `X_OK`).
    func allows(_ user: PeerCredentials, to mode: CInt) -> Bool {
        func grants(_ entry: Entry, _ mask: CInt) -> Bool { entry.permissions & mask & mode == mode }
        let mask = entries.first { $0.tag == .mask }?.permissions ?? 7
        if user.uid == owner { return entries.contains { $0.tag == .owner && grants($0, 7) } }
        if let named = entries.first(where: { $0.tag == .user && $0.identifier == user.uid }) {
            return grants(named, mask)
        }
        let groups = Set(user.groups + [user.gid])
        let own = entries.filter { entry in
            entry.tag == .owningGroup && groups.contains(group)
                || entry.tag == .group && groups.contains(entry.identifier)
        }
        // One of the groups' entries must grant it all. The entry for others applies only if no other entry does.
        if !own.isEmpty { return own.contains { grants($0, mask) } }
        return entries.contains { $0.tag == .others && grants($0, 7) }
    }

    /// Returns the encoded list with no more rights for the owning group than for everybody. A list that can't be
    /// parsed stays as it is, and the kernel refuses it.
    static func withoutGroupRights(_ bytes: [UInt8]) -> [UInt8] {
        let entries = parse(bytes)
        guard let others = entries.first(where: { $0.tag == .others })?.permissions else { return bytes }
        var changed = bytes
        for (index, entry) in entries.enumerated() where entry.tag == .owningGroup {
            changed[4 + 8 * index + 2] = UInt8(entry.permissions & others)
        }
        return changed
    }

    /// Returns nil if the file has none or its file system doesn't support them.
    private static func attribute(of raw: CInt) throws(SystemError) -> [UInt8]? {
        // fgetxattr(2) doesn't accept an O_PATH descriptor.
        let path = FilePath("/proc/self/fd/\(raw)")
        var bytes = [UInt8](repeating: 0, count: 65_536)
        do throws(SystemError) {
            let count = try retrying("getxattr", path: path) {
                path.withPlatformString {
                    gs_get_path_attribute($0, "system.posix_acl_access", &bytes, bytes.count)
                }
            }
            return Array(bytes.prefix(count))
        } catch {
            if [ENODATA, EOPNOTSUPP, ENOSYS].contains(error.errno.rawValue) { return nil }
            throw error
        }
    }

    /// Parses version 2 of the kernel's format (posix_acl_xattr.h): four bytes of version, then eight per entry, in
    /// little-endian order.
    private static func parse(_ bytes: [UInt8]) -> [Entry] {
        func number(at offset: Int, length: Int) -> UInt32 {
            (0..<length).reduce(0) { $0 | UInt32(bytes[offset + $1]) << UInt32(8 * $1) }
        }
        guard bytes.count >= 4, bytes.count % 8 == 4, number(at: 0, length: 4) == 2 else { return [] }
        var entries: [Entry] = []
        for offset in stride(from: 4, to: bytes.count, by: 8) {
            guard let tag = Tag(rawValue: UInt16(number(at: offset, length: 2))) else { return [] }
            entries.append(
                Entry(
                    tag: tag, permissions: CInt(number(at: offset + 2, length: 2)) & 7,
                    identifier: number(at: offset + 4, length: 4)))
        }
        return entries
    }
}

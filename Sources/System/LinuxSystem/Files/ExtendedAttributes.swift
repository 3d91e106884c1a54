import CLinux
import Glibc
import SystemPackage

/// A file's attributes and access control lists. The kernel stores the lists as attributes too (xattr(7), acl(5)).
package enum ExtendedAttributes {
    /// Gives an open file the permission bits `mode` and another file's attributes. `security.` and `trusted.` ones,
    /// such as a program's capabilities, are copied if this process may and the file system has them. Returns the names
    /// of those that could not be. Call it after the content was written and the owner was given: both take a program's
    /// capabilities away.
    ///
    /// Throws ENOTSUP if the target's file system has no attributes: a mode without its list may grant more than both
    /// together.
    @discardableResult
    package static func copy(
        from source: CInt, to target: CInt, mode: mode_t, path: FilePath
    ) throws(SystemError) -> [String] {
        let names = try names(of: source, path: path).filter(isCopied)
        // Must precede the mode: a user other than root can set such attributes only on a writable file.
        let lost = try copy(names.filter { !isACL($0) }, from: source, to: target, path: path)
        try retrying("fchmod", path: path) { fchmod(target, mode) }
        // Must follow the mode: a list's mask is the mode's group bits.
        _ = try copy(names.filter(isACL), from: source, to: target, path: path)
        return lost
    }

    private static func copy(
        _ names: [Name], from source: CInt, to target: CInt, path: FilePath
    ) throws(SystemError) -> [String] {
        var lost: [String] = []
        for name in names {
            guard let value = try value(of: name, source, path: path) else { continue }
            // A label of the system's policy may be there already, and be no user's to give.
            if name.isPrivileged, (try? self.value(of: name, target, path: path)) == value { continue }
            do {
                try retrying("fsetxattr \(name.text)", path: path) {
                    value.withUnsafeBytes { gs_set_attribute(target, name.bytes, $0.baseAddress, $0.count) }
                }
            } catch {
                let isDenied = [.notPermitted, .permissionDenied, .notSupported, .invalidArgument].contains(error.errno)
                guard name.isPrivileged, isDenied else { throw error }
                lost.append(name.text)
            }
        }
        return lost
    }

    /// Removes the access control lists that a new file or directory inherited from its parent. Otherwise its final
    /// mode would open it to the users they name.
    package static func removeInheritedLists(of raw: CInt, path: FilePath) throws(SystemError) {
        for name in ["system.posix_acl_access", "system.posix_acl_default"] {
            do {
                try retrying("fremovexattr \(name)", path: path) { gs_remove_attribute(raw, name) }
            } catch {
                // It has none, the file system has none, or a file has no default list.
                guard [.noData, .notSupported, .permissionDenied].contains(error.errno) else { throw error }
            }
        }
    }

    /// Gives a new directory its parent's access control list, and makes it the default of what is made in it. A parent
    /// with a default list of its own has given that already. Does nothing if the parent has no list.
    ///
    /// - Parameter isOfSameGroup: False if the directory's group is another than its parent's. That group then gets no
    ///   more than everybody.
    package static func inheritList(
        from parent: CInt, to child: CInt, isOfSameGroup: Bool, path: FilePath
    ) throws(SystemError) {
        let access = Name(bytes: Array("system.posix_acl_access".utf8CString))
        let standard = Name(bytes: Array("system.posix_acl_default".utf8CString))
        do throws(SystemError) {
            guard try value(of: standard, parent, path: path) == nil,
                let list = try value(of: access, parent, path: path)
            else { return }
            let given = isOfSameGroup ? list : AccessControlList.withoutGroupRights(list)
            for name in [standard, access] {
                try retrying("fsetxattr \(name.text)", path: path) {
                    given.withUnsafeBytes { gs_set_attribute(child, name.bytes, $0.baseAddress, $0.count) }
                }
            }
        } catch {
            guard error.errno == .notSupported else { throw error }
        }
    }

    /// A name as the kernel has it: bytes of any encoding, with a zero byte at the end.
    private struct Name {
        let bytes: [CChar]

        var text: String { PrintablePath(bytes: bytes.dropLast().map { UInt8(bitPattern: $0) }).description }

        var isPrivileged: Bool { hasPrefix("security.") || hasPrefix("trusted.") }

        func hasPrefix(_ prefix: String) -> Bool { bytes.lazy.map { UInt8(bitPattern: $0) }.starts(with: prefix.utf8) }
    }

    private static func isCopied(_ name: Name) -> Bool {
        // The kernel makes EVM's of the inode.
        name.hasPrefix("user.") || isACL(name) || name.isPrivileged && name.text != "security.evm"
    }

    private static func isACL(_ name: Name) -> Bool { name.hasPrefix("system.posix_acl_") }

    private static func names(of raw: CInt, path: FilePath) throws(SystemError) -> [Name] {
        // The kernel's limit for the list, XATTR_LIST_MAX.
        var buffer = [CChar](repeating: 0, count: 65_536)
        do {
            let count = try retrying("flistxattr", path: path) {
                gs_list_attributes(raw, &buffer, buffer.count)
            }
            return buffer[..<count].split(separator: 0).map { Name(bytes: $0 + [0]) }
        } catch {
            if error.errno == .notSupported { return [] }
            throw error
        }
    }

    /// Returns nil if the attribute was removed meanwhile.
    private static func value(of name: Name, _ raw: CInt, path: FilePath) throws(SystemError) -> [UInt8]? {
        // The kernel's limit for a value, XATTR_SIZE_MAX.
        var buffer = [UInt8](repeating: 0, count: 65_536)
        do {
            let count = try retrying("fgetxattr \(name.text)", path: path) {
                gs_get_attribute(raw, name.bytes, &buffer, buffer.count)
            }
            return Array(buffer[..<count])
        } catch {
            if error.errno == .noData { return nil }
            throw error
        }
    }
}

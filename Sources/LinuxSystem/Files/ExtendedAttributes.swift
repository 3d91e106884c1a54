import CLinux
import Glibc
import SystemPackage

/// What a file has besides its mode: `user.` attributes, and its access control lists, which the kernel keeps as
/// attributes too (xattr(7), acl(5)).
package enum ExtendedAttributes {
    /// Gives one open file the permission bits `mode` and what another has besides. `security.` attributes are left to the
    /// system's policy; `trusted.` ones are kept where this process may.
    ///
    /// Throws ENOTSUP where the other file system has none: a mode whose list got lost may grant more than both did.
    package static func copy(
        from source: CInt, to target: CInt, mode: mode_t, path: FilePath
    ) throws(SystemError) {
        let names = try names(of: source, path: path).filter(isKept)
        // Before the mode: who isn't root gives such attributes only to what they may write to.
        try copy(names.filter { !isList($0) }, from: source, to: target, path: path)
        try retrying("fchmod", path: path) { fchmod(target, mode) }
        // Behind it: a list's mask is the mode's group bits.
        try copy(names.filter(isList), from: source, to: target, path: path)
    }

    private static func copy(
        _ names: [String], from source: CInt, to target: CInt, path: FilePath
    ) throws(SystemError) {
        for name in names {
            guard let value = try value(of: name, source, path: path) else { continue }
            do {
                try retrying("fsetxattr \(name)", path: path) {
                    value.withUnsafeBytes { gs_set_attribute(target, name, $0.baseAddress, $0.count) }
                }
            } catch {
                guard name.hasPrefix("trusted."), error.errno == .notPermitted else { throw error }
            }
        }
    }

    /// Takes away the access control lists that a new file or directory has got from the directory it was made in: the
    /// mode that it is given next would open it to whom they name.
    package static func removeInheritedLists(of raw: CInt, path: FilePath) throws(SystemError) {
        for name in ["system.posix_acl_access", "system.posix_acl_default"] {
            do {
                try retrying("fremovexattr \(name)", path: path) { gs_remove_attribute(raw, name) }
            } catch {
                // It has none, the file system has none, or a file has no default one.
                guard [.noData, .notSupported, .permissionDenied].contains(error.errno) else { throw error }
            }
        }
    }

    private static func isKept(_ name: String) -> Bool {
        name.hasPrefix("user.") || isList(name) || name.hasPrefix("trusted.")
    }

    private static func isList(_ name: String) -> Bool { name.hasPrefix("system.posix_acl_") }

    private static func names(of raw: CInt, path: FilePath) throws(SystemError) -> [String] {
        // The kernel's own limit on the list, XATTR_LIST_MAX.
        var buffer = [CChar](repeating: 0, count: 65_536)
        do {
            let count = try retrying("flistxattr", path: path) {
                gs_list_attributes(raw, &buffer, buffer.count)
            }
            return buffer[..<count].split(separator: 0).map {
                String(decoding: $0.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            }
        } catch {
            if error.errno == .notSupported { return [] }
            throw error
        }
    }

    /// Nil when it went away meanwhile.
    private static func value(of name: String, _ raw: CInt, path: FilePath) throws(SystemError) -> [UInt8]? {
        // The kernel's own limit on a value, XATTR_SIZE_MAX.
        var buffer = [UInt8](repeating: 0, count: 65_536)
        do {
            let count = try retrying("fgetxattr \(name)", path: path) {
                gs_get_attribute(raw, name, &buffer, buffer.count)
            }
            return Array(buffer[..<count])
        } catch {
            if error.errno == .noData { return nil }
            throw error
        }
    }
}

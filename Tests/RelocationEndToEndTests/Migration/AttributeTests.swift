import CLinux
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The owner, the mode, access control lists and other attributes stay unchanged, within one file system and across
/// two.
@Suite(.ownThreads) struct AttributeTests {
    private func set(_ name: String, _ value: [UInt8], on path: FilePath) throws {
        let file = try Descriptor(opening: path, flags: O_RDONLY)
        guard value.withUnsafeBytes({ gs_set_attribute(file.raw, name, $0.baseAddress, $0.count) }) == 0 else {
            throw Errno(rawValue: errno)
        }
    }

    private func get(_ name: String, of path: FilePath) throws -> [UInt8]? {
        let file = try Descriptor(opening: path, flags: O_RDONLY)
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = gs_get_attribute(file.raw, name, &buffer, buffer.count)
        return count < 0 ? nil : Array(buffer[..<count])
    }

    /// Returns an access control list in the kernel's format (linux/posix_acl_xattr.h): version 2, then each entry's
    /// tag, permissions and id. The entries are, in this order, the owner, user 1234, the group, the mask and all
    /// others.
    private static func list(owner: UInt8) -> [UInt8] {
        [2, 0, 0, 0] + entry(0x01, owner) + entry(0x02, 4, id: 1234) + entry(0x04, 0) + entry(0x10, 4) + entry(0x20, 0)
    }

    private static func entry(_ tag: UInt8, _ permissions: UInt8, id: UInt32 = .max) -> [UInt8] {
        [tag, 0, permissions, 0] + withUnsafeBytes(of: id.littleEndian) { Array($0) }
    }

    @Test(arguments: Places.FileSystem.allCases)
    func keepsAllAttributes(_ fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: true)
        let blob: FilePath = "_EXTERNAL_DATA/1F2E"
        for path in [store.path, store.support, store.support.pushing(blob)] {
            try set("user.colour", Array("blue".utf8), on: path)
            try set("system.posix_acl_access", Self.list(owner: 7), on: path)
        }
        let paths = [store.path, store.support, store.support.pushing(blob)]
        let before = paths.map { FileStatus(following: $0) }

        let done = try groupstore("relocate", Word(store.path), Word(places.group), "--json")
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        let after = [published.path, published.support, published.support.pushing(blob)]
        for (path, before) in zip(after, before) {
            #expect(try get("user.colour", of: path) == Array("blue".utf8), "\(path)")
            #expect(try get("system.posix_acl_access", of: path) == Self.list(owner: 7), "\(path)")
            let now = FileStatus(following: path)
            #expect(now?.permissions == before?.permissions)
            #expect(now?.owner == before?.owner)
            #expect(now?.group == before?.group)
        }
    }

    /// A group directory's default ACL (acl(5), "default ACL") is for new files, and doesn't apply to a store that
    /// arrives there. Otherwise the users that it names could read what they couldn't read before.
    @Test(arguments: Places.FileSystem.allCases, ["archive", "symlink", "delete"])
    func doesNotInheritADirectorysDefaultACL(_ fileSystem: Places.FileSystem, _ retirement: String) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: true)
        for directory in [places.group, places.legacy] {
            // With this ACL only root can work in the directory at all.
            try set("system.posix_acl_default", Self.list(owner: 6), on: directory)
        }
        let before = FileStatus(following: store.path)?.permissions

        let done = try groupstore(
            "relocate", Word(store.path), Word(places.group), "--json", "--retire", Word(retirement))
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        #expect(FileStatus(following: published.path)?.permissions == before)
        for path in [published.path, published.support, published.support.pushing("_EXTERNAL_DATA/1F2E")] {
            #expect(try get("system.posix_acl_access", of: path) == nil, "\(path)")
            #expect(try get("system.posix_acl_default", of: path) == nil, "\(path)")
        }
        let archived = try run("find", [Word(places.group.appending(".groupstore")), "-name", "Notes.sqlite"]).output
        #expect(archived.isEmpty == (retirement != "archive"))
        for line in archived.split(separator: "\n") {
            #expect(try get("system.posix_acl_access", of: FilePath(String(line))) == nil, "\(line)")
        }
    }
}

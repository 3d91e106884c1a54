import Glibc
import LinuxSystem
import PersistentStore
import StoreMigration
import SystemPackage

/// A migration tried on a copy of the store that nobody else sees, under `$TMPDIR` or `/tmp`. What a later step or a
/// mapping model meets can't be told from the store as it is now: `model check` and a dry run try it, so that they say what
/// the migration would.
package struct MigrationRehearsal {
    private let manager: MigrationManager

    /// Nil where the store as it is now tells all: one inferred step, or none. An app's stages are not tried: what they do
    /// beside the store can't be taken back.
    package init?(_ manager: MigrationManager) {
        let isInferred = manager.steps.allSatisfy { if case .inferred = $0.method { true } else { false } }
        guard manager.steps.count > 1 || !isInferred, manager.steps.allSatisfy({ $0.stage == nil }) else { return nil }
        self.manager = manager
    }

    /// Throws as `RecordedMigration.run` does, and `SystemError`.
    package func run(on reader: StoreReader) throws {
        let scratch = try ScratchDirectory()
        guard let name = StoreName("Rehearsal.sqlite") else { return }
        let copy = StoreLocation(directory: try Directory(scratch.path), name: name)
        close(try Descriptor(opening: copy.path, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600).release())
        try reader.copy(to: copy.path)
        _ = try RecordedMigration(
            manager, of: copy, copyOf: reader.location.path, supportBeside: reader.location
        ).run { _, _ in }
    }
}

/// A directory that is gone with the last reference to it.
private final class ScratchDirectory {
    let path: FilePath

    init() throws {
        let base = FilePath(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")
        var template = base.appending("groupstore-XXXXXX").withPlatformString { pointer in
            Array(UnsafeBufferPointer(start: pointer, count: strlen(pointer) + 1))
        }
        guard mkdtemp(&template) != nil else { throw SystemError.last("mkdtemp", path: base) }
        path = FilePath(platformString: template)
    }

    deinit {
        guard let name = path.lastComponent else { return }
        try? Directory(path.removingLastComponent()).removeTree(name)
    }
}

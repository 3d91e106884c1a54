import Glibc
import LinuxSystem
import SystemPackage

/// Finds out through a lease (fcntl(2)) whether other processes have a file open.
///
/// The file stays open as long as others have it: closing it would raise an event that looks like theirs.
struct OpenFileProbe {
    private final class OpenFile {
        let descriptor: Descriptor
        let identity: FileIdentity

        init(_ descriptor: consuming Descriptor, _ identity: FileIdentity) {
            self.descriptor = descriptor
            self.identity = identity
        }
    }

    private var file: OpenFile?

    /// Returns true if other processes have the file open. Returns false if that is unknown: the relocation finds out.
    mutating func isOpen(_ name: FilePath.Component, in directory: FilePath) -> Bool {
        guard let directory = try? Directory(directory), let status = try? directory.status(name),
            status.kind == .regular
        else {
            end()
            return false
        }
        if file?.identity != status.identity {
            end()
            guard let descriptor = try? directory.open(name, flags: O_RDONLY) else { return false }
            file = OpenFile(descriptor, status.identity)
        }
        return file.map(Self.isLeaseRefused) ?? false
    }

    mutating func end() { file = nil }

    /// Retries for 5 ms, because IN_CLOSE precedes the actual close.
    private static func isLeaseRefused(_ file: OpenFile) -> Bool {
        for _ in 0..<100 {
            if FileLease.isGranted(file.descriptor) { return false }
            pause(.microseconds(50))
        }
        return true
    }
}

import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite(.ownDescriptors) struct FileLeaseTests {
    private let root: TemporaryDirectory
    private let directory: Directory

    init() throws {
        FileLease.ignoreBreakSignal()
        root = try TemporaryDirectory()
        directory = try Directory(root.path)
        _ = try directory.open("file", flags: O_RDWR | O_CREAT, mode: 0o600)
    }

    private func isGranted(_ descriptor: borrowing Descriptor) throws -> Bool { try FileLease(descriptor) != nil }

    /// A process that looks at this one's descriptors in `/proc` refers to each file for a moment, and so does one that
    /// another test starts.
    private func becomesGranted(_ descriptor: borrowing Descriptor) throws -> Bool {
        let deadline = Deadline(after: .ample)
        while try !isGranted(descriptor) {
            if deadline.hasPassed { return false }
            pause(.milliseconds(1))
        }
        return true
    }

    @Test func isGrantedForAFileThatNobodyElseHasOpen() throws {
        let descriptor = try directory.open("file", flags: O_RDWR)
        #expect(try becomesGranted(descriptor))
    }

    @Test(arguments: [O_RDONLY, O_RDWR]) func isRefusedForAnOpenFile(_ flags: CInt) throws {
        let descriptor = try directory.open("file", flags: O_RDWR)
        let other = try directory.open("file", flags: flags)
        #expect(try !isGranted(descriptor))
        _ = consume other
        #expect(try becomesGranted(descriptor))
    }

    @Test func isRefusedForAMappedFile() throws {
        let other = try directory.open("file", flags: O_RDWR)
        try other.truncate(to: 4096)
        let memory = mmap(nil, 4096, PROT_READ, MAP_SHARED, other.raw, 0)
        // A process that another test starts at the same time would have the mapping, too, until it is another program.
        madvise(memory, 4096, MADV_DONTFORK)
        _ = consume other
        let descriptor = try directory.open("file", flags: O_RDWR)
        #expect(try !isGranted(descriptor))
        munmap(memory, 4096)
        #expect(try becomesGranted(descriptor))
    }

    @Test func detectsANonBlockingOpener() throws {
        let descriptor = try directory.open("file", flags: O_RDWR)
        guard let lease = try FileLease(descriptor) else { throw Unexpected("no lease") }
        let isIntact = lease.isIntact
        #expect(isIntact)
        #expect(throws: SystemError.self) { _ = try directory.open("file", flags: O_RDONLY) }
        let isStillIntact = lease.isIntact
        #expect(!isStillIntact)
    }

    @Test func exchangesNamesUnderALease() throws {
        try directory.makeDirectory("placeholder", mode: 0o500)
        let descriptor = try directory.open("file", flags: O_RDWR)
        guard let lease = try FileLease(descriptor) else { throw Unexpected("no lease") }
        try directory.rename("file", to: "placeholder", in: directory, .exchange)
        let isIntact = lease.isIntact
        #expect(isIntact)
        #expect(try directory.status("file")?.kind == .directory)
        #expect(try directory.status("placeholder")?.kind == .regular)
    }
}

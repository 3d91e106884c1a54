import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite(.ownThreads) struct ShellWordTests {
    /// A shell reads the word as the path's own bytes.
    @Test(arguments: [
        "/a/Notes.sqlite", "my notes.sqlite", "it's.db", "$(touch x)`y`;z", "tab\there", "two\nlines", "-rf", "a\\b",
        "\u{1B}[2Jred", "\u{1B}7%s%%\\n!'\"$(x)`y` é ", "-\t", "café ☕.sqlite", "*?[a]", "#x", "~/a", "a=b", "'", "",
    ])
    func isReadAsThePathByAShell(_ path: String) throws {
        try expectSame(Array(path.utf8))
    }

    /// dash has no word for it that is one line.
    @Test func keepsALineFeedAtTheEnd() throws { try expectSame(Array("it's 5%\n\n".utf8), in: ["bash"]) }

    @Test func keepsBytesThatAreNotText() throws {
        try expectSame([0x66, 0xFF, 0xFE, 0x27, 0x5C, 0x0A, 0x62])
        try expectSame([0x01, 0x41])
        try expectSame([UInt8](0x01...0xFF))
    }

    @Test func leavesPlainPathsAlone() {
        #expect(FilePath("/a/b-c_1.sqlite").shellWord == "/a/b-c_1.sqlite")
        #expect(FilePath("my notes").shellWord == "'my notes'")
    }

    private func expectSame(_ bytes: [UInt8], in shells: [Word] = ["bash", "sh"]) throws {
        let path = try #require(FilePath(bytes: bytes))
        let word = path.shellWord
        #expect(word.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0 != "\u{7F}" }, "\(word)")
        for shell in shells {
            let read = try run(shell, ["-c", "printf '%s' \(word) | od -An -v -tx1"]).output
            let found = read.split(whereSeparator: \.isWhitespace).compactMap { UInt8($0, radix: 16) }
            #expect(found == (bytes.first == 0x2D ? [0x2E, 0x2F] + bytes : bytes), "\(shell): \(word)")
        }
    }
}

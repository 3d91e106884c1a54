import LinuxSystem
import SystemPackage
import Testing

/// Untrusted text on a terminal.
@Suite struct PrintableTextTests {
    @Test(arguments: [
        "\u{1B}[31m", "a\nb", "\r", "\t", "\0", "\u{7F}", "\u{85}", "\u{9B}31m", "\u{61C}", "\u{200E}", "\u{200F}",
        "\u{2028}", "\u{2029}", "\u{202A}", "\u{202B}", "\u{202C}", "\u{202D}", "\u{202E}", "\u{2066}", "\u{2067}",
        "\u{2068}", "\u{2069}",
    ]) func escapesControlCharacters(_ text: String) {
        let printed = PrintableText(text).description
        #expect(!PrintableText.isPlain(text) && PrintableText.isPlain(printed) && printed.contains("\\u{"))
        let path = PrintablePath(FilePath("/tmp/\(text.replacing("\0", with: "\n"))")).description
        #expect(PrintableText.isPlain(path) && path.contains("\\x"))
    }

    @Test(arguments: ["", "notes", "café ☕", "日本語", "שלום", "a\\b", "🇫🇷👩‍👧"]) func keepsPlainText(_ text: String) {
        #expect(PrintableText(text).description == text)
    }

    @Test func escapesEachSpecialCharacter() {
        #expect(PrintableText("a\u{1B}\u{202E}b").description == "a\\u{1b}\\u{202e}b")
    }
}

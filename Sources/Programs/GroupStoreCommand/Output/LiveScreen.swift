import Glibc
import LinuxSystem

/// A terminal that shows one page, redrawn in place on the alternate screen, so that the scrollback stays as it was.
///
/// Hand-written because a dozen control sequences (ECMA-48, xterm's ctlseqs) aren't worth ncurses and terminfo: every
/// terminal of a Linux desktop, console and multiplexer knows them.
final class LiveScreen {
    struct Size: Equatable {
        var columns: Int
        var rows: Int
    }

    enum Style {
        case plain
        case heading
        case dim
        case warning
        case problem

        /// The parameters of SGR (ECMA-48, 8.3.117). Bold and faint are no colours.
        fileprivate func parameters(inColour: Bool) -> String {
            switch self {
            case .plain: ""
            case .heading: "1"
            case .dim: "2"
            case .warning: inColour ? "33" : ""
            case .problem: inColour ? "31" : "1"
            }
        }
    }

    /// A line of one style. Its text is printable.
    struct Line: Equatable {
        let text: String
        let style: Style

        init(_ text: String, _ style: Style) {
            self.text = PrintableText(text).description
            self.style = style
        }

        func cut(to columns: Int) -> Line { Line(DisplayWidth.cut(text, to: columns), style) }

        /// Returns the line as several that fit, broken between words; a process and its number, and a number and its
        /// unit, stay together. Further lines are indented by two columns more than the first. A path that is too long
        /// loses its beginning, another word its end.
        func wrapped(to columns: Int) -> [Line] {
            guard DisplayWidth.of(text) > columns else { return [self] }
            let indent = String(text.prefix { $0 == " " })
            var lines: [String] = []
            var line = indent
            for (gap, word) in Self.words(text.dropFirst(indent.count)) {
                let isFirst = line == indent || line == indent + "  "
                let next = isFirst ? line + word : line + gap + word
                guard DisplayWidth.of(next) > columns else {
                    line = next
                    continue
                }
                if !isFirst { lines.append(line) }
                let rest = lines.isEmpty ? indent : indent + "  "
                let width = columns - rest.utf8.count
                let isPath = word.contains("/")
                line = rest + (isPath ? DisplayWidth.cutStart(word, to: width) : DisplayWidth.cut(word, to: width))
            }
            return (lines + [line]).map { Line($0, style).cut(to: columns) }
        }

        private static func isNumber(_ word: String) -> Bool { word.allSatisfy { $0.isNumber || $0 == "." } }

        /// Returns the words, each with the spaces before it.
        private static func words(_ text: Substring) -> [(gap: String, word: String)] {
            var words: [(gap: String, word: String)] = []
            var gap = ""
            // An empty part stands for one more space before the next word.
            for part in text.split(separator: " ", omittingEmptySubsequences: false) {
                if part.isEmpty {
                    gap += " "
                    continue
                }
                if let last = words.last?.word, part == "(pid" || last.hasSuffix("(pid") || isNumber(last) {
                    words[words.count - 1].word += gap + part
                } else {
                    words.append((gap, String(part)))
                }
                gap = " "
            }
            return words
        }
    }

    private let isInColour: Bool
    private var savedInput: termios?
    private var isShown = false

    /// Returns true if standard output is a terminal that can be drawn on.
    static func isAvailable(environment: [String: String]) -> Bool {
        guard isatty(STDOUT_FILENO) == 1 else { return false }
        return !["", "dumb", "unknown"].contains(environment["TERM"] ?? "")
    }

    /// - Parameter environment: `NO_COLOR` turns colour off, unless it is empty (https://no-color.org).
    init(environment: [String: String]) { isInColour = environment["NO_COLOR"] ?? "" == "" }

    /// The terminal's size. A terminal that doesn't know its own counts as 80 by 24.
    var size: Size {
        var found = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &found) == 0, found.ws_col > 0, found.ws_row > 0 else {
            return Size(columns: 80, rows: 24)
        }
        return Size(columns: Int(found.ws_col), rows: Int(found.ws_row))
    }

    /// Switches to the alternate screen, hides the cursor, and reads keys one by one without showing them.
    func show() {
        guard !isShown else { return }
        isShown = true
        var input = termios()
        if isatty(STDIN_FILENO) == 1, tcgetattr(STDIN_FILENO, &input) == 0 {
            savedInput = input
            input.c_lflag &= ~tcflag_t(ICANON | ECHO)
            tcsetattr(STDIN_FILENO, TCSADRAIN, &input)
        }
        Self.write("\u{1B}[?1049h\u{1B}[?25l\u{1B}[2J")
    }

    /// Restores the terminal.
    func hide() {
        guard isShown else { return }
        isShown = false
        Self.write("\u{1B}[0m\u{1B}[?25h\u{1B}[?1049l")
        if var savedInput { tcsetattr(STDIN_FILENO, TCSADRAIN, &savedInput) }
        savedInput = nil
    }

    /// Draws at most `size.rows` lines from the top, over the previous ones. Returns false if the terminal is gone.
    ///
    /// - Parameter erasing: True to erase everything first: after a change of size, a terminal may have wrapped lines.
    @discardableResult
    func draw(_ lines: [Line], on size: Size, erasing: Bool = false) -> Bool {
        let drawn = lines.map { line in
            let parameters = line.style.parameters(inColour: isInColour)
            let text = parameters.isEmpty ? line.text : "\u{1B}[\(parameters)m\(line.text)\u{1B}[0m"
            // Erased first: after a full line the cursor stands on its last column.
            return "\u{1B}[2K" + text
        }
        let rest = lines.count < size.rows ? "\r\n\u{1B}[J" : ""
        return Self.write((erasing ? "\u{1B}[2J" : "") + "\u{1B}[H" + drawn.joined(separator: "\r\n") + rest)
    }

    @discardableResult
    private static func write(_ text: String) -> Bool {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = try? retrying("write") {
                bytes.withUnsafeBytes { Glibc.write(STDOUT_FILENO, $0.baseAddress, $0.count) }
            }
            guard let count, count > 0 else { return false }
            bytes = bytes.dropFirst(count)
        }
        return true
    }
}

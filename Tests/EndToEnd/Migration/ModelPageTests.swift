import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The pictures and pages of models: in a browser, if Chromium is there.
@Suite(.ownThreads) struct ModelPageTests {
    private static let first = """
        <entity name="Note" isAbstract="YES"><attribute name="title" optional="YES" attributeType="String"/>
        <attribute name="wörd" optional="YES" attributeType="String"/>
        <relationship name="tags" optional="YES" toMany="YES" deletionRule="Nullify" destinationEntity="Tag"
          inverseName="notes" inverseEntity="Tag"/></entity>
        <entity name="Memo" parentEntity="Note"><attribute name="size" optional="YES" attributeType="Integer 16"/></entity>
        <entity name="Tag"><attribute name="gone" optional="YES" attributeType="Date"/>
        <relationship name="notes" optional="YES" toMany="YES" deletionRule="Nullify" destinationEntity="Note"
          inverseName="tags" inverseEntity="Note"/></entity>
        """

    private let scratch: TemporaryDirectory
    private let model: FilePath

    init() throws {
        scratch = try TemporaryDirectory()
        let second = Self.first.replacing(
            "name=\"gone\" optional=\"YES\" attributeType=\"Date\"",
            with: "name=\"new\" optional=\"YES\" attributeType=\"Decimal\""
        )
        .replacing("name=\"title\"", with: "name=\"caption\" elementID=\"title\"")
        model = try ModelTests.bundle(scratch, named: "A <b> & \"c\"", [("Notes", Self.first), ("Notes 2", second)])
    }

    private func version(_ name: String) -> Word { Word(model.appending(name + ".xcdatamodel")) }

    private enum Kind: String, CaseIterable, Sendable {
        case show, diff, check

        /// Texts that the page must show.
        var texts: [String] {
            switch self {
            case .show: ["Note", "Memo", "caption: String?", "wörd: String?", "tags → Tag *", "new: Decimal?"]
            case .diff: ["Notes → Notes 2", "caption", "gone", "new", "require a migration"]
            case .check:
                ["Versions of A <b> & \"c\".xcdatamodeld", "by inferred migration", "Tag.gone", "1 older versions"]
            }
        }
    }

    private func page(_ kind: Kind) throws -> FilePath {
        let done =
            switch kind {
            case .show: try groupstore("model", "show", Word(model), "--format", "svg")
            case .diff: try groupstore("model", "diff", version("Notes"), version("Notes 2"), "--format", "html")
            case .check: try groupstore("model", "check", "--all", Word(model), "--format", "html")
            }
        #expect(done.status == 0, "\(done.errors)")
        let path = scratch.path.appending("page." + (kind == .show ? "svg" : "html"))
        try write(done.output, to: path)
        return path
    }

    @Test(arguments: Kind.allCases) private func isWellFormedAndLoadsNothing(_ kind: Kind) throws {
        let path = try page(kind)
        let script = """
            import html.parser, re, sys, xml.etree.ElementTree
            text = open(sys.argv[1], encoding="utf-8").read()
            assert not re.search(r'(src|href)="(?!#|data:)', text), "it loads something"
            assert "<script" not in text
            if sys.argv[1].endswith("svg"):
                root = xml.etree.ElementTree.fromstring(text)
                shown = "\\n".join(root.itertext())
            else:
                class Page(html.parser.HTMLParser):
                    def __init__(self):
                        super().__init__()
                        self.open, self.text = [], []
                    def handle_starttag(self, tag, _):
                        if tag not in ("meta", "link", "br"): self.open.append(tag)
                    def handle_endtag(self, tag):
                        assert self.open.pop() == tag, tag
                    def handle_data(self, data): self.text.append(data)
                page = Page()
                page.feed(text)
                assert not page.open, page.open
                shown = "".join(page.text)
            for each in sys.argv[2:]:
                assert each in shown, each
            """
        let done = try run("python3", ["-c", Word(script), Word(path)] + kind.texts.map { Word($0) })
        #expect(done.status == 0, "\(done.errors)")
    }

    /// No console error, the text is there, and the screenshot isn't blank.
    @Test(arguments: Kind.allCases) private func looksRightInABrowser(_ kind: Kind) throws {
        guard (try? run("chromium", ["--version"]))?.status == 0 else {
            return print("skipped: chromium isn't installed, so no page is looked at")
        }
        let path = try page(kind)
        let picture = scratch.path.appending("page.png")
        let options: [Word] = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
            "--user-data-dir=\(scratch.path.appending("browser"))", "--window-size=1200,900",
        ]
        let shot = try run(
            "chromium", options + ["--screenshot=\(picture)", "file://\(path)"], within: .seconds(120))
        #expect(shot.status == 0, "\(shot.errors)")
        #expect(!shot.errors.contains("CONSOLE"), "\(shot.errors)")
        let dump = try run("chromium", options + ["--dump-dom", "file://\(path)"], within: .seconds(120))
        for text in kind.texts {
            let escaped = text.replacing("&", with: "&amp;").replacing("<", with: "&lt;").replacing(">", with: "&gt;")
            #expect(dump.output.contains(escaped), "\(text) isn't on the page")
        }
        // Reads the rows of the picture (www.w3.org/TR/png), whose filters don't matter: a blank one has one colour.
        let script = """
            import struct, sys, zlib
            data = open(sys.argv[1], "rb").read()
            place, pixels = 8, b""
            while place < len(data):
                length, kind = struct.unpack(">I4s", data[place:place + 8])
                if kind == b"IHDR": width, height = struct.unpack(">II", data[place + 8:place + 16])
                if kind == b"IDAT": pixels += data[place + 8:place + 8 + length]
                place += length + 12
            rows = zlib.decompress(pixels)
            size = len(rows) // height
            print(width, height, len({rows[at:at + size] for at in range(0, len(rows), size)}))
            """
        let counted = try run("python3", ["-c", Word(script), Word(picture)])
        let numbers = counted.output.split(whereSeparator: \.isWhitespace).compactMap { Int($0) }
        #expect(numbers.count == 3 && numbers[0] == 1200 && numbers[2] > 50, "\(counted.output)\(counted.errors)")
    }
}

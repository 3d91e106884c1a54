import EndToEndSupport
import Glibc
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
        model = try ModelBundle.make(in: scratch, named: "A <b> & \"c\"", [("Notes", Self.first), ("Notes 2", second)])
    }

    private func version(_ name: String) -> Word { Word(model.appending(name + ".xcdatamodel")) }

    private enum Kind: String, CaseIterable, Sendable {
        case show, diff, check

        /// Texts that the page must show.
        var texts: [String] {
            switch self {
            case .show:
                [
                    "Note", "Memo", "caption: String?", "wörd: String?", "tags → Tag", "new: Decimal?",
                    "Model Notes 2, 3 entities",
                ]
            case .diff:
                [
                    "Notes → Notes 2", "caption", "renamed from title", "gone", "new", "a migration",
                    "1 unchanged entity",
                ]
            case .check:
                [
                    "Versions of A <b> & \"c\".xcdatamodeld", "by inferred migration", "Tag.gone",
                    "Stores of the older version open",
                ]
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

    /// The models whose pictures are measured: one with 40 entities, and those of real apps, if they are there.
    private func models() throws -> [FilePath] {
        let generator = """
            import random, sys
            random.seed(4)
            names = [f"Entity{i}" for i in range(40)]
            body, parent = {name: [] for name in names}, {}
            for i, name in enumerate(names):
                for a in range(random.randint(0, 9)):
                    body[name].append(f'<attribute name="at{i}x{a}" optional="YES" attributeType="String"/>')
                if i and random.random() < 0.2: parent[name] = random.choice(names[:i])
            def relationship(name, to, inverse):
                back = f'inverseName="{inverse}" inverseEntity="{to}"' if inverse else ""
                many = random.choice(['toMany="YES"', 'maxCount="1"'])
                return (f'<relationship name="{name}" optional="YES" {many} deletionRule="Nullify" '
                        f'destinationEntity="{to}" {back}/>')
            for k in range(60):
                a, b = random.choice(names), random.choice(names)
                if random.random() < 0.12:
                    body[a].append(relationship(f"only{k}", b, None))
                else:
                    body[a].append(relationship(f"rel{k}a", b, f"rel{k}b"))
                    body[b].append(relationship(f"rel{k}b", a, f"rel{k}a"))
            for name in names:
                up = f' parentEntity="{parent[name]}"' if name in parent else ""
                print(f'<entity name="{name}"{up}>' + "".join(body[name]) + "</entity>")
            print('<entity name="Same"><relationship name="friends" optional="YES" toMany="YES" '
                  'deletionRule="Nullify" destinationEntity="Same" inverseName="friends" inverseEntity="Same"/></entity>')
            """
        let entities = try run("python3", ["-c", Word(generator)]).output
        var models = [model, try ModelBundle.make(in: scratch, named: "Forty", [("Forty", entities)])]
        if let real = getenv("GROUPSTORE_REAL_STORES").map({ String(cString: $0) }) {
            let found = try run("find", ["-L", Word(real), "-name", "*.xcdatamodeld"])
            models += found.lines.sorted().map { FilePath($0) }
        }
        return models
    }

    /// No line passes through a box or lies on another one, and in a browser no text overlaps another or its box.
    @Test func noLineCrossesABoxAndNoTextsOverlap() throws {
        var pictures: [Word] = []
        for (number, model) in try models().enumerated() {
            let shown = try groupstore("model", "show", Word(model), "--format", "svg")
            if shown.status != 0 { continue }
            let picture = scratch.path.appending("\(number) \(model.stem ?? "").svg")
            try write(shown.output, to: picture)
            pictures.append(Word(picture))
        }
        let geometry = Programs.source("Tests/Pictures/geometry.py")
        let checked = try run("python3", [geometry] + pictures)
        #expect(checked.status == 0, "\(checked.output)\(checked.errors)")
        guard (try? run("chromium", ["--version"]))?.status == 0 else {
            return print("skipped: chromium isn't installed, so no text is measured")
        }
        let page = scratch.path.appending("pictures.html")
        try write(try run("python3", [geometry, "--page"] + pictures).output, to: page)
        let dump = try run(
            "chromium",
            [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom",
                "--user-data-dir=\(scratch.path.appending("browser"))", "file://\(page)",
            ], within: .seconds(120))
        let result = dump.output.split(separator: "<pre id=\"result\">").last?.split(separator: "</pre>").first ?? ""
        #expect(result.hasSuffix("faults: none"), "\(result)")
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

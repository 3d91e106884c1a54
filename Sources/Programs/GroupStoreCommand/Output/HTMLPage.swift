import LinuxSystem

/// A page for a browser in one file: its style is inside, and it loads nothing.
struct HTMLPage {
    let title: String
    /// The content in HTML.
    var body: [String] = []

    init(_ title: String) { self.title = title }

    mutating func add(_ html: String) { body.append(html) }

    /// Adds a table. Cells are in HTML; a row may have a class.
    mutating func addTable(_ heading: [String], _ rows: [(style: String?, cells: [String])]) {
        body.append("<table>")
        body.append("<thead><tr>" + heading.map { "<th>\(Self.text($0))</th>" }.joined() + "</tr></thead>")
        body.append("<tbody>")
        for row in rows {
            let style = row.style.map { " class=\"\(Self.text($0))\"" } ?? ""
            body.append("<tr\(style)>" + row.cells.map { "<td>\($0)</td>" }.joined() + "</tr>")
        }
        body.append("</tbody></table>")
    }

    /// The lines of the page.
    var lines: [String] {
        [
            "<!DOCTYPE html>", "<html lang=\"en\">", "<head>", "<meta charset=\"utf-8\">",
            "<meta name=\"viewport\" content=\"width=device-width\">",
            // No icon: a browser would ask for one.
            "<link rel=\"icon\" href=\"data:,\">", "<title>\(Self.text(title))</title>",
            "<style>\(Self.style)</style>", "</head>", "<body>", "<h1>\(Self.text(title))</h1>",
        ] + body + ["</body>", "</html>"]
    }

    /// Returns text as HTML. Characters that affect a line or reorder text are visible.
    static func text(_ text: String) -> String {
        PrintableText(text).description.replacing("&", with: "&amp;").replacing("<", with: "&lt;")
            .replacing(">", with: "&gt;").replacing("\"", with: "&quot;").replacing("'", with: "&#39;")
    }

    private static let style = """
        :root{color-scheme:light dark;--line:#8886;--soft:#8881;--good:#1f7a33;--bad:#c5303a;--warn:#8a5800;--link:#0b5cad}\
        body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}\
        h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}\
        table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}\
        th,td{border:1px solid var(--line);padding:.3rem .55rem;text-align:left;vertical-align:top}\
        th{background:var(--soft)}code{font-family:ui-monospace,monospace}ul{margin:.2rem 0;padding-left:1.2rem}\
        .added td{background:#2a8a3e22}.removed td{background:#c5303a22}.changed td{background:#a76a0022}\
        .good{color:var(--good)}.bad{color:var(--bad)}.warning{color:var(--warn)}.note{color:inherit;opacity:.75}\
        mark{background:#a76a0055;color:inherit}a{color:var(--link)}\
        .changes{list-style:none;padding:0}.changes li{padding:.15rem .55rem;border-left:4px solid var(--line)}\
        .changes .added{border-color:var(--good)}.changes .removed{border-color:var(--bad)}\
        .changes .changed,.changes .renamed{border-color:var(--warn)}\
        details{margin:1rem 0}summary{cursor:pointer}\
        @media(prefers-color-scheme:dark){\
        :root{--good:#56d364;--bad:#ff7b72;--warn:#e3b341;--link:#79b8ff}body{background:#0d1117;color:#e6edf3}}
        """
}

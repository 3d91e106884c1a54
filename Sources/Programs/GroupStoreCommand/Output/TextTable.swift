import LinuxSystem

/// Rows with aligned columns. Numbers are right-aligned.
///
/// Hand-written because thirty lines aren't worth a dependency, and a cell's width is that of its escaped text.
struct TextTable {
    private var rows: [[Cell]] = []

    enum Cell {
        case text(String)
        case number(String)

        /// The text as it is printed, which determines its width.
        fileprivate var content: String {
            switch self {
            case .text(let content), .number(let content): PrintableText(content).description
            }
        }
    }

    mutating func add(_ cells: Cell...) { rows.append(cells) }

    /// Returns the rows, with two spaces between columns and `indent` before the first.
    func lines(indent: String = "") -> [String] {
        var widths: [Int] = []
        for row in rows {
            for (column, cell) in row.enumerated() {
                if column == widths.count { widths.append(0) }
                widths[column] = max(widths[column], DisplayWidth.of(cell.content))
            }
        }
        return rows.map { row in
            var line = indent
            for (column, cell) in row.enumerated() {
                let padding = String(repeating: " ", count: widths[column] - DisplayWidth.of(cell.content))
                switch cell {
                case .text: line += cell.content + padding
                case .number: line += padding + cell.content
                }
                line += "  "
            }
            while line.last == " " { line.removeLast() }
            return line
        }
    }
}

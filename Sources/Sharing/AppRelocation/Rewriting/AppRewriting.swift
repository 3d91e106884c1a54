import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// The changes of paths in all stores of a copied directory: those of a move, or the undoing of those.
struct AppRewriting {
    private let move: AppMove
    private let container: GroupContainer
    private let change: (_ store: FilePath) -> (String, String, String, [UInt8]) -> [UInt8]?

    /// Returns nil if no path is to be changed.
    init?(_ move: AppMove, _ container: GroupContainer) throws {
        (self.move, self.container) = (move, container)
        if let undone = move.undoes {
            guard let lines = try container.appCells(undone) else { return nil }
            let cells = try Self.cells(lines)
            change = { store in
                { table, row, column, text in
                    // A cell that the program has changed since stays.
                    guard let cell = cells[Place(store: store, table: table, row: row, column: column)] else {
                        return nil
                    }
                    return Array(cell.new) == text ? Array(cell.old) : nil
                }
            }
        } else {
            guard let rewrites = move.rewrites else { return nil }
            let rewriter = PathRewriter(rewrites)
            change = { _ in { _, _, _, text in rewriter.rewritten(text) } }
        }
    }

    private struct Place: Hashable {
        let store: FilePath
        let table: String
        let row: String
        let column: String
    }

    private static func cells(_ lines: [UInt8]) throws -> [Place: RewrittenCell] {
        var found: [Place: RewrittenCell] = [:]
        for line in lines.split(separator: 0x0A) {
            let cell = try JSONDecoder().decode(RewrittenCell.self, from: Data(line))
            found[Place(store: cell.store.path, table: cell.table, row: cell.row, column: cell.column)] = cell
        }
        return found
    }

    /// Changes the stores in a staged copy, and records the changed cells for `--undo`.
    func run(in copy: Directory, _ stores: Set<FilePath>) throws -> StoreRewrite.Result {
        var result = StoreRewrite.Result()
        for store in stores.sorted(by: { $0.bytes.lexicographicallyPrecedes($1.bytes) }) {
            let changed = try StoreRewrite(path: copy.path.pushing(store), name: store, change: change(store)).run()
            result.columns += changed.columns
            result.cells += changed.cells
            result.notes += changed.notes
        }
        guard move.undoes == nil else { return result }
        var lines: [UInt8] = []
        for cell in result.cells { lines += try JSONEncoder().encode(cell) + [0x0A] }
        try container.writeAppCells(lines, move.id)
        return result
    }

    /// Looks for the cells that a move with these rewrites would change. Changes nothing.
    static func preview(
        _ rewrites: [PathRewrite], in root: Directory, _ stores: [FilePath]
    ) throws -> [RewrittenColumn] {
        let rewriter = PathRewriter(rewrites)
        return try stores.flatMap { store -> [RewrittenColumn] in
            guard let last = store.lastComponent, let name = StoreName.existing(last) else { return [] }
            let location = StoreLocation(directory: try root.descendant(store.removingLastComponent()), name: name)
            return try StoreReader.read(location) { reader in
                try StoreRewrite(path: location.path, name: store) { _, _, _, text in rewriter.rewritten(text) }
                    .preview(reader).columns
            }
        }
    }
}

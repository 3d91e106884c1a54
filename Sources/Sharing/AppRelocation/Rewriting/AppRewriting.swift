import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// The changes of paths in all stores of a copied directory: those of a move, or the undoing of those.
struct AppRewriting {
    private enum Work {
        case rewrite(PathRewriter)
        case restore([FilePath: [RewrittenCell]])
    }

    private let move: AppMove
    private let container: GroupContainer
    private let work: Work

    /// Returns nil if no path is to be changed.
    init?(_ move: AppMove, _ container: GroupContainer) throws {
        (self.move, self.container) = (move, container)
        if let undone = move.undoes {
            guard let lines = try container.appCells(undone) else { return nil }
            let cells = try lines.split(separator: 0x0A)
                .map { try JSONDecoder().decode(RewrittenCell.self, from: Data($0)) }
            work = .restore(Dictionary(grouping: cells) { $0.store.path })
        } else {
            guard let rewrites = move.rewrites else { return nil }
            work = .rewrite(PathRewriter(rewrites))
        }
    }

    /// Changes the stores in a staged copy, and records the changed cells for `--undo`.
    func run(in copy: Directory, _ stores: Set<FilePath>) throws -> StoreRewrite.Result {
        var result = StoreRewrite.Result()
        for store in stores.sorted(by: { $0.bytes.lexicographicallyPrecedes($1.bytes) }) {
            let changed = try withWriting(store, in: copy) { path in try change(path, store) }
            result.columns += changed.columns
            result.cells += changed.cells
            result.notes += changed.notes
            result.left += changed.left
        }
        switch work {
        case .restore(let cells):
            for (store, cells) in cells.sorted(by: { $0.key.bytes.lexicographicallyPrecedes($1.key.bytes) })
            where !stores.contains(store) {
                result.left.add(cells, .store)
            }
        case .rewrite:
            var lines: [UInt8] = []
            for cell in result.cells { lines += try JSONEncoder().encode(cell) + [0x0A] }
            try container.writeAppCells(lines, move.id)
        }
        return result
    }

    private func change(_ path: FilePath, _ store: FilePath) throws -> StoreRewrite.Result {
        let origin = move.source.path.pushing(store)
        switch work {
        case .rewrite(let rewriter):
            return try StoreRewrite(path: path, name: store, origin: origin, rewriter: rewriter).run()
        case .restore(let cells):
            guard let own = cells[store] else { return StoreRewrite.Result() }
            return try StoreRestoration(path: path, name: store, origin: origin, cells: own).run()
        }
    }

    /// Lets the owner write to a copy and its directory meanwhile. A write by an ordinary user also takes the set-user
    /// and set-group bits from a file.
    private func withWriting<Result>(
        _ store: FilePath, in copy: Directory, _ body: (FilePath) throws -> Result
    ) throws -> Result {
        let directory = try copy.descendant(store.removingLastComponent())
        let path = copy.path.pushing(store)
        guard let name = store.lastComponent, let file = try directory.status(name), file.kind == .regular else {
            throw SystemError("open", .noSuchFileOrDirectory, path: path)
        }
        let mode = try directory.status().permissions
        if mode & 0o300 != 0o300 { try directory.setPermissions(mode | 0o300) }
        if file.permissions & 0o600 != 0o600 { try directory.setPermissions(file.permissions | 0o600, of: name) }
        let result = try body(path)
        if try directory.status(name)?.permissions != file.permissions {
            try directory.setPermissions(file.permissions, of: name)
        }
        if mode & 0o300 != 0o300 { try directory.setPermissions(mode) }
        return result
    }

    /// Looks for the cells that a move with these rewrites would change, and for what it would leave alone or could not
    /// give back. Changes nothing.
    static func preview(
        _ rewrites: [PathRewrite], in root: Directory, _ stores: [FilePath]
    ) throws -> StoreRewrite.Result {
        let rewriter = PathRewriter(rewrites)
        var result = StoreRewrite.Result()
        for store in stores {
            guard let last = store.lastComponent, let name = StoreName.existing(last) else { continue }
            let location = StoreLocation(directory: try root.descendant(store.removingLastComponent()), name: name)
            let path = location.path
            do {
                // As a copy locks it: a store that can't be opened is copied as it is.
                _ = try StoreReader.read(location) { try $0.integer("SELECT count(*) FROM sqlite_schema") }
            } catch let error as StoreError {
                if case .busy = error { throw error }
                result.notes.append(AppStoreLocks.note(store, error))
                continue
            }
            let found = try StoreReader.read(location) { reader in
                try StoreRewrite(path: path, name: store, origin: path, rewriter: rewriter).preview(reader)
            }
            result.columns += found.columns
            result.notes += found.notes
        }
        return result
    }
}

extension Directory {
    /// Gives a file the permission bits.
    fileprivate func setPermissions(_ mode: mode_t, of name: FilePath.Component) throws {
        let raw = self.raw
        try retrying("fchmodat", path: path.appending(name)) { name.withPlatformString { fchmodat(raw, $0, mode, 0) } }
    }
}
